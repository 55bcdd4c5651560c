"""Why a job waits for GPUs of a kind, as values: none of that kind, none that can be shared, or the right ones fenced.

Finds nothing out; obstacles.py does. Codes are for programs and do not change; texts may.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from windfall.jobs.ids import EnvironmentName, InstanceId
from windfall.scheduling.wording import number


@dataclass(frozen=True, slots=True)
class NoSuchGpu:
    """No instance of an environment has the GPUs that were asked for, however long one waits."""

    code: ClassVar[str] = "NO_SUCH_GPU"
    environment: EnvironmentName
    gpus: float
    #: What they must be, to stand behind `GPU`.
    asked: str
    #: What there is, as `2 x A10G (24 GiB)`.
    kinds: tuple[str, ...]
    #: What of that is of the model that was asked for.
    of_model: tuple[str, ...]

    def text(self) -> str:
        there = f"there are {', '.join(self.kinds)}" if self.kinds else "what its GPUs are is not known"
        if self.gpus > 1:
            return f"no instance of {self.environment} has {number(self.gpus)} GPUs{self.asked}: {there}"
        return f"no GPU{self.asked} in {self.environment}: {there}"


@dataclass(frozen=True, slots=True)
class GpusNotShared:
    """It asks for a part of a GPU, and every one there that would fit can only be had whole."""

    code: ClassVar[str] = "GPUS_NOT_SHARED"
    environment: EnvironmentName
    share: float
    #: What it must be, to stand behind `GPU`.
    asked: str
    #: Those that would fit as a whole.
    kinds: tuple[str, ...]

    def text(self) -> str:
        asks = f"asks for {number(self.share)} of a GPU{self.asked}"
        none = f"no {'such ' if self.asked else ''}GPU of {self.environment} can be shared"
        return f"{asks}, and {none} ({', '.join(self.kinds)}); `windfall gpus` says why"


@dataclass(frozen=True, slots=True)
class GpusFenced:
    """The GPUs that it needs are there, and kept from everybody."""

    code: ClassVar[str] = "GPUS_FENCED"
    environment: EnvironmentName
    instance: InstanceId
    #: The id and the reason of each.
    fenced: tuple[tuple[str, str], ...]
    gpus: int

    def text(self) -> str:
        verb = "is" if len(self.fenced) == 1 else "are"
        each = ", ".join(f"{gpu_id} ({reason})" for gpu_id, reason in self.fenced)
        return (
            f"{len(self.fenced)} of {self.gpus} GPUs on {self.instance} of {self.environment} {verb} fenced: {each};"
            f" `windfall gpus unfence {self.fenced[0][0]}` gives it back"
        )
