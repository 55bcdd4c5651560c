"""Reads what agents measured: one file of samples beside each attempt's log, and one for the machine.

Agents write the files while they are read, so an incomplete record is skipped. Decides nothing; must not know what the
values mean.
"""

from __future__ import annotations

from pathlib import Path

from windfall.advisor import sample_file
from windfall.advisor.samples import Recording, Sample, SampledGpu

#: In place of a task id: all GPUs and the host itself.
MACHINE = "machine"
#: Enough of a file for the header and the newest sample of all but the largest machines.
_BEGINNING_BYTES = 8 << 10


class SampleReader:
    """The samples in one directory of logs."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs

    def recording(self, task_id: str) -> Recording | None:
        """All samples of an attempt; None if there are none."""
        content = self._read(task_id)
        return None if content is None else sample_file.recording(content)

    def latest(self, task_id: str) -> Sample | None:
        """The newest sample of an attempt, by one small read."""
        newest = self._newest(task_id)
        return None if newest is None else newest[1]

    def machine(self) -> Recording | None:
        """All samples of this host, with all of its GPUs."""
        return self.recording(MACHINE)

    def latest_machine(self) -> Sample | None:
        """The newest sample of this host."""
        return self.latest(MACHINE)

    def machine_head(self) -> tuple[tuple[SampledGpu, ...], Sample] | None:
        """The newest sample of this host, and its GPUs in the order of the sample."""
        return self._newest(MACHINE)

    def _newest(self, name: str) -> tuple[tuple[SampledGpu, ...], Sample] | None:
        content = self._read(name, _BEGINNING_BYTES)
        if content is None:
            return None
        newest = sample_file.newest(content)
        if newest is None and len(content) == _BEGINNING_BYTES:
            newest = sample_file.newest(self._read(name) or b"")
        return newest

    def _read(self, name: str, most_bytes: int = -1) -> bytes | None:
        try:
            with (self._logs / f"{name}.samples").open("rb") as file:
                return file.read(most_bytes)
        except OSError:
            return None
