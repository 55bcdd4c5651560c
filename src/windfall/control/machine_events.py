"""What engines with machines of their own report about a machine as a whole, beside its instances and attempts.

Values only; reporting.py decides what follows from them.
"""

from __future__ import annotations

from dataclasses import dataclass

from windfall.jobs.ids import MachineId


@dataclass(frozen=True, slots=True)
class StandingChanged:
    """Why nothing new is placed on a machine has changed; None means that it takes attempts again."""

    machine: MachineId
    closed: str | None


@dataclass(frozen=True, slots=True)
class MachineRemoved:
    """A machine does not belong to this daemon any more; its instances were reported lost before."""

    machine: MachineId


MachineReport = StandingChanged | MachineRemoved
