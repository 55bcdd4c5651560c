"""Labels of machines, and the environments that choose by them."""

from __future__ import annotations

import pytest

from windfall.capacity.environments import ComputeEnvironment, Provisioning
from windfall.capacity.labels import LABELS, check_tag, chooses, parse_labels, refuse_tag
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import EnvironmentName


def an_environment(labels: str | None = None, *types: str) -> ComputeEnvironment:
    tags = {} if labels is None else {LABELS: labels}
    return ComputeEnvironment(
        EnvironmentName("e"), Provisioning.EC2, 0, 8, tags=tags, instance_types=tuple(types)
    )


def test_labels_are_pairs_with_commas_or_spaces_between_them():
    assert parse_labels("gpu=a100,zone=b") == {"gpu": "a100", "zone": "b"}
    assert parse_labels(" gpu=a100  zone=b ") == {"gpu": "a100", "zone": "b"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "key=value pairs"),
        ("gpu", "'gpu=' is not a label"),
        ("GPU=a100", "'GPU=a100' is not a label"),
        ("gpu=../etc", "'gpu=../etc' is not a label"),
        ("gpu=a,gpu=b", "the label gpu is given twice"),
        (",".join(f"k{number}=v" for number in range(33)), "33 labels are too many"),
        (f"k={'v' * 64}", "is not a label"),
    ],
)
def test_what_is_no_label_is_refused_with_what_to_write(text, said):
    with pytest.raises(Invalid, match=said):
        parse_labels(text)


def test_an_environment_means_the_machines_that_have_all_its_labels():
    wanted = an_environment("gpu=a100,zone=b")
    assert chooses(wanted, {"gpu": "a100", "zone": "b", "more": "x"})
    assert not chooses(wanted, {"gpu": "a100"})
    assert not chooses(wanted, {"gpu": "h100", "zone": "b"})
    assert chooses(an_environment(), {})


def test_instance_types_are_compared_with_the_label_type():
    assert chooses(an_environment(None, "p4d.24xlarge"), {"type": "p4d.24xlarge"})
    assert chooses(an_environment(None, "g5", "p4d"), {"type": "p4d.24xlarge"})
    assert chooses(an_environment(None, "optimal"), {})
    assert not chooses(an_environment(None, "p4d.24xlarge"), {"type": "p4de.24xlarge"})
    assert not chooses(an_environment(None, "p4d.24xlarge"), {})


def test_a_tag_that_cannot_be_read_is_refused_and_means_no_machine():
    broken = an_environment("gpu")
    with pytest.raises(Invalid, match="windfall:labels cannot be read"):
        check_tag(broken)
    assert not chooses(broken, {"gpu": "a100"})


def test_an_engine_without_labels_refuses_the_tag():
    refuse_tag(an_environment(), "local")
    with pytest.raises(Invalid, match="windfall:engine=hosts"):
        refuse_tag(an_environment("gpu=a100"), "local")
