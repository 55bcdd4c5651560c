"""The agent's memory across its own death: an append-only file of what was intended, started, ended and forgotten.

One os.write per loop round: what was written survives a kill -9 of the agent, because it is in the kernel's page
cache. For power loss: intents and pids need no fsync, since the processes they describe die with the machine (the boot
id is the first line, so nothing of an older boot is adopted). Ends are fdatasynced only while no daemon is connected: a
connected daemon commits the end itself within milliseconds and then says `Forget`, so syncing it here too would only
slow both.

A disk without room is waited for, with all that the agent does: a line that is not written must not be acted upon.

Decides the format, replay and compaction; must not know processes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from windfall.agent.credentials import JobUser
from windfall.agent.messages import Exited, Lost, Result, Start
from windfall.agent.room import Room

_COMPACT_ABOVE_BYTES = 8 << 20


class Record(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Base of the journal's lines."""


class Booted(Record, frozen=True, tag="B"):
    """The boot of the machine that all following lines belong to."""

    boot_id: str


class EpochSeen(Record, frozen=True, tag="H"):
    """The highest daemon epoch that was accepted."""

    epoch: int


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


class Forgotten(Record, frozen=True, tag="F"):
    """The daemon has these results."""

    tokens: list[str]


AnyRecord: TypeAlias = (
    Booted
    | EpochSeen
    | Intended
    | Accepted
    | Launching
    | Spawning
    | Spawned
    | Hosted
    | Noticed
    | Told
    | Losing
    | Departed
    | Ended
    | Forgotten
)


class Story(msgspec.Struct):
    """All that the journal knows of one attempt."""

    intended: Intended
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

    def records(self) -> list[AnyRecord]:
        """Return the lines that tell this story again; of an ended attempt only what is still needed."""
        lines: list[AnyRecord] = [self.intended]
        if self.result is None:
            lines += self._unfinished()
        if self.spawned is not None:
            lines.append(self.spawned)
        if self.result is not None:
            lines.append(Ended(self.result))
        return lines

    def _unfinished(self) -> list[AnyRecord]:
        token = self.intended.token
        lines: list[AnyRecord] = []
        if self.accepted is not None:
            lines.append(Accepted(self.accepted))
        told = (self.launching, self.spawning, self.hosted, self.noticed, self.told)
        lines += [line for line in told if line is not None]
        if self.losing:
            lines.append(Losing(token))
        if self.departed is not None:
            lines.append(Departed(self.departed))
        return lines


class Replay(msgspec.Struct):
    """What a journal says when it is read from the start."""

    boot_id: str = ""
    epoch: int = 0
    stories: dict[str, Story] = {}
    #: Whether lines that were written are missing: what this says is true, but perhaps not all.
    damaged: bool = False


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyRecord)


def read_journal(path: str) -> Replay:
    """Read a journal; a last line torn by a crash is skipped, a missing file is an empty journal."""
    replay = Replay(stories={})
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return replay
    torn = lines.pop()
    for line in filter(None, lines):
        try:
            _apply(replay, _decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError):
            replay.damaged = True
    if (lines or torn) and not replay.boot_id:
        replay.damaged = True  # The first line is missing, which every journal has.
    return replay


def _apply(replay: Replay, record: AnyRecord) -> None:
    if isinstance(record, Intended):
        replay.stories.setdefault(record.token, Story(record))
    elif isinstance(record, Forgotten):
        for token in record.tokens:
            replay.stories.pop(token, None)
    elif isinstance(record, EpochSeen):
        replay.epoch = max(replay.epoch, record.epoch)
    elif isinstance(record, Booted):
        replay.boot_id = record.boot_id
    else:
        story = replay.stories.get(_token(record))
        if story is not None:
            _continue(story, record)


_OfOneAttempt: TypeAlias = (
    Accepted | Launching | Spawning | Spawned | Hosted | Noticed | Told | Losing | Departed | Ended
)


def _token(record: _OfOneAttempt) -> str:
    if isinstance(record, Accepted):
        return record.start.token
    return record.result.token if isinstance(record, Departed | Ended) else record.token


#: Records of which the last one stands, and where a story has it.
_LATEST = {
    Spawned: "spawned",
    Spawning: "spawning",
    Launching: "launching",
    Hosted: "hosted",
    Noticed: "noticed",
    Told: "told",
}


def _continue(story: Story, record: _OfOneAttempt) -> None:
    if isinstance(record, Ended):
        # The first result stands: an attempt is never reported twice with different ends.
        story.result = story.result or record.result
    elif isinstance(record, Departed):
        story.departed = story.departed or record.result
    elif isinstance(record, Accepted):
        story.accepted = record.start
    elif isinstance(record, Losing):
        story.losing = True
    else:
        setattr(story, _LATEST[type(record)], record)


class Journal:
    """Appends records; buffered until `flush`."""

    def __init__(
        self,
        path: str,
        boot_id: str,
        *,
        compact_above_bytes: int = _COMPACT_ABOVE_BYTES,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`pause` is how room on the disk is waited for."""
        self._path = path
        #: Where it lies, and all that must outlive an agent.
        self.directory = os.path.dirname(path)
        self._room = Room(path, pause)
        #: Spawners' threads write too, and a line that waits for room in the middle must not be mixed with another.
        self._lock = threading.Lock()
        self._boot_id = boot_id
        self._waiting: list[AnyRecord] = []
        self._fd = -1
        self._size_bytes = 0
        self._compact_above_bytes = compact_above_bytes
        self._least_bytes = compact_above_bytes

    def add(self, record: AnyRecord) -> None:
        """Keep a record for the next flush."""
        self._waiting.append(record)

    def flush(self, *, sync: bool = False) -> None:
        """Write all waiting records with one call; `sync` makes them survive power loss too."""
        if not self._waiting:
            return
        self._write(self._waiting)
        self._waiting = []
        if sync:
            self.sync()

    def write_now(self, *records: AnyRecord) -> None:
        """Write records past the waiting ones; for the spawner's threads, never while `rewrite` runs."""
        self._write(records)

    def sync(self) -> None:
        """Make all that was written survive power loss."""
        if self._fd >= 0:
            self._room.wait_for(lambda: os.fdatasync(self._fd))

    @property
    def wants_compaction(self) -> bool:
        """Whether the file should be rewritten: it has grown enough, or somebody has removed or emptied it."""
        return self._size_bytes > self._compact_above_bytes or self._is_gone()

    def _is_gone(self) -> bool:
        try:
            found = os.stat(self._path)
        except OSError:
            return os.path.isdir(
                os.path.dirname(self._path)
            )  # Nothing can be written where that is gone too.
        return found.st_size < self._size_bytes or found.st_ino != os.fstat(self._fd).st_ino

    def rewrite(self, epoch: int, stories: Iterable[Story]) -> None:
        """Replace the file by the given stories; also how a journal is opened."""
        fresh = self._path + ".new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        fd = self._room.wait_for(lambda: os.open(fresh, flags, 0o600))
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        self._size_bytes = 0
        records: list[AnyRecord] = [Booted(self._boot_id), EpochSeen(epoch)]
        for story in stories:
            records.extend(story.records())
        self._write(records)
        self.sync()
        self._room.wait_for(lambda: os.rename(fresh, self._path))
        self._compact_above_bytes = max(self._least_bytes, 4 * self._size_bytes)

    def _write(self, records: Sequence[AnyRecord]) -> None:
        content = memoryview(_encoder.encode_lines(records))
        with self._lock:
            while content:
                written = self._room.wait_for(partial(os.write, self._fd, content))
                self._size_bytes += written
                content = content[written:]
