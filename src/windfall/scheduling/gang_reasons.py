"""Why a multi-node job waits, as values: how many of its nodes find a place, or could ever find one.

Computes nothing; gang_obstacles.py does. Codes are for programs and do not change; texts may.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from windfall.jobs.ids import EnvironmentName
from windfall.scheduling.wording import number


@dataclass(frozen=True, slots=True)
class GangIncomplete:
    """Some of its nodes find no place now."""

    code: ClassVar[str] = "GANG_INCOMPLETE"
    environment: EnvironmentName
    #: How many nodes would have a place now, and how many there are.
    fitting: int
    size: int

    def text(self) -> str:
        return (
            f"{self.fitting} of its {self.size} nodes find a place in {self.environment} now, which leaves none for the"
            " next one; they start all together or not at all"
        )


@dataclass(frozen=True, slots=True)
class GangTooLarge:
    """An environment will never have places for all nodes at once."""

    code: ClassVar[str] = "GANG_TOO_LARGE"
    environment: EnvironmentName
    fitting: int
    size: int

    def text(self) -> str:
        return (
            f"{self.environment} has places for {self.fitting} of its {self.size} nodes if nothing else runs there,"
            " and they start all together or not at all"
        )


@dataclass(frozen=True, slots=True)
class GangAboveMaxVcpus:
    """All nodes together need more vCPUs than an environment may have."""

    code: ClassVar[str] = "GANG_ABOVE_MAX_VCPUS"
    environment: EnvironmentName
    needed: float
    max_vcpus: float

    def text(self) -> str:
        return (
            f"all its nodes together ask {number(self.needed)} vCPUs, compute environment {self.environment} may have"
            f" {number(self.max_vcpus)} (maxvCpus)"
        )
