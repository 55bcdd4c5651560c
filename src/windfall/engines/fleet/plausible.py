"""The bounds of what a machine may say: its agent is another machine's program, and may be anything.

Decides which numbers, texts and moments are believed. A message beyond them ends the connection and nothing else; a
moment that has not come yet is now. Must not know attempts: whose they are is machines.py's to check. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import msgspec

from windfall.agent.errors import ProtocolError
from windfall.agent.messages import Inventory, Noticed, Result
from windfall.capacity.machines import GpuDevice, Machine
from windfall.control.gang_addresses import ADDRESS_FACT, INTERFACE_FACT
from windfall.engines.translation import with_moments

#: Every language and store has these integers, and twice as many milliseconds as anybody needs.
MOST_NUMBER = 1 << 53
MOST_TEXT_LETTERS = 1 << 16
#: The end of the year 9999: no calendar goes beyond.
LAST_MOMENT = 253_402_300_799_999
#: No cloud says earlier than this that it takes a machine.
_MOST_NOTICE_MS = 30 * 86_400_000
_ID = re.compile(r"[0-9a-z-]{1,64}", re.ASCII)
_INTERFACE = re.compile(r"[0-9A-Za-z_.@-]{0,32}", re.ASCII)
_MOST_VCPUS, _MOST_MEMORY_MIB, MOST_GPUS = 100_000, 1 << 32, 4_096

Said = TypeVar("Said", bound=msgspec.Struct)


def believed(said: Said, now: int) -> Said:
    """What a machine says, with no moment after `now`; raises ProtocolError for what no agent of ours says."""
    check_bounds(said, "the machine")
    if isinstance(said, Noticed) and said.deadline_at is not None:
        return msgspec.structs.replace(said, deadline_at=max(0, min(said.deadline_at, now + _MOST_NOTICE_MS)))
    return with_moments(said, lambda moment: max(0, min(moment, now)))


def all_believed(inventory: Inventory, results: Sequence[Result], now: int) -> tuple[Inventory, list[Result]]:
    """What an agent says at a connection, each part as `believed` has it."""
    return believed(inventory, now), [believed(result, now) for result in results]


def check_bounds(said: msgspec.Struct, who: str, most: int = MOST_NUMBER) -> None:
    """Refuse numbers that no store has, and texts that nobody reads; raises ProtocolError."""
    for value in _values(said):
        if isinstance(value, int) and abs(value) > most:
            raise ProtocolError(f"{who} sent a {type(said).__name__} with a number that cannot be")
        if isinstance(value, str) and len(value) > MOST_TEXT_LETTERS:
            raise ProtocolError(f"{who} sent a {type(said).__name__} with {len(value)} letters of text")


def _values(said: object) -> Iterator[object]:
    """All that a message has in it."""
    if isinstance(said, msgspec.Struct):
        parts: Iterable[Any] = [getattr(said, name) for name in said.__struct_fields__]
    elif is_dataclass(said):
        parts = [getattr(said, field.name) for field in fields(said)]
    elif isinstance(said, dict):
        parts = [*said.keys(), *said.values()]
    elif isinstance(said, list | tuple):
        parts = said
    else:
        yield said
        return
    for part in parts:
        yield from _values(part)


def implausible(machine: Machine) -> str | None:
    """What of an agent's description would do harm if it were believed; None if nothing would."""
    total = machine.total
    if not _ID.fullmatch(machine.id):
        return f"the id {machine.id[:80]!r}"
    for name, amount, most in (
        ("vCPUs", total.vcpus, _MOST_VCPUS),
        ("MiB of memory", total.memory_mib, _MOST_MEMORY_MIB),
        ("GPUs", total.gpus, MOST_GPUS),
    ):
        if not 0 <= amount <= most:  # False for what is not a number, too.
            return f"{amount} {name}"
    # Both are written to files and variables of the other nodes of a job.
    if not _is_address(address := machine.facts.get(ADDRESS_FACT, "")):
        return f"the address {address[:80]!r}"
    if not _INTERFACE.fullmatch(interface := machine.facts.get(INTERFACE_FACT, "")):
        return f"the network interface {interface[:80]!r}"
    return implausible_devices(machine.gpus)


def checked(machine: Machine, name: str) -> Machine:
    """A machine whose description has changed; raises ProtocolError if it cannot be."""
    if (lie := implausible(machine)) is not None:
        raise ProtocolError(f"{name} says of itself what cannot be: {lie}")
    return machine


def implausible_devices(gpus: Sequence[GpuDevice]) -> str | None:
    """What cannot be of the GPUs of one machine; None if they can."""
    if len(gpus) > MOST_GPUS:
        return f"{len(gpus)} GPUs"
    if len({gpu.id for gpu in gpus}) < len(gpus):
        return "two GPUs with one id"
    if any(not 0 <= (gpu.memory_mib or 0) <= _MOST_MEMORY_MIB for gpu in gpus):
        return "a GPU with a memory that cannot be"
    return None


def _is_address(text: str) -> bool:
    try:
        return not text or bool(ipaddress.ip_address(text))
    except ValueError:
        return False
