"""The sizes that Fargate sells: which memory goes with which vCPUs.

Decides whether a job for Fargate has a size that exists. Must not know where it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windfall.jobs.errors import Invalid
from windfall.jobs.resources import Resources

_GIB = 1024

#: MiB of memory by vCPUs, as AWS documents them.
SIZES: Mapping[float, Sequence[int]] = {
    0.25: (512, 1 * _GIB, 2 * _GIB),
    0.5: range(1 * _GIB, 4 * _GIB + 1, _GIB),
    1: range(2 * _GIB, 8 * _GIB + 1, _GIB),
    2: range(4 * _GIB, 16 * _GIB + 1, _GIB),
    4: range(8 * _GIB, 30 * _GIB + 1, _GIB),
    8: range(16 * _GIB, 60 * _GIB + 1, 4 * _GIB),
    16: range(32 * _GIB, 120 * _GIB + 1, 8 * _GIB),
    32: (60 * _GIB, 120 * _GIB, 244 * _GIB),
}


def check_size(resources: Resources) -> None:
    """Refuse a size that Fargate does not have, in AWS's words and with what it has instead."""
    memory = SIZES.get(resources.vcpus)
    if memory is not None and resources.memory_mib in memory:
        return
    if memory is None:
        instead = "VCPU must be one of " + ", ".join(f"{vcpus:g}" for vcpus in SIZES)
    else:
        allowed = (
            f"from {memory[0]} to {memory[-1]} in steps of {memory.step}"
            if isinstance(memory, range)
            else f"one of {', '.join(str(mib) for mib in memory)}"
        )
        instead = f"with {resources.vcpus:g} vCPU, MEMORY must be {allowed}"
    raise Invalid(
        "Fargate resource requirements"
        f" ({resources.vcpus:.2f} vCPU, {resources.memory_mib} MiB) not valid. On Fargate, {instead}."
    )
