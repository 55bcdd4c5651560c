"""What a job waits for: whole jobs, the same index of another array, or its own previous child.

Decides from the states of the jobs waited for; must not know how they are found.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from windfall.jobs.ids import JobId

DEPENDENCIES_MAX = 20


class DependencyType(StrEnum):
    """AWS's two kinds; a dependency without one waits for the whole job."""

    SEQUENTIAL = "SEQUENTIAL"
    N_TO_N = "N_TO_N"


@dataclass(frozen=True, slots=True)
class Dependency:
    """One dependsOn entry."""

    job_id: JobId | None = None
    type: DependencyType | None = None
