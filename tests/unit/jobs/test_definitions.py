"""What a job finally runs: overrides over the definition, parameters in the command, environment by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_definition
from windfall.jobs.definitions import (
    ContainerOverrides,
    ContainerSpec,
    HostProgram,
    effective_container,
    requested_resources,
    substituted,
)
from windfall.jobs.errors import Invalid, MissingParameter
from windfall.jobs.images import ImageMapping, find_mapping, host_command, not_runnable_reason
from windfall.jobs.resources import Resources


def test_each_reference_is_replaced_by_its_value():
    command = ("train", "Ref::input", "--rate", "Ref::rate", "Ref::input")
    assert substituted(command, {"input": "s3://x", "rate": ""}) == (
        "train",
        "s3://x",
        "--rate",
        "",
        "s3://x",
    )


@pytest.mark.parametrize(
    "command", [(), ("echo", "xRef::a", "Ref:a"), ("sh", "-c", "echo until Ref::a", "--at=Ref::a")]
)
def test_a_reference_counts_only_as_an_argument_of_its_own(command):
    assert substituted(command, {"a": "1"}) is command


def test_a_reference_without_a_value_is_refused_with_its_name():
    with pytest.raises(MissingParameter, match="No parameter found for reference rate") as refused:
        substituted(("Ref::input", "Ref::rate"), {"input": "x"})
    assert isinstance(refused.value, Invalid)
    assert refused.value.name == "rate"


def test_a_value_is_not_substituted_again():
    assert substituted(("Ref::a",), {"a": "Ref::b"}) == ("Ref::b",)


def test_submitted_parameters_win_over_the_definition():
    definition = a_definition(
        container=ContainerSpec("image", Resources(1, 1), ("Ref::a", "Ref::b")),
        parameters={"a": "1", "b": "2"},
    )
    assert effective_container(definition, None, {"b": "3"}).command == ("1", "3")


def test_environments_are_merged_by_name_and_the_command_is_replaced():
    container = ContainerSpec("image", Resources(1, 1), ("old",), {"A": "1", "B": "2"})
    overrides = ContainerOverrides(command=("new",), environment={"B": "3", "C": "4"})
    made = effective_container(a_definition(container=container), overrides, {})
    assert made.command == ("new",)
    assert made.environment == {"A": "1", "B": "3", "C": "4"}
    assert container.environment == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (None, Resources(1, 1024)),
        (ContainerOverrides(), Resources(1, 1024)),
        (ContainerOverrides(vcpus=0.5), Resources(0.5, 1024)),
        (ContainerOverrides(memory_mib=8), Resources(1, 8)),
        (ContainerOverrides(gpus=2), Resources(1, 1024, 2)),
        (ContainerOverrides(gpus=0, vcpus=2), Resources(2, 1024, 0)),
    ],
)
def test_only_the_amounts_that_were_given_are_overridden(overrides, expected):
    assert requested_resources(a_definition(), overrides) == expected


def a_container(command=(), environment=None, image="repo/train:3"):
    return ContainerSpec(image, Resources(1, 1), command, environment or {})


def test_an_exact_image_name_wins_over_globs_and_the_longest_glob_over_others():
    exact, long, short = (ImageMapping(p, None) for p in ("repo/train:3", "repo/train:*", "repo/*"))
    assert find_mapping("repo/train:3", [short, long, exact]) is exact
    assert find_mapping("repo/train:4", [short, long, exact]) is long
    assert find_mapping("repo/other", [short, long, exact]) is short
    assert find_mapping("Repo/other", [short, long, exact]) is None


def test_a_mapped_image_has_its_directory_and_entrypoint_and_the_job_has_the_last_word():
    mapping = ImageMapping("repo/*", "/srv/train", ("python3", "train.py"), {"A": "1", "B": "2"})
    command = host_command(a_container(("--epochs", "3"), {"B": "3"}), [mapping])
    assert command is not None
    assert command.argv == ("python3", "train.py", "--epochs", "3")
    assert (command.directory, command.environment) == ("/srv/train", {"A": "1", "B": "3"})


def test_an_unmapped_image_needs_a_command_of_its_own():
    assert host_command(a_container(("true",)), []).argv == ("true",)
    assert host_command(a_container(), []) is None
    assert host_command(a_container(), [ImageMapping("repo/*", "/srv")]) is None


def test_the_reason_names_the_command_that_helps():
    container = ContainerSpec("repo/train", Resources(1, 1))
    assert not_runnable_reason(container).startswith("CannotPullContainerError: ")
    assert "windfall image add repo/train --dir" in not_runnable_reason(container)
    refused = replace(container, on_host=HostProgram(refusal="its image does it"))
    assert not_runnable_reason(refused) == "its image does it"
