"""What a job asks for and what a place has left: vCPUs, memory and GPUs, with the few sums done on them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of each resource. Parts of a vCPU are quarters, those of a GPU 1/1024ths: floats hold both exactly."""

    vcpus: float
    memory_mib: int
    #: A whole number, or a part of one device. Two types, so that what is read from a record stays a whole number.
    gpus: int | float = 0

    def fits_in(self, other: Resources) -> bool:
        """Whether no part of it is more than the other has."""
        return self.vcpus <= other.vcpus and self.memory_mib <= other.memory_mib and self.gpus <= other.gpus

    def __add__(self, other: Resources) -> Resources:
        return Resources(self.vcpus + other.vcpus, self.memory_mib + other.memory_mib, self.gpus + other.gpus)

    def __sub__(self, other: Resources) -> Resources:
        return Resources(self.vcpus - other.vcpus, self.memory_mib - other.memory_mib, self.gpus - other.gpus)


NOTHING = Resources(0, 0, 0)
