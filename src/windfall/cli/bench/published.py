"""The published figures that this benchmark repeats, and what they say when they are calculated with.

From "Accelerating Compute-Intensive Workloads with AWS Batch and GPU Instances" (AWS): an r5.4xlarge beside a
g5.8xlarge. Its text draws conclusions that its own table does not bear; each is checked here by arithmetic. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from windfall.capacity import catalog
from windfall.cli.bench.suite.operations import BATCHES, BLUR, BLUR_SIZE, IMAGE, PRODUCT, BenchOperation

CPU_INSTANCE, GPU_INSTANCE, GPU_MODEL = "r5.4xlarge", "g5.8xlarge", "A10G"
CLAIMED_CORES = 32
#: Times are published to two digits after the point.
ROUNDED_S = 0.005
#: PCIe 4.0 with 16 lanes moves more than twice this, so that it accuses nobody.
MODEST_BYTES_S = 10e9


@dataclass(frozen=True, slots=True)
class Published:
    """One line of the table, seconds."""

    operation: BenchOperation
    cpu_s: float
    gpu_s: float

    @property
    def speed_up(self) -> float:
        """As the table has it."""
        return self.cpu_s / self.gpu_s

    @property
    def speed_up_bounds(self) -> tuple[float, float]:
        """Between what the speed-up lies, as both times are rounded."""
        least = (self.cpu_s - ROUNDED_S) / (self.gpu_s + ROUNDED_S)
        return least, (self.cpu_s + ROUNDED_S) / (self.gpu_s - ROUNDED_S)

    @property
    def cpu_flop_s(self) -> float:
        """Floating-point operations a second that the CPU's time means."""
        return self.operation.flops / self.cpu_s

    @property
    def gpu_flop_s(self) -> float:
        """The same of the GPU."""
        return self.operation.flops / self.gpu_s


PRODUCTS = (
    Published(BenchOperation(PRODUCT, 1000), 0.02, 0.88),
    Published(BenchOperation(PRODUCT, 5000), 0.50, 0.01),
    Published(BenchOperation(PRODUCT, 8000), 1.46, 0.04),
    Published(BenchOperation(PRODUCT, 10000), 2.45, 0.09),
)
IMAGES = (
    Published(BenchOperation(IMAGE, 2048, BATCHES[0]), 0.29, 0.16),
    Published(BenchOperation(IMAGE, 2048, BATCHES[1]), 0.54, 0.04),
    Published(BenchOperation(IMAGE, 4096, BATCHES[0]), 0.29, 0.16),
    Published(BenchOperation(IMAGE, 4096, BATCHES[1]), 2.14, 0.21),
)
TABLE = (*PRODUCTS, *IMAGES, Published(BenchOperation(BLUR, BLUR_SIZE), 0.09, 0.04))
TOTAL_CPU_S, TOTAL_GPU_S = 10.13, 3.03


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """What the text says, and what its figures say."""

    claim: str
    figures: str


def line(operation: BenchOperation) -> Published | None:
    """The published line of an operation; of the blur, whose size was not published, the only one."""
    for row in TABLE:
        if row.operation == operation or row.operation.kind == operation.kind == BLUR:
            return row
    return None


def vcpus() -> tuple[int, int]:
    """How many vCPUs the two instances have, by the catalog."""
    cpu, gpu = catalog.find(CPU_INSTANCE), catalog.find(GPU_INSTANCE)
    assert cpu is not None
    assert gpu is not None
    return cpu.vcpus, gpu.vcpus


def sums() -> tuple[float, float]:
    """The operations of the table added up, CPU and GPU."""
    return sum(row.cpu_s for row in TABLE), sum(row.gpu_s for row in TABLE)


def ratio_without_cold() -> float:
    """The ratio of the job times when the first line, which held the start of CUDA, is taken from both."""
    cold = PRODUCTS[0]
    return (TOTAL_CPU_S - cold.cpu_s) / (TOTAL_GPU_S - cold.gpu_s)


def twins() -> list[tuple[Published, Published]]:
    """Lines of different operations with the same two times."""
    return [
        (row, other)
        for number, row in enumerate(TABLE)
        for other in TABLE[number + 1 :]
        if (row.cpu_s, row.gpu_s) == (other.cpu_s, other.gpu_s)
    ]


def findings(measured_bytes_s: float | None = None) -> list[ClaimCheck]:
    """Where the text and its own figures part; `measured_bytes_s` is the way to a GPU that was measured here."""
    cpu_vcpus, gpu_vcpus = vcpus()
    warm = PRODUCTS[1:]
    small = PRODUCTS[0]
    moved = small.operation.bytes_in + small.operation.bytes_out
    speed = measured_bytes_s or MODEST_BYTES_S
    where = "measured here" if measured_bytes_s else "a modest figure"
    cpu_sum, gpu_sum = sums()
    repeated = "; ".join(f"{first.operation.name} and {second.operation.name}" for first, second in twins())
    return [
        ClaimCheck(
            f'"{CLAIMED_CORES} cores (both instances)"',
            f"{CPU_INSTANCE} has {cpu_vcpus} vCPUs, {GPU_INSTANCE} has {gpu_vcpus}:"
            f" the CPU side had {cpu_vcpus / CLAIMED_CORES:.0%} of what is claimed.",
        ),
        ClaimCheck(
            '"As the problem size increases, GPU advantage grows dramatically"',
            f"it falls: {_listed([f'{row.speed_up:.1f}' for row in warm])} for"
            f" {_listed([str(row.operation.size) for row in warm])}. Rounded to 0.01 s, the first may be anything from"
            f" {warm[0].speed_up_bounds[0]:.0f} to {warm[0].speed_up_bounds[1]:.0f}, but the last is"
            f" {warm[-1].speed_up_bounds[1]:.0f} at most. The GPU's rate is flat"
            f" ({_listed([f'{row.gpu_flop_s / 1e12:.1f}' for row in warm])} TFLOP/s) while the CPU's rises"
            f" ({_listed([f'{row.cpu_flop_s / 1e12:.2f}' for row in warm])}): larger products help the CPU catch up.",
        ),
        ClaimCheck(
            f'"overhead of transferring data" makes {small.operation.name} take {small.gpu_s} s',
            f"its {moved / 1e6:.0f} MB take {moved / speed * 1e3:.1f} ms at {speed / 1e9:.0f} GB/s ({where}),"
            f" {moved / speed / small.gpu_s:.1%} of it. The rest is the start of CUDA, paid once in a process.",
        ),
        ClaimCheck(
            '"speedups of 1.8-13.5x depending on image size and batch size"',
            f"the lines {repeated} have the same two times although the second has four times the pixels: one of"
            " them is very likely a slip of copying, and no conclusion about size can rest on it.",
        ),
        ClaimCheck(
            f'"completed the entire benchmark suite {TOTAL_CPU_S / TOTAL_GPU_S:.2f}x faster"',
            f"the operations add up to {cpu_sum:.2f} s and {gpu_sum:.2f} s of {TOTAL_CPU_S} s and {TOTAL_GPU_S} s:"
            f" {TOTAL_CPU_S - cpu_sum:.2f} s and {TOTAL_GPU_S - gpu_sum:.2f} s are outside of them. Without the line"
            f" that held the start of CUDA the ratio is {ratio_without_cold():.1f}.",
        ),
    ]


def _listed(words: list[str]) -> str:
    return ", ".join(words)
