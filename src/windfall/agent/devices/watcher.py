"""Looks at the GPUs every few seconds in a thread of its own, and tells the agent's loop when something has changed.

Decides when to look and what to say of a source that gives no answer. Must not judge devices (health.py does), and must
not be waited for: NVML can block for seconds when a device is dying.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

import msgspec

from windfall.agent.devices.health import Case, Judge
from windfall.agent.devices.readings import Reading
from windfall.agent.devices.sources import CannotRead, DeviceSource
from windfall.agent.gpus import GpuDevice
from windfall.agent.speech import say

#: Less than a daemon waits for an agent to answer.
_FIRST_READING_S = 8.0
#: A reading that takes this long has failed.
_STUCK_S = 60.0
_STUCK = "the NVIDIA driver has not answered for a minute"
#: This many failed readings in a row mean trouble; what runs goes on, as it may well do.
_FAILURES = 3


class Memory(msgspec.Struct, frozen=True):
    """What the next agent of this boot should know."""

    boot: str
    cases: dict[str, Case]


class DeviceWatcher:
    """The devices of this machine as they are now; `notify` wakes the loop, which then takes them."""

    def __init__(
        self,
        source: DeviceSource | None,
        notify: Callable[[], None],
        memory_path: str,
        boot: str,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._source = source
        self._notify = notify
        self._memory_path = memory_path
        self._boot = boot
        self._clock_ms = clock_ms
        self._remembered = b""
        self._failures = 0
        self._lock = threading.Lock()
        self._devices: list[GpuDevice] = []
        self._changed = False
        #: Since when a reading is under way, on the monotonic clock; None between two.
        self._reading_since: float | None = None
        #: Why nothing is known of any device, if that is so.
        self._trouble: str | None = None
        self._first = threading.Event()

    def start(self) -> list[GpuDevice]:
        """Begin to watch; the answer is what there is, as far as it could be read in time."""
        if self._source is None:
            return []
        if not self._source.changes:
            return Judge(self._source.rules).hear(self._source.read(), self._clock_ms())
        threading.Thread(target=self._run, name="device-watcher", daemon=True).start()
        if not self._first.wait(_FIRST_READING_S):
            say("the NVIDIA driver does not answer; its GPUs are offered when it does")
        return self.take() or []

    def take(self) -> list[GpuDevice] | None:
        """The devices, if they have changed since they were last taken."""
        with self._lock:
            since = self._reading_since
            if since is not None and time.monotonic() - since > _STUCK_S and self._trouble is None:
                self._trouble, self._changed = _STUCK, True
            if not self._changed:
                return None
            self._changed = False
            return [_kept_apart(device, self._trouble) for device in self._devices]

    @property
    def changes(self) -> bool:
        """Whether the devices may ever be others, or otherwise, than they were at the start."""
        return self._source is not None and self._source.changes

    @property
    def tells_within_s(self) -> float:
        """As the source has it."""
        return self._source.tells_within_s if self._source is not None else 0.0

    @property
    def next_due(self) -> float | None:
        """When to look whether a reading is stuck, on the monotonic clock; None where none can be."""
        if not self.changes or self._trouble is not None:
            return None
        # One that begins while the loop sleeps wakes nobody, so it is looked for now and then.
        return (self._reading_since or time.monotonic()) + _STUCK_S

    def _run(self) -> None:
        source = self._source
        assert source is not None
        judge = Judge(source.rules, self._recall())
        while True:
            with self._lock:
                self._reading_since = time.monotonic()
            readings, trouble = self._read(source, judge)
            devices = judge.hear(readings, self._clock_ms())
            with self._lock:
                self._reading_since = None
                # What was said of a stuck reading is taken back.
                self._changed = self._changed or trouble != self._trouble or devices != self._devices
                self._devices, self._trouble = devices, trouble
                changed = self._changed
            if changed:
                self._notify()
            self._first.set()
            self._remember(judge)
            source.wait()

    def _read(self, source: DeviceSource, judge: Judge) -> tuple[list[Reading], str | None]:
        """What the source says, or what it said last and why it says nothing now."""
        try:
            readings = source.read()
        except Exception as error:  # noqa: BLE001 - the edge of this thread's loop; a driver may fail in any way
            self._failures += 1
            if self._failures == _FAILURES:
                say(f"the GPUs cannot be read: {error if isinstance(error, CannotRead) else repr(error)}")
            last = [msgspec.structs.replace(case.reading, xids=()) for case in judge.cases.values()]
            return last, f"it cannot be read: {error}" if self._failures >= _FAILURES else None
        self._failures = 0
        return readings, None

    def _recall(self) -> dict[str, Case]:
        """The illnesses that an earlier agent saw since this machine was started."""
        try:
            with open(self._memory_path, "rb") as file:
                memory = msgspec.json.decode(file.read(), type=Memory)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return {}
        sick = {device_id: case for device_id, case in memory.cases.items() if case.ills}
        return sick if memory.boot == self._boot else {}

    def _remember(self, judge: Judge) -> None:
        content = msgspec.json.encode(Memory(self._boot, judge.cases))
        if content == self._remembered or not (judge.cases or self._remembered):
            return
        self._remembered = content
        beside = f"{self._memory_path}.new"
        with contextlib.suppress(OSError):  # A full disk must not end the watch.
            with open(beside, "wb") as file:
                file.write(content)
            os.replace(beside, self._memory_path)


def _kept_apart(device: GpuDevice, trouble: str | None) -> GpuDevice:
    if trouble is None or device.fence is not None:
        return device
    return msgspec.structs.replace(device, fence=trouble)
