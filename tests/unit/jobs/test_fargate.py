"""Fargate sells the sizes that AWS documents, and no others."""

from __future__ import annotations

import re

import botocore.session
import pytest

from windfall.jobs.errors import Invalid
from windfall.jobs.fargate import SIZES, check_size
from windfall.jobs.resources import Resources


def documented():
    """The sizes in botocore's own words about ResourceRequirement: memory by vCPUs."""
    shape = botocore.session.get_session().get_service_model("batch").shape_for("ResourceRequirement")
    words = re.sub(r"<[^>]+>", " ", shape.members["value"].documentation)
    by_vcpus = words[words.index('type="VCPU"') :]
    rows = re.findall(r"value = ([\d.]+)\s+MEMORY\s+= ([\d, or]+)", by_vcpus)
    return {float(vcpus): [int(mib) for mib in re.findall(r"\d+", memory)] for vcpus, memory in rows}


def test_the_sizes_are_those_that_aws_documents():
    assert {vcpus: list(memory) for vcpus, memory in SIZES.items()} == documented()


@pytest.mark.parametrize(
    ("vcpus", "memory_mib"),
    [
        (0.25, 777),
        (0.25, 4096),
        (0.75, 2048),
        (1, 1024),
        (4, 30721),
        (8, 17408),
        (16, 36864),
        (32, 65536),
        (64, 65536),
    ],
)
def test_another_size_is_refused_with_what_there_is(vcpus, memory_mib):
    with pytest.raises(
        Invalid, match=rf"\({vcpus:.2f} vCPU, {memory_mib} MiB\) not valid\. On Fargate, .* must be"
    ):
        check_size(Resources(vcpus, memory_mib))


def test_every_documented_size_is_taken():
    for vcpus, memory in SIZES.items():
        for memory_mib in memory:
            check_size(Resources(vcpus, memory_mib))
