"""Where readings of GPUs come from: the port, and which source a setting means.

Decides nothing about health. A source may block for seconds while a device is dying: only the watcher's thread asks it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from windfall.agent.devices.readings import HealthRules, Reading, RecordedSet, read_set
from windfall.agent.errors import AgentError

READ_EVERY_S = 5.0


class CannotRead(AgentError):
    """The source gives no reading at all: the driver does not answer."""


class DeviceSource(Protocol):
    """Something that knows this machine's GPUs."""

    #: How patient the judge of these readings is to be.
    rules: HealthRules
    #: Whether readings change at all.
    changes: bool
    #: How long after a device has killed its program it tells so at the latest, in a reading.
    tells_within_s: float

    def read(self) -> list[Reading]:
        """All devices as they are now, in the machine's own order; raises CannotRead."""

    def wait(self) -> None:
        """Wait until it is time for the next reading, or something has happened."""


class FixedSource:
    """Devices that are always well."""

    changes = False
    tells_within_s = 0.0

    def __init__(self, readings: list[Reading]) -> None:
        self.rules = HealthRules()
        self._readings = readings

    def read(self) -> list[Reading]:
        """The same every time."""
        return self._readings

    def wait(self) -> None:
        """Nothing ever happens; a short wait all the same."""
        time.sleep(READ_EVERY_S)


class RecordedSource:
    """Devices that a file describes; read again whenever it changes, so that a rehearsal can make one fall ill."""

    changes = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._set = read_set(path)
        self.rules = self._set.rules
        self.tells_within_s = 2 * self._set.every_s

    def read(self) -> list[Reading]:
        """The file's devices, marked as simulated; their XIDs happen once, when the file has changed."""
        is_new = self._look()
        return [
            msgspec.structs.replace(
                reading,
                simulated=True,
                sharing=None if reading.sharing_note else "simulated",
                xids=reading.xids if is_new else (),
            )
            for reading in self._set.gpus
        ]

    def _look(self) -> bool:
        try:
            status = os.stat(self._path)
        except OSError as error:
            raise CannotRead(f"{self._path}: {error.strerror}") from None
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp == self._seen:
            return False
        try:
            self._set = read_set(self._path)
        except AgentError as error:
            raise CannotRead(str(error)) from None
        self._seen = stamp
        return True

    def wait(self) -> None:
        """Until the next look at the file."""
        time.sleep(self._set.every_s)


def open_source(spec: str, real: Callable[[], DeviceSource | None] | None = None) -> DeviceSource | None:
    """The source for `auto`, `none`, `simulated:N` or `recorded:PATH`; None where there can be no device."""
    if spec == "none":
        return None
    if spec == "auto":
        return (real or find_driver)()
    kind, _, rest = spec.partition(":")
    if kind == "recorded" and rest.startswith("/"):
        return RecordedSource(rest)
    if kind == "simulated" and rest.isascii() and rest.isdigit():
        return FixedSource([_simulated(number) for number in range(int(rest))])
    raise AgentError(
        f'"{spec}" does not name GPUs: use auto, none, simulated:N (for example simulated:2) or recorded:/PATH'
    )


def find_driver() -> DeviceSource | None:
    """The source for the GPUs that this machine really has: NVML, else nvidia-smi; None without a driver."""
    from windfall.agent.devices import (
        nvidia_smi,
        nvml,
    )  # Only for a machine's own GPUs: the library is large.

    return nvml.open_nvml() or nvidia_smi.open_nvidia_smi()


def record(source: DeviceSource) -> RecordedSet:
    """What a source says now, as a set that can be played again."""
    return RecordedSet(source.read())


def _simulated(number: int) -> Reading:
    return Reading(f"GPU-simulated-{number}", "Simulated GPU", sharing="simulated", simulated=True)
