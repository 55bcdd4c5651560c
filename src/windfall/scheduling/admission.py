"""Whether a job may start when its turn has come, whatever room there is: tokens, quotas, what is kept for others.

Each gate knows one kind of limit and counts what it has let through while a plan is made. Must not know places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from windfall.jobs.ids import QueueName
from windfall.scheduling.quota_gate import InQueue, QuotaGate
from windfall.scheduling.reasons import Reason
from windfall.scheduling.reservation_gate import ReservationGate
from windfall.scheduling.snapshot import Shape, Snapshot, Standing, Waiting
from windfall.scheduling.token_gate import TokenGate


class AtGate(InQueue, Protocol):
    """Those who ask to be let through."""

    @property
    def head(self) -> Waiting:
        """The first of them."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Somebody who asks on his own, outside the pass: what explain looks at."""

    queue: QueueName
    shape: Shape
    standing: Standing
    head: Waiting


class Gate(Protocol):
    """One kind of limit."""

    #: What it is called where it bars jobs.
    name: str

    def admits(self, asking: AtGate, wanted: int) -> int:
        """How many of so many jobs it lets start now."""

    def started(self, asking: AtGate, count: int) -> None:
        """Note that so many have got a place."""

    def pledge(self, asking: InQueue, count: int) -> None:
        """Keep what so many jobs will hold from others, who leave them a place; below 0, no more."""

    def reasons(self, asking: AtGate) -> list[Reason]:
        """Why it would not let one more of them start now, with its numbers; none if it would."""


class Admission:
    """All gates; a job has to pass every one."""

    __slots__ = ("gates", "quota")

    def __init__(self, gates: Sequence[Gate]) -> None:
        self.gates = gates
        #: The one of queues with quota shares, which can also be opened by asking others to leave.
        self.quota = next((gate for gate in gates if isinstance(gate, QuotaGate)), None)

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

    def pledge(self, asking: InQueue, count: int) -> None:
        """Keep from others what so many will hold; below 0, no more."""
        for gate in self.gates if count else ():
            gate.pledge(asking, count)

    def reasons(self, asking: AtGate) -> list[Reason]:
        """Why one more of them may not start now, by every gate that bars it; none if it may."""
        return [reason for gate in self.gates for reason in gate.reasons(asking)]

    def only_quota_bars(self, asking: AtGate) -> bool:
        """Whether nothing but a quota keeps them from starting."""
        return all(gate is self.quota or not gate.reasons(asking) for gate in self.gates)


def _gates(snapshot: Snapshot) -> list[Gate]:
    """Only those that have anything to watch, so that ordinary queues pay nothing."""
    gates: list[Gate] = []
    if snapshot.tokens:
        gates.append(TokenGate(snapshot))
    if (reservation := ReservationGate.of(snapshot)) is not None:
        gates.append(reservation)
    if snapshot.quotas:
        gates.append(QuotaGate(snapshot))
    return gates
