"""Why an attempt failed, as far as its exit code, the end of its log and its samples tell.

Values only; advisor/failures.py reads the evidence, and says what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FailureCause(StrEnum):
    """What went wrong, in a word that stays the same."""

    GPU_MEMORY = "gpu-out-of-memory"
    HOST_MEMORY = "host-out-of-memory"
    SHARED_MEMORY = "shared-memory-too-small"
    DRIVER_MISMATCH = "driver-mismatch"
    GPU_NOT_VISIBLE = "gpu-not-visible"
    GPU_FAULT = "gpu-fault"
    NCCL = "nccl"
    MISSING_MODULE = "missing-module"
    MISSING_SCRIPT = "missing-script"
    DISK_FULL = "disk-full"
    KILLED_BY_TIME = "killed-by-time"
    NOT_STARTED = "not-started"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One cause and the line that shows it."""

    cause: FailureCause
    #: A line of the log, or a fact about the end; at most 300 characters.
    evidence: str
