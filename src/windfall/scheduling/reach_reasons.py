"""Why a job cannot run on machines that do not share the daemon's disk, as values like those of reasons.py.

Computes nothing. Says what to change, because only a person can: the job, or where objects are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from windfall.jobs.ids import EnvironmentName
from windfall.jobs.storage import FILES


@dataclass(frozen=True, slots=True)
class OutOfReach:
    """Machines that it has for the job do not reach the storage that the job names."""

    code: ClassVar[str] = "STORAGE_OUT_OF_REACH"
    environment: EnvironmentName
    #: What they lack, of the words of jobs/storage.py.
    lacking: tuple[str, ...]
    #: Whether other machines of it do reach that storage, and are too small for the job.
    others_too_small: bool = False

    def text(self) -> str:
        machines = f"the machines of {self.environment}"
        if self.others_too_small:
            machines += " that are large enough for it"
        if FILES in self.lacking:
            return (
                f"needs files of the daemon's host, which {machines} do not reach; submit it again without a directory"
                " of this host (windfall run --clean or --git) and, if it stores (--checkpoint, --keep) or reads"
                " objects, with these in S3 (windfall up --s3 --s3-listen ADDRESS, or --objects s3://BUCKET), or to a"
                " queue of this host"
            )
        return (
            f"needs S3, which {machines} do not reach at the daemon's loopback address; start"
            " the daemon with --s3-listen ADDRESS, or with an S3 that they reach"
        )


@dataclass(frozen=True, slots=True)
class OthersOutOfReach:
    """It waits for machines that reach its storage, while others, large enough for it, do not reach that storage."""

    code: ClassVar[str] = "OTHERS_OUT_OF_REACH"
    environment: EnvironmentName
    lacking: tuple[str, ...]

    def text(self) -> str:
        others = f"other machines of {self.environment} are large enough for it, but do not reach"
        if FILES in self.lacking:
            without = "submitted without these (windfall run --clean or --git) it may run there"
            return f"{others} files of the daemon's host, which it needs; {without}"
        return f"{others} S3 at the daemon's loopback address; with windfall up --s3-listen ADDRESS it may run there"
