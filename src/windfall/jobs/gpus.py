"""What a job asks of its GPUs beyond their number: a model, a least memory, a share of one device.

Decides which devices fit; must not know which are free, nor how a share is enforced.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass


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
        if self.model is not None:
            pattern = self.model.lower()
            if not any(letter in pattern for letter in "*?["):
                pattern = f"*{pattern}*"
            if name is None or not fnmatch.fnmatchcase(name.lower(), pattern):
                return False
        return self.memory_mib is None or (memory_mib is not None and memory_mib >= self.memory_mib)
