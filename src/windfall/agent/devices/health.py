"""Whether a GPU is sick: readings and a time in, devices with fences and notes out. Pure: no clock, no driver.

A sign of illness fences the device; one after which nothing that runs there can be trusted also moves its job
(`evacuate`). It is well again when the sign is gone and nothing new has shown for a while; where only a reset heals,
when a reset was seen: the driver says that nothing is asked for, the device was away and is back, or its error counters
began anew. Fences carry when they began, so that a new illness is not the one that somebody has forgiven.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from windfall.agent.devices.readings import HealthRules, Reading
from windfall.agent.devices.xids import UNKNOWN, XIDS
from windfall.agent.gpus import GpuDevice

#: What a driver may ask for, and whether what runs on the device should leave.
_RECOVERY = {
    "drain": ("the driver asks for it to be reset when its jobs have ended", False),
    "reset": ("the driver asks for it to be reset", True),
    "reboot": ("the driver asks for this machine to be started again", True),
}


class Illness(msgspec.Struct):
    """One thing that is wrong with a device."""

    words: str
    since: int
    seen_at: int
    evacuate: bool = False
    #: Whether only a reset heals it, and whether one was seen since.
    until_reset: bool = False
    was_reset: bool = False


class Case(msgspec.Struct):
    """What is remembered of one device between two readings."""

    reading: Reading
    ills: dict[str, Illness] = {}
    #: Uncorrected errors that are forgiven: those from before we looked, and those of an illness that is over.
    errors: int | None = None
    slow_since: int | None = None
    #: XIDs that are only noted, and when they were last seen.
    noted: dict[int, int] = {}


class Judge:
    """The judge of one machine's devices."""

    def __init__(self, rules: HealthRules, cases: dict[str, Case] | None = None) -> None:
        self.rules = rules
        #: By device id, in the order in which devices were first seen.
        self.cases = cases if cases is not None else {}

    def hear(self, readings: Sequence[Reading], now: int) -> list[GpuDevice]:
        """Judge all devices by what was read now; one that is missing is lost, unless it was divided or joined."""
        present = {reading.id: reading for reading in readings}
        self._drop_divided(readings)
        for reading in readings:
            case = self.cases.get(reading.id)
            if case is None:
                case = self.cases[reading.id] = Case(reading, errors=reading.uncorrected_errors)
            self._examine(case, reading, now)
        for device_id, case in self.cases.items():
            if device_id not in present:
                self._examine(case, msgspec.structs.replace(case.reading, lost=True, xids=()), now)
        # In the source's own order; those that are gone keep their place at the end.
        order = [*present, *(device_id for device_id in self.cases if device_id not in present)]
        return [self._verdict(self.cases[device_id]) for device_id in order]

    def _drop_divided(self, readings: Sequence[Reading]) -> None:
        """Forget GPUs that are now MIG slices, and slices of GPUs that were divided anew or joined again."""
        ids = {reading.id for reading in readings}
        whole = ids | {reading.parent for reading in readings if reading.parent is not None}
        for device_id, case in list(self.cases.items()):
            parent = case.reading.parent
            if device_id not in ids and (device_id in whole or (parent is not None and parent in whole)):
                del self.cases[device_id]

    def _examine(self, case: Case, reading: Reading, now: int) -> None:
        before, case.reading = case.reading, reading
        if before.lost and not reading.lost:
            _note_reset(case)
        if reading.lost:
            self._ill(case, "lost", "it does not answer any more", now, evacuate=True)
        if reading.unusable is not None:
            self._ill(case, "unusable", reading.unusable, now)
        if reading.remap_failed:
            words = "a bad row of its memory could not be replaced"
            self._ill(case, "remap", words, now, evacuate=True, until_reset=True)
        if reading.recovery in _RECOVERY:
            words, evacuate = _RECOVERY[reading.recovery]
            self._ill(case, "recovery", words, now, evacuate=evacuate)
        self._count_errors(case, reading, now)
        for code in reading.xids:
            self._hear_xid(case, code, now)
        self._feel_heat(case, reading, now)
        self._heal(case, reading, now)

    def _count_errors(self, case: Case, reading: Reading, now: int) -> None:
        count = reading.uncorrected_errors
        if count is None or reading.lost:
            return
        if case.errors is None:
            case.errors = count
        if count < case.errors:
            _note_reset(case)  # Counters begin anew only then.
        elif count > case.errors:
            words = "uncorrected errors in its memory"
            self._ill(case, "memory", words, now, evacuate=True, until_reset=True)
        case.errors = count

    def _hear_xid(self, case: Case, code: int, now: int) -> None:
        xid = XIDS.get(code, UNKNOWN)
        if xid.needs_reset:
            case.ills.pop(f"xid {code}", None)  # It began anew, whatever was forgiven before.
            words = f"XID {code}: {xid.words}"
            self._ill(case, f"xid {code}", words, now, evacuate=True, until_reset=True)
        else:
            case.noted[code] = now

    def _feel_heat(self, case: Case, reading: Reading, now: int) -> None:
        temperature, shutdown = reading.temperature_c, reading.shutdown_c
        if temperature is not None and shutdown is not None and temperature >= shutdown - self.rules.margin_c:
            self._ill(case, "heat", f"it is about to switch itself off, which it does at {shutdown} °C", now)
        if not reading.slowdowns:
            case.slow_since = None
            return
        case.slow_since = case.slow_since or now
        if now - case.slow_since >= self.rules.slow_s * 1000:
            words = f"it has long been slowed down ({', '.join(reading.slowdowns)})"
            self._ill(case, "slow", words, now)

    def _ill(
        self,
        case: Case,
        kind: str,
        words: str,
        now: int,
        *,
        evacuate: bool = False,
        until_reset: bool = False,
    ) -> None:
        ill = case.ills.get(kind)
        if ill is None or ill.words != words:
            ill = case.ills[kind] = Illness(words, now, now, evacuate, until_reset)
        ill.seen_at = now
        ill.was_reset = False

    def _heal(self, case: Case, reading: Reading, now: int) -> None:
        calm_ms = self.rules.calm_s * 1000
        for kind, ill in list(case.ills.items()):
            if reading.lost and kind != "lost":
                continue
            reset = ill.was_reset or reading.recovery == "none"
            is_over = ill.seen_at < now and now - ill.seen_at >= (0 if kind == "unusable" else calm_ms)
            if is_over and (reset or not ill.until_reset):
                del case.ills[kind]
        case.noted = {code: at for code, at in case.noted.items() if now - at < calm_ms}

    def _verdict(self, case: Case) -> GpuDevice:
        reading = case.reading
        ills = list(case.ills.values())
        return GpuDevice(
            reading.id,
            reading.name,
            reading.memory_mib,
            reading.simulated,
            fence="; ".join(f"{ill.words} (since {_utc(ill.since)})" for ill in ills) or None,
            evacuate=any(ill.evacuate for ill in ills),
            notes=tuple(_notes(case)),
            sharing=reading.sharing,
            parent=reading.parent,
            driver=reading.driver,
            lost=reading.lost,
            sharing_note=reading.sharing_note if reading.sharing is None else None,
            bus_id=reading.bus_id,
        )


def _note_reset(case: Case) -> None:
    for ill in case.ills.values():
        ill.was_reset = True


def _notes(case: Case) -> Iterable[str]:
    reading = case.reading
    if reading.slowdowns:
        yield f"slowed down: {', '.join(reading.slowdowns)}"
    if reading.remap_pending:
        yield "a bad row of its memory is replaced at the next reset"
    if reading.corrected_errors:
        yield "corrected memory errors since the driver was loaded"
    if reading.uncorrected_errors and not case.ills:
        yield "uncorrected memory errors since the driver was loaded"
    for code in sorted(case.noted):
        yield f"XID {code} lately: {XIDS.get(code, UNKNOWN).words}"


def _utc(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
