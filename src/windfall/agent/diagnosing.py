"""Looks at the end of a failed attempt's log, and has the advisor say why it failed.

Only for ends that are the attempt's own: one that was told to stop has its reason already. Reads little, because the
agent's loop waits for it: the last 64 KiB of the log, the newest sample where the kernel may have killed it for memory,
and what is new in the kernel's log where it held GPUs.
"""

from __future__ import annotations

import os
from math import isnan

import msgspec

from windfall.advisor.failures import TAIL_BYTES, AttemptEnd, diagnose
from windfall.agent.attempt import Attempt
from windfall.agent.attempt_files import newest_sample, samples_path
from windfall.agent.machine import Machine
from windfall.agent.messages import Exited

_SIGKILL_CODE = 137
#: An error says what it is in its beginning; a line of a megabyte must not keep the loop.
_MOST_CHARACTERS = 2_000


def diagnosed(attempt: Attempt, result: Exited, machine: Machine) -> Exited:
    """The result with a diagnosis, if it is a failure that shows its cause."""
    if result.exit_code == 0 or attempt.grace_s is not None or attempt.story.noticed is not None:
        return result
    peak = None
    if result.exit_code == _SIGKILL_CODE and result.reason is None:
        peak = _memory_share(attempt)
    ending = AttemptEnd(
        result.exit_code,
        result.reason,
        lines=log_tail(attempt.intended.log_path),
        kernel_lines=_device_errors(attempt, machine),
        memory_peak=peak,
    )
    found = diagnose(ending)
    return result if found is None else msgspec.structs.replace(result, diagnosis=found)


def log_tail(path: str, most_bytes: int = TAIL_BYTES) -> list[str]:
    """The last lines of a log; the first of them may be the rest of one."""
    content = _end_of(path, most_bytes)
    # Progress bars write over themselves; what stood there last is what a reader saw.
    lines = content.decode(errors="replace").splitlines()
    return [line.rpartition("\r")[2][:_MOST_CHARACTERS] for line in lines]


def _end_of(path: str, most_bytes: int) -> bytes:
    try:
        # Not blocking, and no links: who writes a log must not choose what is read.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        size = os.fstat(fd).st_size
        return os.pread(fd, most_bytes, max(0, size - most_bytes)) if size else b""
    except OSError:
        return b""
    finally:
        os.close(fd)


def _device_errors(attempt: Attempt, machine: Machine) -> list[str]:
    """What the driver told the kernel's log of the attempt's GPUs since it was accepted."""
    held = set(attempt.intended.gpu_ids)
    bus_ids = [gpu.bus_id for gpu in machine.gpus if gpu.id in held and gpu.bus_id is not None]
    if machine.kernel_log is None or not bus_ids:
        return []
    return machine.kernel_log.device_errors(bus_ids, attempt.intended.at)


def _memory_share(attempt: Attempt) -> float | None:
    """How much of its memory the attempt used when it was last looked at."""
    found = newest_sample(samples_path(attempt.intended.log_path))
    limit = attempt.intended.memory_mib << 20
    if found is None or not limit or isnan(found[1].memory_bytes):
        return None
    return found[1].memory_bytes / limit
