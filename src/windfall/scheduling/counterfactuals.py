"""What would let a waiting job start: each change has a stable code and describes itself.

A change named here is true: made alone, the next plan places the job (or, for maxvCpus, launches for it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from windfall.jobs.ids import EnvironmentName
from windfall.scheduling.wording import Resource, amount_of, number


class Counterfactual(Protocol):
    """One thing to change."""

    code: ClassVar[str]

    def text(self) -> str:
        """The change in one sentence, without a full stop."""


def _gets(at_once: bool) -> str:
    return "would start now" if at_once else "would get an instance"


@dataclass(frozen=True, slots=True)
class AskLess:
    """Request at most this much of one resource."""

    code: ClassVar[str] = "ASK_LESS"
    resource: Resource
    at_most: float

    def text(self) -> str:
        if self.resource is Resource.MEMORY:
            return f"would start now with memory <= {number(self.at_most)} MiB"
        if self.at_most == 0:
            return "would start now without GPUs"
        return f"would start now with at most {amount_of(self.resource, self.at_most)}"


@dataclass(frozen=True, slots=True)
class AskAnyGpuModel:
    """Accept GPUs of any model."""

    code: ClassVar[str] = "ASK_ANY_GPU_MODEL"
    #: Whether a place is free; if not, an instance for it is launching or can be launched.
    at_once: bool = True

    def text(self) -> str:
        return f"{_gets(self.at_once)} with GPUs of another model (without windfall:gpu-model)"


@dataclass(frozen=True, slots=True)
class AskLessGpuMemory:
    """Accept GPUs with less memory."""

    code: ClassVar[str] = "ASK_LESS_GPU_MEMORY"
    at_most_mib: int
    #: As for another model.
    at_once: bool = True

    @property
    def at_most_gib(self) -> float:
        """The value as the tag wants it, rounded down."""
        return self.at_most_mib * 10 // 1024 / 10

    def text(self) -> str:
        return f"{_gets(self.at_once)} with windfall:gpu-memory-gib <= {self.at_most_gib:g}"


@dataclass(frozen=True, slots=True)
class AskSmallerShare:
    """Take a smaller part of a GPU."""

    code: ClassVar[str] = "ASK_SMALLER_SHARE"
    at_most: float

    def text(self) -> str:
        return f"would start now with windfall:gpu-share <= {self.at_most:g}"


@dataclass(frozen=True, slots=True)
class SetTimeout:
    """Have a timeout that ends it before the job with a reservation is due."""

    code: ClassVar[str] = "SET_TIMEOUT"
    at_most_s: int

    def text(self) -> str:
        return f"would start now with a timeout <= {number(self.at_most_s)} s"


@dataclass(frozen=True, slots=True)
class UseEnvironment:
    """Use another environment, through a queue of the same priority that has it."""

    code: ClassVar[str] = "USE_ENVIRONMENT"
    environment: EnvironmentName

    def text(self) -> str:
        return f"would start now in compute environment {self.environment}"


@dataclass(frozen=True, slots=True)
class EnableEnvironment:
    """Enable an environment of the queue."""

    code: ClassVar[str] = "ENABLE_ENVIRONMENT"
    environment: EnvironmentName

    def text(self) -> str:
        return f"would start now if compute environment {self.environment} were enabled"


@dataclass(frozen=True, slots=True)
class RaiseMaxVcpus:
    """Let an environment grow by the instance that takes the job."""

    code: ClassVar[str] = "RAISE_MAX_VCPUS"
    environment: EnvironmentName
    at_least: int

    def text(self) -> str:
        return f"would get an instance of {self.environment} with maxvCpus >= {number(self.at_least)}"
