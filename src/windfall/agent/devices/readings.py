"""What is read of one GPU at one moment, before anybody judges it, and a set of such readings as a JSON file.

Decides the words of a recorded set; must not know where readings come from, nor what they mean for jobs.
"""

from __future__ import annotations

import os
from dataclasses import fields

import msgspec

from windfall.advisor.samples import GpuSample
from windfall.agent.errors import AgentError

#: What a driver may ask for, and what a meter may tell.
RECOVERIES = ("none", "drain", "reset", "reboot")
MEASURED = frozenset(field.name for field in fields(GpuSample))


class Reading(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One device at one moment. None is "not known here"."""

    id: str
    name: str
    memory_mib: int | None = None
    driver: str | None = None
    bus_id: str | None = None
    #: The whole GPU that a MIG slice is a part of.
    parent: str | None = None
    compute_capability: str | None = None
    #: As GpuDevice has it, and why it cannot be shared.
    sharing: str | None = None
    sharing_note: str | None = None
    simulated: bool = False
    #: Whether it does not answer at all.
    lost: bool = False
    #: Why nothing can run on it although it is well, such as MIG mode without a slice.
    unusable: str | None = None
    #: Memory errors since the driver was loaded or the device was reset.
    uncorrected_errors: int | None = None
    corrected_errors: int | None = None
    remap_pending: bool = False
    remap_failed: bool = False
    #: What the driver itself asks for: none, drain, or reset, reboot; None when it does not say.
    recovery: str | None = None
    #: What slows it down, other than the ordinary power limit.
    slowdowns: tuple[str, ...] = ()
    temperature_c: int | None = None
    #: Where it switches itself off.
    shutdown_c: int | None = None
    #: XID events since the reading before.
    xids: tuple[int, ...] = ()
    #: What a recorded device would measure while jobs run on it, for the sampler.
    meter: dict[str, float | list[float]] = {}
    power_limit_w: float | None = None
    sm_clock_max_mhz: float | None = None
    pcie_bytes_s: float | None = None


class HealthRules(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How patient the judge is."""

    #: A sick device that shows no sign of it for this long is healthy again.
    calm_s: float = 300.0
    #: A device that is slowed down for this long gets no new job.
    slow_s: float = 600.0
    #: So close to switching itself off it gets no new job.
    margin_c: int = 3


class RecordedSet(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Devices as a file describes them."""

    gpus: list[Reading]
    rules: HealthRules = HealthRules()
    #: Seconds between two looks at the file.
    every_s: float = 1.0


def read_set(path: str) -> RecordedSet:
    """Read a recorded set; AgentError says what is wrong with it."""
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(), type=RecordedSet)
    except OSError as error:
        raise AgentError(f"the recorded GPUs in {path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AgentError(f"{path} is not a set of recorded GPUs: {error}; see docs/gpus.md") from None
    ids = [reading.id for reading in found.gpus]
    if "" in ids or len(set(ids)) < len(ids):
        raise AgentError(f"{path} is not a set of recorded GPUs: every device needs an id of its own")
    for reading in found.gpus:
        if fault := _fault(reading):
            raise AgentError(f"{path} is not a set of recorded GPUs: {reading.id}: {fault}; see docs/gpus.md")
    return found


def _fault(reading: Reading) -> str | None:
    """What no device can be, though its JSON is well formed; a slip of the pen would else be played as nothing."""
    if reading.memory_mib is not None and reading.memory_mib < 1:
        return f"memory_mib is {reading.memory_mib}"
    if reading.recovery not in {None, *RECOVERIES}:
        return f"recovery is {reading.recovery!r}; it may be {', '.join(RECOVERIES)}"
    unknown = sorted(set(reading.meter) - MEASURED)
    if unknown:
        return f"nobody measures {', '.join(unknown)}"
    if [] in reading.meter.values():
        return "a list of measured values is empty"
    return None


def write_set(path: str, recorded: RecordedSet) -> None:
    """Write a recorded set, whole or not at all."""
    beside = f"{path}.new"
    with open(beside, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(recorded), indent=2) + b"\n")
    os.replace(beside, path)
