"""What can happen to an agent's attempts, and what can be done about it: the words of its reactor.

Events are the daemon's messages (`Stop`, `Interrupt`, `Forget`, `Shutdown`), the record `Spawned`, and the ones below.
Must not know how an event comes about, nor how an action is carried out.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from windfall.agent.messages import Exited, Forget, Interrupt, Lost, Message, Shutdown, Stop
from windfall.agent.records import Spawned
from windfall.agent.stages import Story


class Event(msgspec.Struct, frozen=True, gc=False):
    """Base of what the agent itself finds out about one attempt."""

    token: str


class Ordered(Event, frozen=True):
    """The daemon wants an attempt started; `story` is what it would be here."""

    story: Story


class Brought(Event, frozen=True):
    """Everything that a staged attempt needs is there."""

    #: Where its metadata is served.
    port: int
    at: int


class TakenByLauncher(Event, frozen=True):
    """From here on a process of it may exist."""


class Delayed(Event, frozen=True):
    """It could not be started for a reason that may pass."""


class Failed(Event, frozen=True):
    """It cannot be started; nothing of it runs."""

    reason: str
    at: int


class Began(Event, frozen=True):
    """The job itself runs, which its keeper was started for."""

    at: int
    #: Its first process.
    pid: int | None


class Spoiled(Event, frozen=True):
    """It cannot come to a good end: what it needs cannot be brought any more."""


class Deserted(Event, frozen=True):
    """No daemon has been heard for so long that it must end before it goes on elsewhere."""

    deadline_at: int


class Left(Event, frozen=True):
    """No process of it runs any more."""

    result: Exited | Lost


class Saved(Event, frozen=True):
    """What it left is stored, or never will be."""

    result: Exited | Lost


class LetGo(Event, frozen=True):
    """No courier has its files in hand any more."""


class Removed(msgspec.Struct, frozen=True, gc=False):
    """The directories of forgotten attempts are gone."""

    tokens: list[str]


AgentEvent: TypeAlias = (
    Ordered
    | Stop
    | Interrupt
    | Forget
    | Shutdown
    | Brought
    | TakenByLauncher
    | Delayed
    | Failed
    | Spawned
    | Began
    | Spoiled
    | Deserted
    | Left
    | Saved
    | LetGo
    | Removed
)


class Tell(msgspec.Struct, frozen=True, gc=False):
    """Say this to the daemon; it waits in memory until the records are written."""

    message: Message


class Action(msgspec.Struct, frozen=True, gc=False):
    """Base of what is to be done about one attempt."""

    token: str


class StageIn(Action, frozen=True):
    """Make its directories and bring what it needs."""


class Launch(Action, frozen=True):
    """Start its process as soon as there is room."""


class Withdraw(Action, frozen=True):
    """Start it no more."""


class EndWithin(Action, frozen=True):
    """Ask its processes to end, and kill what is left after the grace."""

    grace_s: float


class GiveNotice(Action, frozen=True):
    """Tell the job that its place is taken away, and follow the plan of its notice."""


class Watch(Action, frozen=True):
    """It runs: keep it within its limits."""


class PutAway(Action, frozen=True):
    """Let go of what only a running process needs."""

    at: int


class StageOut(Action, frozen=True):
    """Have stored what it left, by the deadline that its story gives; said again when that changes."""


class Drop(Action, frozen=True):
    """Nothing more is moved for it."""


class Remove(msgspec.Struct, frozen=True, gc=False):
    """Remove all that forgotten attempts have on the disk."""

    tokens: list[str]


AgentAction: TypeAlias = (
    Tell | StageIn | Launch | Withdraw | EndWithin | GiveNotice | Watch | PutAway | StageOut | Drop | Remove
)
