"""The records that an attempt's story is made of: the lines of the agent's journal, and five that only memory has.

Decides their shapes; what each leads to is in stages.py. Must not know processes, files or the socket.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from windfall.agent.credentials import JobUser
from windfall.agent.messages import Exited, Lost, Result, Start


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
    #: Whether the attempt's process only keeps the job, which begins later: that of a container.
    keeper: bool = False
    #: The user that it runs as, where it has one of its own.
    user: JobUser | None = None
    #: Whether its process only stands for what a warm worker does.
    in_worker: bool = False
    #: Whether it is ended before it goes on elsewhere, when no daemon is heard.
    stops_alone: bool = False
    #: What its log may have at most; 0 means no limit.
    log_limit_bytes: int = 0


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
    #: Whether the agent gave it, because no daemon was heard.
    alone: bool = False


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


class Forgotten(Record, frozen=True, tag="F"):
    """The daemon has these results, and nothing of the attempts is left here."""

    tokens: list[str]


class Starting(Record, frozen=True):
    """A spawner has it; in memory alone, where `Spawning` is the spawner's own line."""


class NotStarted(Record, frozen=True):
    """The start failed for a reason that may pass; in memory alone."""


class BegunAnew(Record, frozen=True):
    """Nothing of a staged attempt was begun by the agent before, so that it is brought again; in memory alone."""


class Stopping(Record, frozen=True):
    """The daemon asked it to stop; in memory alone."""


class Begun(Record, frozen=True):
    """The job that a keeper was started for runs; in memory alone, because the keeper's own file has it."""

    at: int
    #: Its first process.
    pid: int | None = None


Written: TypeAlias = (
    Intended | Accepted | Launching | Spawning | Spawned | Hosted | Noticed | Told | Losing | Departed | Ended
)
Known: TypeAlias = Written | Starting | NotStarted | BegunAnew | Stopping | Begun
