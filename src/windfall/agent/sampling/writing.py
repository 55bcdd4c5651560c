"""Writes one file of samples: the newest one at its beginning, the history behind it, halved when it is full.

Nothing is kept open between samples, and nothing is synced: what a crash of the machine takes of it is a moment of a
curve. Must not know what is measured.
"""

from __future__ import annotations

import os
from dataclasses import replace

from windfall.advisor.sample_file import MOST_RECORDS, Header, SampleLayout, halved, merged, parse
from windfall.advisor.samples import Sample


class SampleFile:
    """A file that is begun, or gone on with where an earlier agent left it."""

    def __init__(self, path: str, header: Header, most_records: int = MOST_RECORDS) -> None:
        self._path = path
        self._most_records = most_records
        self._history = 0
        #: The last record of the history while it does not stand for enough samples yet, and for how many it stands.
        self._open: Sample | None = None
        self._open_count = 0
        #: Whether an earlier agent had begun it.
        self.resumed = False
        before = self._before()
        history: list[Sample] = []
        if before is not None and _same(before[0], header):
            header, history = replace(header, merges=before[0].merges), before[1]
            self._history, self.resumed = len(history), True
        self.header = header
        self._layout = SampleLayout(len(header.gpus))
        # Written anew: so that what is torn at its end goes, and every record is where it is counted to be.
        self._rewrite(history)

    def add(self, sample: Sample) -> None:
        """Write one more sample; OSError where the disk does not take it."""
        if self._open is None:
            if self._history >= self._most_records:
                self._halve()
            self._open, self._open_count = sample, 1
            self._history += 1
        else:
            self._open, self._open_count = merged(self._open, sample), self._open_count + 1
        record = self._layout.pack(self._open)
        fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, self._layout.pack(sample), len(self._beginning))
            os.pwrite(fd, record, len(self._beginning) + self._history * self._layout.size)
        finally:
            os.close(fd)
        if self._open_count >= self.header.merges:
            self._open = None

    def _before(self) -> tuple[Header, list[Sample]] | None:
        try:
            with open(self._path, "rb") as file:
                return parse(file.read())
        except OSError:
            return None

    def _halve(self) -> None:
        before = self._before()
        history = halved(before[1]) if before is not None else []
        self.header = replace(self.header, merges=self.header.merges * 2)
        self._rewrite(history)
        self._history = len(history)

    def _rewrite(self, history: list[Sample]) -> None:
        self._beginning = self.header.encode()
        newest = self._layout.pack(history[-1]) if history else bytes(self._layout.size)
        fresh = f"{self._path}.new"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(b"".join((self._beginning, newest, *(self._layout.pack(one) for one in history))))
        os.rename(fresh, self._path)


def _same(one: Header, other: Header) -> bool:
    """Whether they are of the same attempt and the same devices; what a device can do may have become known since."""
    return one.token == other.token and [gpu.id for gpu in one.gpus] == [gpu.id for gpu in other.gpus]
