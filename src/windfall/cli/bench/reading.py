"""From measurements to what they mean: the lines of the table, shares of the ceilings, the break-even sizes.

Pure. The CPU's time is that of its fastest library, because nobody would compare a GPU with the slower one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from windfall.cli.bench.results import CPU, GPU, Results
from windfall.cli.bench.suite.operations import PRODUCT, BenchOperation


class Mode(StrEnum):
    """What of the GPU's way is counted."""

    RESIDENT = "resident"
    TRANSFER = "with transfer"
    COLD = "cold"


@dataclass(frozen=True, slots=True)
class Row:
    """One operation on both devices; what was not measured is None."""

    operation: BenchOperation
    cpu_s: float | None
    cpu_library: str | None
    #: By mode.
    gpu_s: dict[Mode, float]
    pinned_s: float | None = None
    tf32_s: float | None = None
    #: How far the resident samples lie apart, as a share of their median.
    gpu_spread: float | None = None

    def speed_up(self, mode: Mode) -> float | None:
        """How many times as fast the GPU is."""
        gpu_s = self.gpu_s.get(mode)
        return None if self.cpu_s is None or gpu_s is None else self.cpu_s / gpu_s

    @property
    def moved_bytes(self) -> int:
        """The least that has to go through the device's memory: all that comes in and goes out, once."""
        return self.operation.bytes_in + self.operation.bytes_out


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """How fast an operation went: floating-point operations or bytes a second, and its share of the ceiling."""

    per_s: float
    in_flops: bool
    share: float | None


@dataclass(frozen=True, slots=True)
class BreakEven:
    """From which matrix edge on the GPU wins; None with the reason in `note` where the lines do not cross."""

    mode: Mode
    edge: float | None
    note: str


def rows(results: Results, library: str | None) -> list[Row]:
    """A line for each operation of the table, in the order in which they were measured; `library` is the GPU's."""
    ran = [
        measurement.operation
        for measurement in results.measurements
        if measurement.measure in {"resident", "first"}
    ]
    # The small products of the sweep are not lines of the table, on either device.
    swept = {measurement.operation for measurement in results.measurements if is_swept(measurement.operation)}
    return [row(results, operation, library) for operation in dict.fromkeys(ran) if operation not in swept]


def is_swept(operation: BenchOperation) -> bool:
    """Whether it serves the break-even only."""
    # Edges of the table are multiples of 1000, those of the sweep are not.
    return operation.kind == PRODUCT and operation.size % 1000 != 0


def row(results: Results, operation: BenchOperation, library: str | None) -> Row:
    """One operation, the GPU's side with one library."""
    cpu = results.find(CPU, operation, "resident")
    resident = results.find(GPU, operation, "resident", library)
    whole = results.find(GPU, operation, "end_to_end", library)
    first = results.find(GPU, operation, "first", library)
    started_s = results.fact(GPU, "first_call_s", library)
    pinned = results.find(GPU, operation, "end_to_end_pinned", library)
    tf32 = results.find(GPU, operation, "resident", library, "tf32")
    gpu_s: dict[Mode, float] = {}
    if library is not None:
        if resident is not None:
            gpu_s[Mode.RESIDENT] = resident.typical_s
        if whole is not None:
            gpu_s[Mode.TRANSFER] = whole.typical_s
        own = first or whole
        if started_s is not None and own is not None:
            gpu_s[Mode.COLD] = float(started_s) + loading_s(results, operation, library) + own.typical_s
    return Row(
        operation,
        None if cpu is None else cpu.typical_s,
        None if cpu is None else cpu.library,
        gpu_s,
        None if pinned is None or library is None else pinned.typical_s,
        None if tf32 is None or library is None else tf32.typical_s,
        None if resident is None or library is None else resident.spread,
    )


def loading_s(results: Results, operation: BenchOperation, library: str) -> float:
    """What the first operation of this kind paid for all later ones of its process: loading cuBLAS, compiling kernels.

    A process of its own would pay it for any of them, so it belongs to the cold time of each but the one that has it.
    """
    firsts = [
        measurement
        for measurement in results.measurements
        if (measurement.device, measurement.library, measurement.measure) == (GPU, library, "first")
        and measurement.operation.kind == operation.kind
    ]
    if not firsts or firsts[0].operation == operation:
        return 0.0
    warm = results.find(GPU, firsts[0].operation, "end_to_end", library)
    return 0.0 if warm is None else max(0.0, firsts[0].typical_s - warm.typical_s)


def rate(results: Results, row: Row, device: str) -> MeasuredRate | None:
    """What the operation reached on a device, on arrays that are there."""
    seconds = row.cpu_s if device == CPU else row.gpu_s.get(Mode.RESIDENT)
    if seconds is None:
        return None
    in_flops = row.operation.flops > 0
    per_s = (row.operation.flops or row.moved_bytes) / seconds
    ceiling = results.ceiling(device, "fp32_flop_s" if in_flops else "memory_bytes_s")
    return MeasuredRate(per_s, in_flops, None if ceiling is None else per_s / ceiling)


def totals(lines: Sequence[Row]) -> tuple[float | None, dict[Mode, float]]:
    """The sums over all lines; the start of CUDA is in the cold one once, as in one process that does them all."""
    cpu_s = [line.cpu_s for line in lines if line.cpu_s is not None]
    summed = {
        mode: sum(line.gpu_s[mode] for line in lines)
        for mode in (Mode.RESIDENT, Mode.TRANSFER)
        if lines and all(mode in line.gpu_s for line in lines)
    }
    return (sum(cpu_s) if lines and len(cpu_s) == len(lines) else None), summed


def sizes(results: Results, library: str) -> list[Row]:
    """The products of all sizes that both devices did, from the smallest on."""
    products = {
        measurement.operation for measurement in results.measurements if measurement.operation.kind == PRODUCT
    }
    both = [
        row(results, operation, library)
        for operation in sorted(products, key=lambda operation: operation.size)
    ]
    return [line for line in both if line.cpu_s is not None and line.gpu_s]


def break_evens(results: Results, library: str) -> list[BreakEven]:
    """The three sizes: arrays on the GPU already, brought there and back, and in a process that has just begun."""
    lines = sizes(results, library)
    break_even_points = []
    for mode in Mode:
        points = [
            (line.operation.size, ratio) for line in lines if (ratio := line.speed_up(mode)) is not None
        ]
        edge, note = crossing(points)
        break_even_points.append(BreakEven(mode, edge, note))
    return break_even_points


def crossing(points: Sequence[tuple[int, float]]) -> tuple[float | None, str]:
    """The size above which the speed-up stays over 1, between two measured sizes on a line in logarithms."""
    if not points:
        return None, "nothing was measured"
    losing = [number for number, (_, ratio) in enumerate(points) if ratio < 1]
    if not losing:
        return None, f"the GPU wins from the smallest size on that was measured, {points[0][0]}"
    last = losing[-1]
    if last == len(points) - 1:
        return None, f"the CPU wins up to the largest size that was measured, {points[-1][0]}"
    (small, below), (large, above) = points[last], points[last + 1]
    if above == below:
        return float(large), ""
    part = -math.log(below) / (math.log(above) - math.log(below))
    return math.exp(math.log(small) + part * (math.log(large) - math.log(small))), ""
