"""The stages of an attempt, what leads from one to the next, and what is known of the attempt at each.

Everything that changes an attempt's stage is a record: the journal's lines, and four that only this agent's memory
has. The same `Story.add` takes them while the agent runs and when its successor reads the journal. Must not know
processes, files or the socket.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from windfall.agent.credentials import JobUser
from windfall.agent.messages import Exited, Lost, Result, Start


class Stage(enum.IntEnum):
    """How far an attempt has come; it only goes on, except where a start is made again."""

    #: It is in the journal. A process or container waits here to be started.
    ACCEPTED = 1
    #: A courier brings what it needs.
    STAGING_IN = 2
    #: Everything is there; it waits to be started.
    READY = 3
    #: Its process may exist, and nobody knows its pid yet.
    STARTING = 4
    #: Its process exists: the job's own, a container's keeper, or the one that stands for a worker's child.
    RUNNING = 5
    #: It has notice: its place is taken away at a deadline.
    NOTICED = 6
    #: It was asked to stop. The journal does not have this; the daemon asks again.
    ENDING = 7
    #: Its process is gone; a courier stores what it left.
    STAGING_OUT = 8
    #: Its result is reported until the daemon says that it has it.
    ENDED = 9


#: No process of it exists or is being started.
UNSTARTED = frozenset({Stage.ACCEPTED, Stage.STAGING_IN, Stage.READY})
#: Its process exists.
RUNS = frozenset({Stage.RUNNING, Stage.NOTICED, Stage.ENDING})
#: Its process has ended, or will never start.
GONE = frozenset({Stage.STAGING_OUT, Stage.ENDED})


class Record(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Base of what is written down, one line each."""


class Intended(Record, frozen=True, tag="I"):
    """An attempt is about to be started."""

    token: str
    task_id: str
    log_path: str
    #: Directories that belong to the attempt alone and go away at Forget.
    private_directories: list[str]
    memory_mib: int
    vcpus: float
    sandboxed: bool
    at: int
    gpu_ids: list[str] = []
    #: Whether the attempt's process is the keeper of a container.
    container: bool = False
    #: The user that it runs as, where it has one of its own.
    user: JobUser | None = None


class Spawning(Record, frozen=True, tag="P"):
    """The attempt's process is being started this very moment; before this line none exists."""

    token: str
    #: The time on the clock of a process's start.
    ticks: int


class Spawned(Record, frozen=True, tag="S"):
    """The attempt's process exists.

    It started within `ticks_span` ticks from `start_ticks` on: the clock is read around the start, because reading the
    start time itself from /proc would cost a tenth of the whole start.
    """

    token: str
    pid: int
    start_ticks: int
    at: int
    isolation: str
    ticks_span: int = 0

    def started_at_ticks(self, ticks: int) -> bool:
        """Whether a process of this pid that started then is this one."""
        return self.start_ticks <= ticks <= self.start_ticks + self.ticks_span


class Accepted(Record, frozen=True, tag="A"):
    """A staged attempt in full: bringing, watching and saving are begun anew from this by the next agent."""

    start: Start


class Launching(Record, frozen=True, tag="G"):
    """All that a staged attempt needs is there; from here on a process of it may exist."""

    token: str
    #: Where its metadata is served.
    port: int
    prepared_at: int


class Hosted(Record, frozen=True, tag="W"):
    """The attempt's work is done in a warm worker, below this process (its keeper)."""

    token: str
    pid: int
    start_ticks: int
    sandboxed: bool
    #: The worker's own name where it is a container.
    container: str = ""


class Noticed(Record, frozen=True, tag="N"):
    """The attempt has notice; a later line may only move the deadline forward."""

    token: str
    at: int
    deadline_at: int
    words: str


class Told(Record, frozen=True, tag="T"):
    """These processes have had SIGTERM for the notice; none gets it twice, whatever it does with it."""

    token: str
    #: Pid and start time of each, all so far.
    processes: list[tuple[int, int]]


class Losing(Record, frozen=True, tag="L"):
    """The attempt's host counts as gone: nothing that it left may be saved."""

    token: str


class Departed(Record, frozen=True, tag="D"):
    """The process of a staged attempt has gone; what it left must be saved before this is reported."""

    result: Exited | Lost


class Ended(Record, frozen=True, tag="E"):
    """What will be told the daemon, now and at every connection until it is forgotten."""

    result: Result


class Starting(Record, frozen=True):
    """A spawner has it; in memory alone, where `Spawning` is the spawner's own line."""


class NotStarted(Record, frozen=True):
    """The start failed for a reason that may pass; in memory alone."""


class BegunAnew(Record, frozen=True):
    """Nothing of a staged attempt was begun by the agent before, so that it is brought again; in memory alone."""


class Stopping(Record, frozen=True):
    """The daemon asked it to stop; in memory alone."""


Written: TypeAlias = (
    Intended | Accepted | Launching | Spawning | Spawned | Hosted | Noticed | Told | Losing | Departed | Ended
)
Known: TypeAlias = Written | Starting | NotStarted | BegunAnew | Stopping

#: Which record leads from each stage to which. Any other record adds to what is known and leaves the stage.
MOVES: Mapping[Stage, Mapping[type[Record], Stage]] = {
    Stage.ACCEPTED: {
        Accepted: Stage.STAGING_IN,
        Starting: Stage.STARTING,
        Spawning: Stage.STARTING,
        Ended: Stage.ENDED,
    },
    Stage.STAGING_IN: {Launching: Stage.READY, Ended: Stage.ENDED},
    Stage.READY: {
        BegunAnew: Stage.STAGING_IN,
        Starting: Stage.STARTING,
        Spawning: Stage.STARTING,
        Ended: Stage.ENDED,
    },
    Stage.STARTING: {
        BegunAnew: Stage.STAGING_IN,
        NotStarted: Stage.READY,
        Spawned: Stage.RUNNING,
        Departed: Stage.STAGING_OUT,
        Ended: Stage.ENDED,
    },
    Stage.RUNNING: {
        Noticed: Stage.NOTICED,
        Stopping: Stage.ENDING,
        Departed: Stage.STAGING_OUT,
        Ended: Stage.ENDED,
    },
    Stage.NOTICED: {Stopping: Stage.ENDING, Departed: Stage.STAGING_OUT, Ended: Stage.ENDED},
    Stage.ENDING: {Departed: Stage.STAGING_OUT, Ended: Stage.ENDED},
    Stage.STAGING_OUT: {Ended: Stage.ENDED},
    Stage.ENDED: {},
}
#: Where a line leads when the ones before it are lost: an attempt with a pid runs, whatever else is known of it.
_AT_LEAST: Mapping[type[Record], Stage] = {
    Accepted: Stage.STAGING_IN,
    Launching: Stage.READY,
    Spawning: Stage.STARTING,
    Spawned: Stage.RUNNING,
    Departed: Stage.STAGING_OUT,
}
#: Records of which the last one stands, and where a story has it.
_LATEST: Mapping[type[Record], str] = {
    Spawned: "spawned",
    Spawning: "spawning",
    Launching: "launching",
    Hosted: "hosted",
    Noticed: "noticed",
    Told: "told",
}


class Story(msgspec.Struct):
    """One attempt: its stage, and all that is known of it."""

    intended: Intended
    stage: Stage = Stage.ACCEPTED
    spawning: Spawning | None = None
    spawned: Spawned | None = None
    result: Result | None = None
    #: These belong to staged attempts, except that any attempt may have notice and be told.
    accepted: Start | None = None
    launching: Launching | None = None
    noticed: Noticed | None = None
    told: Told | None = None
    losing: bool = False
    departed: Exited | Lost | None = None
    #: For a child in a warm worker.
    hosted: Hosted | None = None
    #: Whether it was asked to stop.
    stopping: bool = False

    def add(self, record: Known) -> None:
        """Learn something, and go to the stage that it leads to."""
        kind = type(record)
        name = _LATEST.get(kind)
        if name is not None:
            setattr(self, name, record)
        elif isinstance(record, Ended):
            # The first result stands: an attempt is never reported twice with different ends.
            self.result = self.result or record.result
        elif isinstance(record, Departed):
            self.departed = self.departed or record.result
        elif isinstance(record, Accepted):
            self.accepted = record.start
        elif isinstance(record, Losing):
            self.losing = True
        elif isinstance(record, Stopping):
            self.stopping = True
        elif isinstance(record, BegunAnew):
            self.launching = self.spawning = None
        self.stage = MOVES[self.stage].get(kind) or max(self.stage, _AT_LEAST.get(kind, self.stage))
        if self.stage is Stage.RUNNING:
            # What was asked while it was being started counts from here on.
            if self.stopping:
                self.stage = Stage.ENDING
            elif self.noticed is not None:
                self.stage = Stage.NOTICED

    def records(self) -> list[Written]:
        """Return the lines that tell this story again; of an ended attempt only what is still needed."""
        lines: list[Written] = [self.intended]
        if self.result is None:
            lines += self._unfinished()
        if self.spawned is not None:
            lines.append(self.spawned)
        if self.result is not None:
            lines.append(Ended(self.result))
        return lines

    def _unfinished(self) -> list[Written]:
        token = self.intended.token
        lines: list[Written] = []
        if self.accepted is not None:
            lines.append(Accepted(self.accepted))
        told = (self.launching, self.spawning, self.hosted, self.noticed, self.told)
        lines += [line for line in told if line is not None]
        if self.losing:
            lines.append(Losing(token))
        if self.departed is not None:
            lines.append(Departed(self.departed))
        return lines
