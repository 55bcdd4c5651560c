"""Copies of logs and samples for the daemon, from a machine that does not share its disk.

Decides which bytes are sent when, and that the end of an attempt is told only behind the last byte of its log. A file
is sent by offsets from where the daemon says that it has it, with a bounded amount under way, so that a connection that
breaks costs nothing and a log that is faster than the line lags. What a log has lost to its limit is skipped. This
machine's own copy is removed when the daemon has the attempt's end on disk (`Forget`), and not before. Reads files;
must not know sockets.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from windfall.advisor import sample_file
from windfall.agent.attempt import Attempt
from windfall.agent.attempt_files import attempt_files_in, samples_path, times_path
from windfall.agent.log_limit import hole_from
from windfall.agent.messages import AttemptStatus, Exited, Message
from windfall.agent.mirror_messages import LogHave, LogPiece, MirroredKind
from windfall.agent.settings import AgentSettings

#: Bytes of a file in one piece, and of all files under way at once.
PIECE_BYTES = 64 << 10
WINDOW_BYTES = 1 << 20
#: How often files are looked at, in seconds.
_LOOK_S = 0.25
#: In place of a task id, for what was measured of the machine.
_MACHINE = "machine"


@dataclass(slots=True)
class _Copy:
    """One file and how much of it the daemon has."""

    task_id: str
    kind: MirroredKind
    path: str
    #: What was sent, and what the daemon says it has; None until it has said so over this connection.
    sent: int = 0
    had: int | None = None
    is_asked: bool = False
    #: Not before this time on the monotonic clock.
    wait_until: float = 0.0
    #: Of a file that is written anew now and then: which one was sent.
    number: int = -1
    written_at: int = -1

    @property
    def under_way(self) -> int:
        return max(0, self.sent - self.had) if self.had is not None and self.is_grown else 0

    @property
    def is_grown(self) -> bool:
        """Whether it only ever grows at its end."""
        return self.kind in ("log", "times")


class Mirror:
    """All files that this agent owes the daemon; does nothing where the daemon reads them itself."""

    def __init__(
        self,
        settings: AgentSettings,
        attempts: Mapping[str, Attempt],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_wanted = settings.mirror
        self._directory = settings.logs_directory
        self._attempts = attempts
        self._clock = clock
        self._copies: dict[tuple[str, str], _Copy] = {}
        #: Attempts that were ordered over this connection: the daemon has nothing of them yet.
        self._fresh: set[str] = set()
        #: Ends that wait for the last byte, by token.
        self._held: dict[str, Exited] = {}
        self._look_at = 0.0
        self._is_connected = False
        self._machine_samples = settings.machine_samples

    # --- what the loop tells ---------------------------------------------------------------------------

    def begin_connection(
        self, statuses: Sequence[AttemptStatus], results: Sequence[Message]
    ) -> tuple[list[AttemptStatus], list[Message]]:
        """Start anew with a daemon; the answer is what to tell it: an end whose log it may lack is not told yet."""
        if not self._is_wanted:
            return list(statuses), list(results)
        self._copies.clear()
        self._fresh.clear()
        self._held.clear()
        self._is_connected, self._look_at = True, 0.0
        reports = self._hold(results)
        waiting = [
            msgspec.structs.replace(status, state="running") if status.token in self._held else status
            for status in statuses
        ]
        return waiting, reports

    def note_start(self, token: str) -> None:
        """An attempt was ordered over this connection."""
        if self._is_wanted and token not in self._attempts:
            self._fresh.add(token)

    def sift(self, outbox: Sequence[Message], *, is_connected: bool) -> list[Message]:
        """What to send now: reports, pieces, and ends behind their last pieces."""
        if not self._is_wanted:
            return list(outbox)
        if not is_connected:
            self._is_connected = False
            return []
        messages = self._hold(outbox)
        now = self._clock()
        if now >= self._look_at or self._held:
            if now >= self._look_at:
                self._look_at = now + _LOOK_S
                messages += self._pump(self._live_copies(), now)
            messages += self._finish(now)
        return messages

    @property
    def next_due(self) -> float | None:
        """When files are looked at again, on the monotonic clock; None while there is nothing to look at."""
        if not (self._is_wanted and self._is_connected and (self._attempts or self._machine_samples)):
            return None
        return self._look_at

    def on_have(self, have: LogHave) -> None:
        """Take the daemon's word for what it has of a file."""
        copy = self._copies.get((have.task_id, have.kind))
        if copy is None or not copy.is_grown:
            return
        if copy.had is None or have.offset < copy.had or have.wait_s:
            copy.sent = have.offset  # The first word, or it has lost something, or no room.
        copy.had = have.offset
        copy.wait_until = self._clock() + have.wait_s if have.wait_s else 0.0
        self._look_at = 0.0

    def forget(self, attempt: Attempt) -> None:
        """Remove this machine's copy: the daemon has all of it."""
        if not self._is_wanted:
            return
        self._held.pop(attempt.token, None)
        self._fresh.discard(attempt.token)
        for copy in self._copies_of(attempt):
            self._copies.pop((copy.task_id, copy.kind), None)
            _remove(copy.path)

    def tidy(self, task_ids: Iterable[str]) -> None:
        """Remove what was forgotten and is still there."""
        if self._is_wanted:
            for path in attempt_files_in(self._directory, except_for=set(task_ids)):
                _remove(path)

    # --- pieces ----------------------------------------------------------------------------------------

    def _hold(self, outbox: Sequence[Message]) -> list[Message]:
        """Keep the ends of attempts back that have said something."""
        reports: list[Message] = []
        for message in outbox:
            attempt = self._attempts.get(message.token) if isinstance(message, Exited) else None
            if isinstance(message, Exited) and attempt is not None and _size(attempt.intended.log_path):
                self._held[message.token] = message
            else:
                reports.append(message)
        return reports

    def _finish(self, now: float) -> list[Message]:
        """Send what is left of attempts that have ended, and behind it their ends."""
        messages: list[Message] = []
        for token, result in list(self._held.items()):
            attempt = self._attempts.get(token)
            copies = list(self._copies_of(attempt)) if attempt is not None else []
            messages += self._pump(copies, now)
            if all(_is_sent(copy) for copy in copies):
                del self._held[token]
                messages.append(result)
        return messages

    def _live_copies(self) -> list[_Copy]:
        copies = [copy for attempt in list(self._attempts.values()) for copy in self._copies_of(attempt)]
        if self._machine_samples is not None:
            copies.append(self._copy(_MACHINE, "machine", self._machine_samples))
        return copies

    def _copies_of(self, attempt: Attempt) -> Iterator[_Copy]:
        path, task_id = attempt.intended.log_path, attempt.intended.task_id
        if os.path.dirname(path) != self._directory:
            return
        names: dict[MirroredKind, str] = {
            "log": path,
            "times": times_path(path),
            "samples": samples_path(path),
        }
        for kind, name in names.items():
            copy = self._copy(task_id, kind, name)
            if attempt.token in self._fresh and copy.had is None:
                copy.had = 0
            yield copy

    def _copy(self, task_id: str, kind: MirroredKind, path: str) -> _Copy:
        return self._copies.setdefault((task_id, kind), _Copy(task_id, kind, path))

    def _pump(self, copies: Sequence[_Copy], now: float) -> list[Message]:
        messages: list[Message] = []
        room = WINDOW_BYTES - sum(copy.under_way for copy in self._copies.values())
        for copy in copies:
            if copy.wait_until > now:
                continue
            if not copy.is_grown:
                messages += _changed_parts(copy)
            elif copy.had is None:
                if not copy.is_asked and os.path.exists(copy.path):
                    copy.is_asked = True
                    messages.append(LogPiece(copy.task_id, copy.kind, 0, b"", _size(copy.path)))
            else:
                pieces = _next_pieces(copy, room)
                room -= sum(len(piece.data) for piece in pieces)
                messages += pieces
        return messages


def _next_pieces(copy: _Copy, room: int) -> list[LogPiece]:
    """What a file has gained, as far as there is room for it on the way."""
    pieces: list[LogPiece] = []
    size = _size(copy.path)
    if size <= copy.sent or room <= 0:
        return pieces
    try:
        with open(copy.path, "rb", buffering=0) as file:
            while copy.sent < size and room > 0:
                hole, behind = hole_from(file.fileno(), copy.sent, size)
                skips = hole == copy.sent
                at = behind if skips else copy.sent
                most = min(PIECE_BYTES, room, (size if skips else hole) - at)
                data = os.pread(file.fileno(), most, at)
                if not data and not skips:
                    break
                pieces.append(LogPiece(copy.task_id, copy.kind, at, data, size, skips=skips))
                copy.sent = at + len(data)
                room -= len(data)
    except OSError:
        return pieces
    return pieces


def _changed_parts(copy: _Copy) -> list[LogPiece]:
    """What has changed of a file of samples: all of one that is new, else its beginning and its end."""
    try:
        with open(copy.path, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino == copy.number and status.st_mtime_ns == copy.written_at:
                return []
            content = file.read()
    except OSError:
        return []
    parsed = sample_file.parse_header(content)
    ranges = [(0, len(content))]
    if status.st_ino == copy.number and parsed is not None:
        record = sample_file.SampleLayout(len(parsed[0].gpus)).size
        head = parsed[1] + record
        ranges = [(0, head), (max(head, copy.sent - record), len(content))]
    is_new = status.st_ino != copy.number
    copy.number, copy.written_at, copy.sent = status.st_ino, status.st_mtime_ns, len(content)
    pieces = []
    for begin, end in ranges:
        for offset in range(begin, end, PIECE_BYTES):
            data = content[offset : min(end, offset + PIECE_BYTES)]
            pieces.append(
                LogPiece(copy.task_id, copy.kind, offset, data, len(content), begins=is_new and not offset)
            )
    return pieces


def _is_sent(copy: _Copy) -> bool:
    """Whether all of a file is on its way, or there is none."""
    if not copy.is_grown:
        return True
    size = _size(copy.path)
    return size == 0 or (copy.had is not None and copy.sent >= size)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
