"""How fast GPUs are beside one another, where figures are known: NVIDIA's data sheets, dense, without sparsity.

A ratio of peaks is what a job can gain at most, and no more than that is said of it. A model that is not here has no
prediction. Holds figures and two questions about them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuSpeed:
    """Peaks of one GPU."""

    #: TFLOP/s on the tensor cores in fp16 or bf16.
    tensor_tflops: float
    #: GB/s of its own memory.
    memory_gb_s: float


SPEEDS: dict[str, GpuSpeed] = {
    "T4": GpuSpeed(65, 320),
    "V100": GpuSpeed(125, 900),
    "A10G": GpuSpeed(70, 600),
    "L4": GpuSpeed(121, 300),
    "L40S": GpuSpeed(362, 864),
    "A100": GpuSpeed(312, 1555),
    "H100": GpuSpeed(989, 3350),
    "H200": GpuSpeed(989, 4800),
}


def model_of(name: str) -> str | None:
    """The model in a device's name, such as H200 in `NVIDIA H200`; None for one without figures."""
    words = re.split(r"[\s-]+", name.upper())
    return next((model for model in SPEEDS if model in words), None)


def slower_by(now: str | None, other: str | None, *, by_memory: bool | None = None) -> float | None:
    """By how much GPU work takes longer on `other`; below 1 it is faster. None when a figure is missing.

    `by_memory` takes bandwidth alone (True) or arithmetic alone (False); None takes the worse of both.
    """
    if now == other and now is not None:
        return 1.0
    have, would = SPEEDS.get(now or ""), SPEEDS.get(other or "")
    if have is None or would is None:
        return None
    memory, tensor = have.memory_gb_s / would.memory_gb_s, have.tensor_tflops / would.tensor_tflops
    if by_memory is None:
        return max(memory, tensor)
    return memory if by_memory else tensor
