"""Why a GPU is not used well: the causes, and a finding with its evidence. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """What a job's time on its GPUs is bound by."""

    NETWORK = "network"
    DISK = "disk"
    CPU = "cpu-preprocessing"
    LAUNCH = "launch-bound"
    SYNCHRONISATION = "synchronisation"
    PCIE = "pcie-transfer"
    MEMORY = "memory-bound"
    REQUESTS = "waiting-for-requests"
    IDLE = "held-but-idle"
    COMPUTE = "well-used"
    START_UP = "start-up"


MEANING: dict[Cause, str] = {
    Cause.NETWORK: "the GPU waits for data that comes over the network",
    Cause.DISK: "the GPU waits for data that comes from the disk",
    Cause.CPU: "the GPU waits for the CPU, which prepares the data",
    Cause.LAUNCH: "its kernels are so small that launching them takes longer than running them",
    Cause.SYNCHRONISATION: "host and GPU, or GPUs among themselves, wait for one another after each piece of work",
    Cause.PCIE: "most of the time goes into copies between host and GPU",
    Cause.MEMORY: "the GPU is busy, and its memory's bandwidth is the limit",
    Cause.REQUESTS: "there is not enough work: the GPU waits for requests, and so does the host",
    Cause.IDLE: "GPUs are held and not used",
    Cause.COMPUTE: "the GPU is used well, and its arithmetic is the limit",
    Cause.START_UP: "most of the time went by before the first work on the GPU",
}


@dataclass(frozen=True, slots=True)
class Gap:
    """What is not known, and how it would be."""

    what: str
    how: str


@dataclass(frozen=True, slots=True)
class Branch:
    """Another cause that the evidence does not exclude, and what would decide it."""

    cause: Cause
    condition: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known about the use of an attempt's GPUs."""

    #: None when the evidence does not carry any; the branches then say what it may be.
    cause: Cause | None
    #: Between 0 and 1.
    confidence: float
    #: Sentences with numbers.
    evidence: tuple[str, ...]
    missing: tuple[Gap, ...] = ()
    branches: tuple[Branch, ...] = ()
    #: The part of their time in which its GPUs were busy, all of them together; None when nothing was measured.
    busy: float | None = None
    #: GPUs that never worked, of how many.
    unused_gpus: int = 0
    gpus: int = 0
