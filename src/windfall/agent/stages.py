"""The stages of an attempt, what leads from one to the next, and what is known of the attempt at each.

Everything that changes an attempt's stage is a record (records.py). The same `Story.add` takes them while the agent
runs and when its successor reads the journal. Must not know processes, files or the socket.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from windfall.agent.messages import AttemptState, AttemptStatus, Exited, Lost, Refused, Result, Start
from windfall.agent.records import (
    Accepted,
    Begun,
    BegunAnew,
    Departed,
    Ended,
    Hosted,
    Intended,
    Known,
    Launching,
    Losing,
    Noticed,
    NotStarted,
    Record,
    Spawned,
    Spawning,
    Starting,
    Stopping,
    Told,
    Written,
)


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
    Begun: "begun",
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
    #: What follows is in memory alone.
    #: The daemon's order, until there is a process.
    order: Start | None = None
    #: Whether it was asked to stop.
    stopping: bool = False
    begun: Begun | None = None
    #: What keeps it apart from other jobs; more may be put in force while it runs.
    isolation: str = ""
    #: When it was last asked to stop, in milliseconds, and how long its saving may take after that; None: as usual.
    hurried: tuple[int, float] | None = None
    #: Whether nobody wants what cannot be stored in that time.
    given_up: bool = False

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
        if isinstance(record, Spawned):
            self.isolation = record.isolation
        self.stage = MOVES[self.stage].get(kind) or max(self.stage, _AT_LEAST.get(kind, self.stage))
        if self.stage is Stage.RUNNING:
            # What was asked while it was being started counts from here on.
            if self.stopping:
                self.stage = Stage.ENDING
            elif self.noticed is not None:
                self.stage = Stage.NOTICED

    @property
    def token(self) -> str:
        """The attempt's name for ever."""
        return self.intended.token

    @property
    def live(self) -> bool:
        """Whether it has no result yet."""
        return self.stage is not Stage.ENDED

    @property
    def unstarted(self) -> bool:
        """Whether no process of it exists or is being started.

        One that an earlier agent was about to start has no order any more: its keeper may be there.
        """
        return self.stage in UNSTARTED and self.order is not None

    @property
    def began_at(self) -> int | None:
        """When the job itself began to run; a keeper is there before it."""
        if self.begun is not None:
            return self.begun.at
        if self.spawned is not None and not self.intended.keeper:
            return self.spawned.at
        return self.departed.started_at if isinstance(self.departed, Exited) else None

    @property
    def asked_to_end(self) -> bool:
        """Whether it was asked to stop, or has notice."""
        return self.stopping or self.noticed is not None

    @property
    def state(self) -> AttemptState:
        """The state in the words of the protocol."""
        if self.result is None:
            return "running" if self.began_at is not None else "starting"
        if isinstance(self.result, Exited):
            return "exited"
        return "refused" if isinstance(self.result, Refused) else "lost"

    def status(self) -> AttemptStatus:
        """Return the attempt's line in the inventory."""
        return AttemptStatus(
            token=self.token,
            task_id=self.intended.task_id,
            state=self.state,
            pid=self.spawned.pid if self.spawned is not None else None,
            started_at=self.began_at,
            isolation=self.isolation,
            prepared_at=self.launching.prepared_at if self.launching is not None else None,
        )

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


class Fate(enum.Enum):
    """What becomes of an attempt when a new agent finds its story."""

    #: It has ended; its result is reported again.
    ENDED = enum.auto()
    #: What it left is stored.
    SAVED = enum.auto()
    #: Its process is adopted, or how that ended is found out.
    ADOPTED = enum.auto()
    #: Nothing of it was begun.
    BEGUN_ANEW = enum.auto()
    #: Nobody knows yet whether it was begun: its process is searched for.
    UNSURE = enum.auto()
    #: The machine has died with it.
    LOST = enum.auto()


def fate_of(story: Story, *, same_boot: bool, damaged: bool, boot_known: bool) -> Fate:
    """Decide what becomes of an attempt; `damaged` says that lines of the journal are missing."""
    if story.stage is Stage.ENDED:
        return Fate.ENDED
    if story.stage is Stage.STAGING_OUT:
        return Fate.SAVED
    if damaged and (story.spawned is None or not boot_known):
        return Fate.UNSURE  # What became of it may be among the lines that are missing.
    if not same_boot:
        # What a machine's own death left behind may be torn: the last committed checkpoint is better.
        return Fate.LOST
    if story.stage is Stage.STAGING_IN or (story.stage < Stage.STARTING and not story.intended.keeper):
        return Fate.BEGUN_ANEW
    return Fate.UNSURE if story.spawned is None else Fate.ADOPTED
