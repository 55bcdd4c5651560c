"""Whether a job may start when its turn has come, whatever room there is: tokens, quotas, what is kept for others.

Each gate knows one kind of limit and counts what it has let through while a plan is made. Must not know places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from windfall.jobs.ids import QueueName
from windfall.scheduling.snapshot import Shape, Snapshot, Standing


class AtGate(Protocol):
    """Those who ask to be let through: jobs of one queue, shape and standing."""

    @property
    def queue(self) -> QueueName:
        """The queue that they wait in."""

    @property
    def shape(self) -> Shape:
        """What each of them needs."""

    @property
    def standing(self) -> Standing:
        """What else decides about them."""


class Gate(Protocol):
    """One kind of limit."""

    #: What it is called where it bars jobs.
    name: str

    def admits(self, asking: AtGate, wanted: int) -> int:
        """How many of so many jobs it lets start now."""

    def started(self, asking: AtGate, count: int) -> None:
        """Note that so many have got a place."""


class Admission:
    """All gates; a job has to pass every one."""

    __slots__ = ("gates",)

    def __init__(self, gates: Sequence[Gate]) -> None:
        self.gates = gates

    @classmethod
    def to(cls, snapshot: Snapshot) -> Admission:
        """The gates that a moment has."""
        return cls(_gates(snapshot))

    def admits(self, asking: AtGate, wanted: int) -> tuple[int, str | None]:
        """How many of so many jobs may start, and which gate bars the next one."""
        barred_by = None
        for gate in self.gates:
            let_in = gate.admits(asking, wanted)
            if let_in < wanted:
                wanted, barred_by = max(0, let_in), gate.name
        return wanted, barred_by

    def started(self, asking: AtGate, count: int) -> None:
        """Note that so many have got a place."""
        for gate in self.gates:
            gate.started(asking, count)


def _gates(snapshot: Snapshot) -> list[Gate]:
    """Only those that have anything to watch, so that ordinary queues pay nothing."""
    del snapshot
    return []
