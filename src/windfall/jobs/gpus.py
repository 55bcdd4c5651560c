"""What a job asks of its GPUs beyond their number: a model, a least memory, a share of one device.

Decides which devices fit; must not know which are free, nor how a share is enforced.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from functools import lru_cache

#: Parts of a GPU are counted in these, which floats add up exactly.
_PARTS = 1024


@dataclass(frozen=True, slots=True)
class GpuWish:
    """None asks for nothing of that kind."""

    #: A glob over the device's name without case, such as `*1g.10gb`; a plain word may stand anywhere in it.
    model: str | None = None
    #: Of each device.
    memory_mib: int | None = None
    #: A part of one device, above 0 and below 1; such a job holds that much of a GPU instead of a whole one.
    share: float | None = None

    def admits(self, name: str | None, memory_mib: int | None) -> bool:
        """Whether a device of this name and memory is what was asked for; what is not known does not fit."""
        if self.model is not None and (name is None or not _named(self.model, name)):
            return False
        return self.memory_mib is None or (memory_mib is not None and memory_mib >= self.memory_mib)

    def words(self) -> str:
        """What it asks for, to stand behind `GPU`: ` of model H100 with at least 40 GiB`; empty for a share alone."""
        model = "" if self.model is None else f" of model {self.model}"
        if self.memory_mib is None:
            return model
        # Just above the memory of a device that was too small; rounded, it would seem to be that very one.
        exactly = gib(self.memory_mib) if self.memory_mib % 512 == 0 else f"{self.memory_mib:,} MiB"
        return f"{model} with at least {exactly}"


@lru_cache(maxsize=4096)  # asked for every device of every machine, again and again
def _named(model: str, name: str) -> bool:
    pattern = model.lower()
    if not any(letter in pattern for letter in "*?["):
        pattern = f"*{pattern}*"
    return fnmatch.fnmatchcase(name.lower(), pattern)


def held_part(share: float) -> float:
    """What a share counts for, never more than it says: shares that add up to one device or less always fit on it."""
    return max(1, int(share * _PARTS)) / _PARTS


def gib(memory_mib: int) -> str:
    """A GPU's memory as people say it: `24 GiB`, `139.8 GiB`."""
    return f"{round(memory_mib / 1024, 1):g} GiB"
