"""The files that attempts leave in a directory of logs: their names, their formats, who writes and who reads them.

`<task>.log` is the job's own output, which never passes through a program of ours; the middle of one that outgrew its
limit is a hole (log_limit.py). Beside it `<task>.log.times` says when each part of it was written: records of two
little-endian u64, (size of the log, milliseconds since the epoch), appended by the agent while the log grows. A byte
has the time of the first record that reaches it. `<task>.samples` has what was measured (advisor/sample_file.py has its
format), and `machine.samples` what was measured of the host. No other module names these files. Must not know attempts
or messages.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_left
from collections.abc import Container
from pathlib import Path
from typing import BinaryIO

from windfall.advisor import sample_file
from windfall.advisor.samples import Recording, Sample, SampledGpu
from windfall.agent.log_limit import hole_from, without_holes

_RECORD = struct.Struct("<QQ")
#: Bytes per record of times.
RECORD_BYTES = _RECORD.size
_LOG, _SAMPLES = ".log", ".samples"
#: In place of a task id: all GPUs and the host itself.
_MACHINE = "machine"
#: Enough of a file for the header and the newest sample of all but the largest machines.
_BEGINNING_BYTES = 8 << 10
#: The end of the year 9999: the times of a log may be another machine's.
_LAST_MOMENT = 253_402_300_799_999
_NAME = re.compile(r"[0-9A-Za-z_-]{1,64}", re.ASCII)


def log_path(directory: str, task_id: str) -> str:
    """Return where the output of an attempt is written, nowhere without a directory; the caller has checked the id."""
    return f"{directory}/{task_id}{_LOG}" if directory else ""


def attempt_files_in(directory: str, *, except_for: Container[str]) -> list[str]:
    """Return the files of attempts in a directory of logs, but for those of some."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    ends = (_LOG, times_path(_LOG), _SAMPLES)
    tasks = {name: name.removesuffix(end) for end in ends for name in names if name.endswith(end)}
    return [
        f"{directory}/{name}" for name, task in tasks.items() if task not in except_for and task != _MACHINE
    ]


def times_path(log_path: str) -> str:
    """Return where the times of this log are kept."""
    return log_path + ".times"


def samples_path(log_path: str) -> str:
    """Return where the samples of the attempt with this log are kept."""
    return log_path.removesuffix(_LOG) + _SAMPLES


class LogTimes:
    """Writes the times of one log; holds no file open between records."""

    __slots__ = ("_log_path", "_seen_bytes")

    def __init__(self, log_path: str, *, resume: bool = False) -> None:
        self._log_path = log_path
        self._seen_bytes = RecordedLog(log_path).timed_size if resume else 0

    def note(self, at_ms: int) -> bool:
        """Append a record if the log grew since the last one; return whether it did."""
        try:
            size = os.stat(self._log_path).st_size
        except OSError:
            return False
        if size <= self._seen_bytes:
            return False
        fd = os.open(times_path(self._log_path), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, _RECORD.pack(size, at_ms))
        finally:
            os.close(fd)
        self._seen_bytes = size
        return True


class RecordedLog:
    """A log and its times as they were when it was opened; holds no file open between questions.

    A week of records is 20 MB, so they are bisected where they are and never loaded. Nothing is read of them before the
    first question: a search looks at the sizes of thousands of logs.
    """

    def __init__(self, path: str) -> None:
        self._path, self._times = path, times_path(path)
        try:
            status = os.stat(path)
            self.size, self.written_at = status.st_size, status.st_mtime_ns // 1_000_000
        except FileNotFoundError:
            self.size, self.written_at = 0, -1
        #: The range of ends that the latest answer holds for: lines mostly ask in order.
        self._known = (0, 0, 0)
        self._count = 0
        self._last: tuple[int, int] | None = None

    @property
    def timed_size(self) -> int:
        """How much of the log has a time; 0 without records."""
        return self._last_record()[0]

    @property
    def timed_at(self) -> int:
        """The time of the last record; 0 without records."""
        return self._last_record()[1]

    def read(self, offset: int, length: int) -> bytes:
        """Read a part of the log, with newlines where it was not kept; nothing when it has been removed."""
        try:
            with open(self._path, "rb", buffering=0) as file:
                return without_holes(file.fileno(), offset, os.pread(file.fileno(), length, offset))
        except FileNotFoundError:
            return b""

    def gap(self, offset: int) -> tuple[int, int]:
        """Return the first part at or behind an offset that was not kept; at the log's end where there is none."""
        try:
            with open(self._path, "rb", buffering=0) as file:
                return hole_from(file.fileno(), offset, self.size)
        except FileNotFoundError:
            return self.size, self.size

    def at(self, end: int) -> int | None:
        """Return the time of the first record that reaches `end`, or None when none does (yet)."""
        low, high, at_ms = self._known
        if low < end <= high:
            return at_ms
        if end > self.timed_size:
            return None
        try:
            with open(self._times, "rb", buffering=0) as file:
                index = bisect_left(range(self._count), end, key=lambda i: _record(file, i)[0])
                low = _record(file, index - 1)[0] if index else 0
                high, at_ms = _record(file, index)
        except FileNotFoundError:
            return None  # the log was purged while it was being read
        self._known = (low, high, at_ms)
        return at_ms

    def size_before(self, at_ms: int) -> int:
        """Return how large the log was when last seen before `at_ms`; 0 when it was not."""
        size, last_at = self._last_record()
        if not self._count or last_at < at_ms:
            return size
        try:
            with open(self._times, "rb", buffering=0) as file:
                index = bisect_left(range(self._count), at_ms, key=lambda i: _record(file, i)[1])
                return _record(file, index - 1)[0] if index else 0
        except FileNotFoundError:
            return 0

    def _last_record(self) -> tuple[int, int]:
        if self._last is None:
            self._last = (0, 0)
            try:
                with open(self._times, "rb", buffering=0) as file:
                    # A record torn by a crash is left out.
                    self._count = os.fstat(file.fileno()).st_size // RECORD_BYTES
                    if self._count:
                        self._last = _record(file, self._count - 1)
            except FileNotFoundError:
                self._count = 0
        return self._last


def newest_sample(path: str) -> tuple[tuple[SampledGpu, ...], Sample] | None:
    """Return the newest sample in a file and its GPUs, by one small read; None if there is none."""
    try:
        with open(path, "rb") as file:
            content = file.read(_BEGINNING_BYTES)
            newest = sample_file.newest(content)
            if newest is None and len(content) == _BEGINNING_BYTES:
                newest = sample_file.newest(content + file.read())
            return newest
    except OSError:
        return None


class AttemptDirectory:
    """The port AttemptFiles over one directory. Agents write while it is read, so an incomplete record is skipped."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def directory(self) -> str:
        """The directory of logs, for an agent that writes there itself."""
        return str(self._root)

    @property
    def machine_samples(self) -> str:
        """Where the agent of this directory's host writes what it measures of the host."""
        return str(self._root / (_MACHINE + _SAMPLES))

    def machine_samples_of(self, machine: str) -> str:
        """Return where samples of another machine are kept; ValueError for what must not become a path."""
        if _NAME.fullmatch(machine) is None:
            raise ValueError(f"{machine!r} is not a machine's id and must not become a path")
        return str(self._root / f"{_MACHINE}.{machine}{_SAMPLES}")

    def log_path(self, task_id: str) -> str:
        """Return where an attempt's output is written; ValueError for what must not become a path."""
        if _NAME.fullmatch(task_id) is None:
            raise ValueError(f"{task_id!r} is not a task id and must not become a path")
        return log_path(str(self._root), task_id)

    def log(self, task_id: str) -> RecordedLog:
        """An attempt's log, which is empty until its process has started."""
        return RecordedLog(self.log_path(task_id))

    def recording(self, task_id: str) -> Recording | None:
        """All samples of an attempt; None if there are none."""
        try:
            return sample_file.recording(Path(samples_path(self.log_path(task_id))).read_bytes())
        except OSError:
            return None

    def latest(self, task_id: str) -> Sample | None:
        """The newest sample of an attempt."""
        newest = newest_sample(samples_path(self.log_path(task_id)))
        return None if newest is None else newest[1]

    def machine_head(self, machine: str | None = None) -> tuple[tuple[SampledGpu, ...], Sample] | None:
        """The newest sample of a machine, or of this host, and its GPUs in the order of the sample."""
        return newest_sample(self.machine_samples if machine is None else self.machine_samples_of(machine))

    def remove(self, task_id: str, *, samples: bool = True) -> None:
        """Remove an attempt's log with its times, and its samples too unless told otherwise; OSError if one stays."""
        log = self.log_path(task_id)
        trouble: OSError | None = None
        for path in (log, times_path(log), *((samples_path(log),) if samples else ())):
            try:
                Path(path).unlink(missing_ok=True)
            except OSError as error:
                trouble = error
        if trouble is not None:
            raise trouble


def _record(file: BinaryIO, index: int) -> tuple[int, int]:
    record = os.pread(file.fileno(), RECORD_BYTES, index * RECORD_BYTES)
    if len(record) < RECORD_BYTES:
        raise FileNotFoundError  # cut short while being read: as good as gone
    size, at_ms = _RECORD.unpack(record)
    return size, min(at_ms, _LAST_MOMENT)
