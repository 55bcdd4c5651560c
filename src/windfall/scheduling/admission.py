"""Whether a job may start at its turn, regardless of free capacity: tokens, quotas, reserved shares.

Each gate enforces one kind of limit and counts what it has admitted while a plan is made. Must not know
places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from windfall.jobs.ids import QueueName
from windfall.scheduling.quota_gate import InQueue, QuotaGate
from windfall.scheduling.reasons import Reason
from windfall.scheduling.reservation_gate import ReservationGate
from windfall.scheduling.snapshot import SchedulingClass, Shape, Snapshot, Waiting
from windfall.scheduling.token_gate import TokenGate


class AtGate(InQueue, Protocol):
    """Jobs that ask a gate for admission."""

    @property
    def head(self) -> Waiting:
        """The first of them."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A job checked on its own, outside the pass, as explain does."""

    queue: QueueName
    shape: Shape
    scheduling_class: SchedulingClass
    head: Waiting


class Gate(Protocol):
    """One kind of limit."""

    #: Its name in reports of barred jobs.
    name: str

    def admits(self, asking: AtGate, wanted: int) -> int:
        """How many of `wanted` jobs may start now."""

    def started(self, asking: AtGate, count: int) -> None:
        """Count `count` jobs that got a place."""

    def pledge(self, asking: InQueue, count: int) -> None:
        """Keep from others what `count` jobs will hold once their places are vacated; negative undoes it."""

    def reasons(self, asking: AtGate) -> list[Reason]:
        """Why one more of these jobs may not start now, with the numbers; empty if it may."""


class Admission:
    """All gates; a job has to pass every one."""

    __slots__ = ("gates", "quota")

    def __init__(self, gates: Sequence[Gate]) -> None:
        self.gates = gates
        #: The gate of queues with quota shares. Preempting other jobs can open it.
        self.quota = next((gate for gate in gates if isinstance(gate, QuotaGate)), None)

    @classmethod
    def to(cls, snapshot: Snapshot) -> Admission:
        """The gates that a snapshot needs."""
        return cls(_gates(snapshot))

    def admits(self, asking: AtGate, wanted: int) -> tuple[int, str | None]:
        """How many of `wanted` jobs may start, and which gate bars the next one."""
        barred_by = None
        for gate in self.gates:
            let_in = gate.admits(asking, wanted)
            if let_in < wanted:
                wanted, barred_by = max(0, let_in), gate.name
        return wanted, barred_by

    def started(self, asking: AtGate, count: int) -> None:
        """Count `count` jobs that got a place."""
        for gate in self.gates:
            gate.started(asking, count)

    def pledge(self, asking: InQueue, count: int) -> None:
        """Keep from others what `count` jobs will hold; negative undoes it."""
        for gate in self.gates if count else ():
            gate.pledge(asking, count)

    def reasons(self, asking: AtGate) -> list[Reason]:
        """Why one more of these jobs may not start now, by every gate that bars it; empty if it may."""
        return [reason for gate in self.gates for reason in gate.reasons(asking)]

    def only_quota_bars(self, asking: AtGate) -> bool:
        """Whether a quota is the only limit that bars these jobs."""
        return all(gate is self.quota or not gate.reasons(asking) for gate in self.gates)


def _gates(snapshot: Snapshot) -> list[Gate]:
    """Only the gates with something to limit, so that ordinary queues pay nothing."""
    gates: list[Gate] = []
    if snapshot.tokens:
        gates.append(TokenGate(snapshot))
    if (reservation := ReservationGate.of(snapshot)) is not None:
        gates.append(reservation)
    if snapshot.quotas:
        gates.append(QuotaGate(snapshot))
    return gates
