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

import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

import msgspec

from windfall.agent.records import Accepted, Departed, Ended, Forgotten, Intended, Record, Written
from windfall.agent.speech import say
from windfall.agent.stages import Story

_COMPACT_ABOVE_BYTES = 8 << 20


class Booted(Record, frozen=True, tag="B"):
    """The boot of the machine that all following lines belong to."""

    boot_id: str


class EpochSeen(Record, frozen=True, tag="H"):
    """The highest daemon epoch that was accepted."""

    epoch: int


AnyRecord: TypeAlias = Booted | EpochSeen | Forgotten | Written


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
    if isinstance(record, EpochSeen):
        replay.epoch = max(replay.epoch, record.epoch)
    elif isinstance(record, Booted):
        replay.boot_id = record.boot_id
    else:
        tell_on(replay.stories, record)


def tell_on(stories: dict[str, Story], record: Written | Forgotten) -> None:
    """Add a line of the journal to what the lines before it told."""
    if isinstance(record, Intended):
        stories.setdefault(record.token, Story(record))
    elif isinstance(record, Forgotten):
        for token in record.tokens:
            stories.pop(token, None)
    else:
        story = stories.get(_token(record))
        if story is not None:
            story.add(record)


def _token(record: Written) -> str:
    if isinstance(record, Accepted):
        return record.start.token
    return record.result.token if isinstance(record, Departed | Ended) else record.token


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

    def note(self, story: Story, record: Written) -> None:
        """Add a record to an attempt's story, and keep it for the next flush."""
        story.add(record)
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


T = TypeVar("T")

#: What goes away when somebody makes room.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_LOOK_EVERY_S = 0.25


class Room:
    """Room on the disk for one file: what must be written is tried again until there is some, and that is said once."""

    def __init__(self, path: str, pause: Callable[[float], None]) -> None:
        self._path = path
        self._pause = pause

    def wait_for(self, act: Callable[[], T]) -> T:
        """Do it as soon as there is room; any other fault is raised."""
        waited = False
        while True:
            try:
                done = act()
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                if not waited:
                    waited = True
                    say(
                        f"{self._path} cannot be written: {error.strerror}; everything waits until there is room"
                    )
                self._pause(_LOOK_EVERY_S)
            else:
                if waited:
                    say(f"{self._path} can be written again")
                return done
