"""GPUs by NVML, the driver's own library: inventory, MIG slices, health, XID events.

Decides how NVML's answers become readings. What a device does not support is None there; what is wrong with it is said,
not judged. The library may block for seconds when a device dies: only the watcher's thread may ask.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable
from typing import Any, TypeVar

from windfall.agent.devices.nvidia_smi import find_driver_program
from windfall.agent.devices.readings import HealthRules, Reading
from windfall.agent.devices.sources import READ_EVERY_S, CannotRead

Answer = TypeVar("Answer")

#: NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; drivers before R550 do not have it.
_RECOVERY_FIELD = 230
_RECOVERY = {0: "none", 1: "reset", 2: "reboot", 3: "drain", 4: "drain", 6: "reset", 7: "reboot"}
#: NVML's bits for what slows a device down, without those of ordinary work (idle, power cap, chosen clocks).
_SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "heat, by the driver",
    0x40: "heat, by the hardware",
    0x80: "power brake",
}
_GENERAL_SLOWDOWN = 0x08
_SPECIFIC = 0x40 | 0x80
_XID_EVENT = 0x8
_GATHER_MS = 50
_MOST_EVENTS = 100
_PROHIBITED = 2


def open_nvml() -> NvmlSource | None:
    """The source, where the library can be loaded and finds a driver; None, quietly, where not."""
    nvml = load_nvml()
    return None if nvml is None else NvmlSource(nvml)


def load_nvml() -> Any | None:
    """The module pynvml, initialised (which is counted: once more costs nothing); None where there is no driver."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
        import pynvml  # Only where there is a driver: it is large.
    except (OSError, ImportError):
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


class NvmlSource:
    """All GPUs of this machine; `nvml` is the module pynvml, or something that answers like it."""

    changes = True
    #: The driver reports an XID at once; then others are gathered, and a reading takes a millisecond a device.
    tells_within_s = 0.3

    def __init__(self, nvml: Any) -> None:
        self.rules = HealthRules()
        self._nvml = nvml
        self._has_mps = find_driver_program("nvidia-cuda-mps-control") is not None
        self._events: Any = None
        self._watched: frozenset[str] = frozenset()
        #: XIDs that were heard and not yet told, by device id.
        self._heard: dict[str, list[int]] = {}

    def read(self) -> list[Reading]:
        """Every device that answers; one that does not is left out, which is how the judge learns of it."""
        nvml = self._nvml
        try:
            count = nvml.nvmlDeviceGetCount()
            driver = _text(nvml.nvmlSystemGetDriverVersion())
        except nvml.NVMLError as error:
            self._begin_again()
            raise CannotRead(f"the NVIDIA driver does not answer: {error}") from None
        readings: list[Reading] = []
        handles: dict[str, Any] = {}
        for index in range(count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = _text(nvml.nvmlDeviceGetUUID(handle))
                readings += self._read_one(handle, uuid, driver)
            except nvml.NVMLError:
                continue
            handles[uuid] = handle
        self._watch(handles)
        return readings

    def wait(self) -> None:
        """Wait until the next reading is due, or a device reports an error."""
        if self._events is None:
            time.sleep(READ_EVERY_S)
            return
        timeout_ms = int(READ_EVERY_S * 1000)
        for _ in range(_MOST_EVENTS):
            if not self._hear(timeout_ms):
                return
            timeout_ms = _GATHER_MS  # Errors come in bursts, and one reading covers them all.

    def _hear(self, timeout_ms: int) -> bool:
        """Note the next XID; False when none came in time."""
        nvml = self._nvml
        try:
            event = nvml.nvmlEventSetWait_v2(self._events, timeout_ms)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_TIMEOUT:
                time.sleep(READ_EVERY_S)  # Its devices are in trouble; the next reading shows it.
            return False
        with contextlib.suppress(nvml.NVMLError):
            uuid = _text(nvml.nvmlDeviceGetUUID(event.device))
            self._heard.setdefault(uuid, []).append(int(event.eventData))
        return True

    def _read_one(self, handle: Any, uuid: str, driver: str) -> list[Reading]:
        """A GPU, or its MIG slices in its place: what the GPU has, they all have."""
        nvml = self._nvml
        health = self._health(handle, uuid)
        bus_id = self._ask(lambda: _text(nvml.nvmlDeviceGetPciInfo(handle).busId))
        capability = self._ask(lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
        facts: dict[str, Any] = {
            "driver": driver,
            "bus_id": bus_id,
            "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
        }
        name = _text(nvml.nvmlDeviceGetName(handle))
        if (self._ask(lambda: nvml.nvmlDeviceGetMigMode(handle)) or [0])[0] == 1:
            return self._slices(handle, uuid, name, {**facts, **health})
        sharing, note = self._sharing(capability)
        unusable = None
        if self._ask(lambda: nvml.nvmlDeviceGetComputeMode(handle)) == _PROHIBITED:
            unusable = "its compute mode is Prohibited: allow programs with `nvidia-smi -c DEFAULT`"
        memory = self._memory_mib(handle)
        return [
            Reading(
                uuid,
                name,
                memory,
                sharing=sharing,
                sharing_note=note,
                unusable=unusable,
                **facts,
                **health,
            )
        ]

    def _slices(self, handle: Any, uuid: str, name: str, facts: dict[str, Any]) -> list[Reading]:
        nvml = self._nvml
        note = "a MIG slice is a share already"
        found = []
        for index in range(self._ask(lambda: int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))) or 0):
            try:
                slice_ = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
                slice_id = _text(nvml.nvmlDeviceGetUUID(slice_))
                slice_name = _text(nvml.nvmlDeviceGetName(slice_))
            except nvml.NVMLError:
                continue  # Fewer slices than could be.
            memory = self._memory_mib(slice_)
            found.append(Reading(slice_id, slice_name, memory, parent=uuid, sharing_note=note, **facts))
        if found:
            return found
        unusable = (
            "MIG is on and it has no slice: make some (`nvidia-smi mig -cgi ... -C`) or turn MIG off"
            " (`nvidia-smi -mig 0`)"
        )
        return [Reading(uuid, name, self._memory_mib(handle), unusable=unusable, sharing_note=note, **facts)]

    def _sharing(self, capability: tuple[int, int] | None) -> tuple[str | None, str | None]:
        if not self._has_mps:
            return None, "nvidia-cuda-mps-control is not installed"
        if capability is None or capability < (7, 0):
            return None, "MPS limits programs only from compute capability 7.0 (Volta) on"
        return "mps", None

    def _health(self, handle: Any, uuid: str) -> dict[str, Any]:
        nvml = self._nvml

        def errors(kind: int) -> int | None:
            return self._ask(
                lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC))
            )

        remapped = self._ask(lambda: nvml.nvmlDeviceGetRemappedRows(handle))
        pending, failed = (bool(remapped[2]), bool(remapped[3])) if remapped is not None else (False, False)
        reasons = self._ask(lambda: int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))) or 0
        return {
            "uncorrected_errors": errors(nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            "corrected_errors": errors(nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            "remap_pending": pending,
            "remap_failed": failed,
            "recovery": self._recovery(handle),
            "slowdowns": slowdowns(reasons),
            "temperature_c": self._ask(
                lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
            ),
            "shutdown_c": self._ask(
                lambda: int(
                    nvml.nvmlDeviceGetTemperatureThreshold(handle, nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN)
                )
            ),
            "xids": tuple(self._heard.pop(uuid, ())),
        }

    def _recovery(self, handle: Any) -> str | None:
        values = self._ask(lambda: self._nvml.nvmlDeviceGetFieldValues(handle, [_RECOVERY_FIELD]))
        if values is None or values[0].nvmlReturn != 0:
            return None
        return _RECOVERY.get(int(values[0].value.uiVal))

    def _memory_mib(self, handle: Any) -> int | None:
        total = self._ask(lambda: int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total))
        return total >> 20 if total else None

    def _ask(self, question: Callable[[], Answer]) -> Answer | None:
        """An answer, None where the device has none; one that is lost is an error of the whole device."""
        nvml = self._nvml
        try:
            return question()
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED):
                raise
            return None

    def _watch(self, handles: dict[str, Any]) -> None:
        """Subscribe to XIDs; devices that came or went need a new set of events."""
        if frozenset(handles) == self._watched:
            return
        nvml = self._nvml
        self._drop_events()
        self._watched = frozenset(handles)
        with contextlib.suppress(nvml.NVMLError):
            self._events = nvml.nvmlEventSetCreate()
            for handle in handles.values():
                with contextlib.suppress(nvml.NVMLError):  # Some (WSL, old ones) have no events.
                    nvml.nvmlDeviceRegisterEvents(handle, _XID_EVENT, self._events)

    def _drop_events(self) -> None:
        if self._events is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlEventSetFree(self._events)
        self._events, self._watched = None, frozenset()

    def _begin_again(self) -> None:
        """After a failure of the whole library: a driver that was loaded anew needs a new beginning."""
        self._drop_events()
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlInit()


def slowdowns(reasons: int) -> tuple[str, ...]:
    """What slows a device down, in words; the general bit says nothing beside those that tell why."""
    if reasons & _SPECIFIC:
        reasons &= ~_GENERAL_SLOWDOWN
    return tuple(words for bit, words in _SLOWDOWNS.items() if reasons & bit)


def _text(answer: str | bytes) -> str:
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer
