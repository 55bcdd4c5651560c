"""Forms of the query protocol into nested values, and values into XML, by CloudWatch's own shapes."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.aws_api.protocol.errors import SerializationError
from windfall.aws_api.protocol.operations import load_service_model
from windfall.aws_api.protocol.query_forms import form_fields, read_form, write_xml
from windfall.aws_api.protocol.request import HttpRequest

OPERATION = load_service_model("cloudwatch").operation_model("GetMetricData")


def read(*fields):
    return read_form(OPERATION.input_shape, fields)


def test_lists_are_in_the_order_of_their_numbers_and_leaves_have_their_types():
    queries = "MetricDataQueries.member"
    assert read(
        (f"{queries}.10.Id", "last"),
        (f"{queries}.2.Id", "first"),
        (f"{queries}.2.ReturnData", "false"),
        (f"{queries}.2.MetricStat.Period", "60"),
        ("MaxDatapoints", "sixty"),
        ("Unknown.member.1", "left out"),
    ) == {
        "MetricDataQueries": [
            {"Id": "first", "ReturnData": False, "MetricStat": {"Period": 60}},
            {"Id": "last"},
        ],
        # The check of the shape refuses it by name.
        "MaxDatapoints": "sixty",
    }


def test_an_empty_list_is_sent_as_an_empty_text():
    assert read(("MetricDataQueries", "")) == {"MetricDataQueries": []}


@pytest.mark.parametrize(
    "fields",
    [
        [("MetricDataQueries", "text")],
        [("MetricDataQueries.member.x.Id", "a")],
        [("MetricDataQueries.1.Id", "a")],
        [("MetricDataQueries.member.1", "no structure")],
        [("LabelOptions", "no structure")],
        [("NextToken.inner", "no text")],
        [("LabelOptions", "a"), ("LabelOptions.Timezone", "b")],
        [("LabelOptions.Timezone", "b"), ("LabelOptions", "a")],
    ],
)
def test_what_has_the_wrong_form_is_refused(fields):
    with pytest.raises(SerializationError):
        read(*fields)


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=5)), max_size=5))
def test_no_form_breaks_the_reader(fields):
    try:
        found = read(*fields)
    except SerializationError:
        return
    assert isinstance(found, dict)


def test_a_body_that_is_no_form_is_refused():
    with pytest.raises(SerializationError, match="percent-encoded"):
        form_fields(HttpRequest("POST", "/", "", {}, b"a=%ff"))


def test_an_answer_is_xml_that_says_the_same_whatever_its_texts_hold():
    output = {
        "MetricDataResults": [{"Id": "<a> & b", "Timestamps": [0.0], "Values": [1.5], "Label": None}],
        "Messages": [],
    }
    tree = ET.fromstring(f"<r>{write_xml(OPERATION.output_shape, output)}</r>")
    assert tree.findtext("MetricDataResults/member/Id") == "<a> & b"
    assert tree.findtext("MetricDataResults/member/Timestamps/member") == "1970-01-01T00:00:00.000Z"
    assert tree.findtext("MetricDataResults/member/Values/member") == "1.5"
    assert tree.find("MetricDataResults/member/Label") is None
