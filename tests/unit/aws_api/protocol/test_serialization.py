"""Answers, read back by botocore's own parsers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from botocore.awsrequest import HeadersDict
from botocore.model import ServiceModel
from botocore.parsers import create_parser
from hypothesis import given, settings
from hypothesis import strategies as st

from windfall.aws_api.protocol.operations import load_service_model
from windfall.aws_api.protocol.serialization import compile_response

MODELS = {name: load_service_model(name) for name in ("batch", "logs", "scheduler")}


def round_trip(model, operation: str, output: dict) -> dict:
    """Write an answer with our serializer and read it with botocore's parser."""
    operation_model = model.operation_model(operation)
    response = compile_response(operation_model, b"application/json")(output)
    wire = {
        "status_code": response.status,
        "headers": HeadersDict({name.decode(): value.decode() for name, value in response.headers}),
        "body": response.body,
    }
    parsed = create_parser(model.protocol).parse(wire, operation_model.output_shape)
    parsed.pop("ResponseMetadata")
    return parsed


def test_none_and_unknown_members_are_left_out():
    job = {"jobId": "a", "createdAt": 1_700_000_000_123, "statusReason": None, "_internal": 1, "attempts": []}
    parsed = round_trip(MODELS["batch"], "DescribeJobs", {"jobs": [job], "secret": 1})
    assert parsed == {"jobs": [{"jobId": "a", "createdAt": 1_700_000_000_123, "attempts": []}]}


def test_timestamps_are_seconds():
    for value in (1_700_000_000.5, datetime.fromtimestamp(1_700_000_000.5, UTC)):
        parsed = round_trip(MODELS["scheduler"], "GetSchedule", {"Name": "n", "CreationDate": value})
        assert parsed["CreationDate"].timestamp() == 1_700_000_000.5


def test_an_operation_without_output_answers_an_empty_object():
    dump = compile_response(MODELS["logs"].operation_model("CreateLogGroup"), b"application/x-amz-json-1.1")
    assert dump({"ignored": 1}).body == b"{}"


def values_of(shape, depth: int = 0):
    """Return a strategy for values that an output shape can hold."""
    kind = shape.type_name
    if kind == "structure":
        # Below a few levels every further member is left out: shapes may contain themselves.
        members = (
            {} if depth > 3 else {n: st.none() | values_of(m, depth + 1) for n, m in shape.members.items()}
        )
        return st.fixed_dictionaries({}, optional=members)
    if kind == "list":
        return st.lists(values_of(shape.member, depth + 1), max_size=2)
    if kind == "map":
        return st.dictionaries(st.text(max_size=5), values_of(shape.value, depth + 1), max_size=2)
    if kind in ("integer", "long"):
        return st.integers(-(2**31), 2**31 - 1)
    if kind in ("float", "double"):
        return st.floats(allow_nan=False, allow_infinity=False)
    if kind == "boolean":
        return st.booleans()
    if kind == "blob":
        return st.binary(max_size=10)
    if kind == "timestamp":
        return st.integers(0, 2**31).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
    return st.text(max_size=8)


def without_none(value):
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return [without_none(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("service", "operation"),
    [("batch", "DescribeJobs"), ("batch", "DescribeComputeEnvironments"), ("logs", "FilterLogEvents")],
)
def test_botocore_reads_back_what_was_written(service, operation):
    model = MODELS[service]

    @settings(max_examples=40, deadline=None)
    @given(values_of(model.operation_model(operation).output_shape))
    def check(output):
        assert round_trip(model, operation, output) == without_none(output)

    check()


def test_headers_statuses_and_blobs():
    description = {
        "metadata": {"protocol": "rest-json", "apiVersion": "1", "endpointPrefix": "x", "serviceId": "x"},
        "operations": {
            "Make": {
                "name": "Make",
                "http": {"method": "POST", "requestUri": "/make", "responseCode": 201},
                "output": {"shape": "Out"},
            }
        },
        "shapes": {
            "Out": {
                "type": "structure",
                "members": {
                    "Status": {"shape": "Int", "location": "statusCode"},
                    "Place": {"shape": "Str", "location": "header", "locationName": "Location"},
                    "When": {"shape": "Time", "location": "header", "locationName": "X-When"},
                    "Ready": {"shape": "Bool", "location": "header", "locationName": "X-Ready"},
                    "Blob": {"shape": "Blob", "locationName": "blob"},
                    "Times": {"shape": "Times"},
                },
            },
            "Int": {"type": "integer"},
            "Str": {"type": "string"},
            "Bool": {"type": "boolean"},
            "Time": {"type": "timestamp"},
            "Iso": {"type": "timestamp", "timestampFormat": "iso8601"},
            "Times": {"type": "map", "key": {"shape": "Str"}, "value": {"shape": "Iso"}},
            "Blob": {"type": "blob"},
        },
    }
    model = ServiceModel(description, "x")
    moment = datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)
    output = {"Place": "/a", "When": moment, "Ready": True, "Blob": b"\0\xff", "Times": {"a": moment}}
    assert round_trip(model, "Make", output) == {**output, "Status": 201}
    assert round_trip(model, "Make", {"Status": 202}) == {"Status": 202}
    response = compile_response(model.operation_model("Make"), b"")({"Place": "a\r\nset-cookie: b"})
    assert response.headers == ((b"location", b"a  set-cookie: b"),)
