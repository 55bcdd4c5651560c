"""The agent's memory across its own death: an append-only file of what was intended, started, ended and
forgotten.

One os.write per loop round: what was written survives a kill -9 of the agent, because it is in the
kernel's page cache. For power loss: intents and pids need no fsync, since the processes they describe die
with the machine (the boot id is the first line, so nothing of an older boot is adopted). Ends are
fdatasynced only while no daemon is connected: a connected daemon commits the end itself within
milliseconds and then says `Forget`, so syncing it here too would only slow both.

Decides the format, replay and compaction; must not know processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from windfall.agent.messages import Result

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


class Ended(Record, frozen=True, tag="E"):
    """What will be told the daemon, now and at every connection until it is forgotten."""

    result: Result


class Forgotten(Record, frozen=True, tag="F"):
    """The daemon has these results."""

    tokens: list[str]


AnyRecord: TypeAlias = Booted | EpochSeen | Intended | Spawned | Ended | Forgotten


class Story(msgspec.Struct):
    """All that the journal knows of one attempt."""

    intended: Intended
    spawned: Spawned | None = None
    result: Result | None = None

    def records(self) -> list[AnyRecord]:
        """Return the lines that tell this story again."""
        lines: list[AnyRecord] = [self.intended]
        if self.spawned is not None:
            lines.append(self.spawned)
        if self.result is not None:
            lines.append(Ended(self.result))
        return lines


class Replay(msgspec.Struct):
    """What a journal says when it is read from the start."""

    boot_id: str = ""
    epoch: int = 0
    stories: dict[str, Story] = {}


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyRecord)


def read_journal(path: str) -> Replay:
    """Read a journal; a line torn by a crash is skipped, a missing file is an empty journal."""
    replay = Replay(stories={})
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return replay
    for line in lines:
        if not line:
            continue
        try:
            _apply(replay, _decoder.decode(line))
        except msgspec.DecodeError:
            continue
    return replay


def _apply(replay: Replay, record: AnyRecord) -> None:
    stories = replay.stories
    if isinstance(record, Intended):
        stories.setdefault(record.token, Story(record))
    elif isinstance(record, Spawned):
        if record.token in stories:
            stories[record.token].spawned = record
    elif isinstance(record, Ended):
        story = stories.get(record.result.token)
        # The first result stands: an attempt is never reported twice with different ends.
        if story is not None and story.result is None:
            story.result = record.result
    elif isinstance(record, Forgotten):
        for token in record.tokens:
            stories.pop(token, None)
    elif isinstance(record, EpochSeen):
        replay.epoch = max(replay.epoch, record.epoch)
    else:
        replay.boot_id = record.boot_id


class Journal:
    """Appends records; buffered until `flush`."""

    def __init__(self, path: str, boot_id: str, *, compact_above_bytes: int = _COMPACT_ABOVE_BYTES) -> None:
        self._path = path
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
            os.fdatasync(self._fd)

    def write_now(self, record: AnyRecord) -> None:
        """Write one record past the waiting ones; for the spawner's threads, never while `rewrite` runs."""
        self._write([record])

    def sync(self) -> None:
        """Make all that was written survive power loss."""
        if self._fd >= 0:
            os.fdatasync(self._fd)

    @property
    def wants_compaction(self) -> bool:
        """Whether the file has grown enough to be worth rewriting."""
        return self._size_bytes > self._compact_above_bytes

    def rewrite(self, epoch: int, stories: Iterable[Story]) -> None:
        """Replace the file by the given stories; also how a journal is opened."""
        fresh = self._path + ".new"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        self._size_bytes = 0
        records: list[AnyRecord] = [Booted(self._boot_id), EpochSeen(epoch)]
        for story in stories:
            records.extend(story.records())
        self._write(records)
        os.fdatasync(fd)
        os.rename(fresh, self._path)
        self._compact_above_bytes = max(self._least_bytes, 4 * self._size_bytes)

    def _write(self, records: list[AnyRecord]) -> None:
        content = memoryview(_encoder.encode_lines(records))
        self._size_bytes += len(content)
        while content:
            content = content[os.write(self._fd, content) :]
