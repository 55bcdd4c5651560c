"""Decides how state on a device reaches the host: clone, overlapped copy, or a copy that is waited for. Pure."""

from __future__ import annotations

from enum import Enum

#: The job's next peak must fit beside a clone: at least this much of the device stays free.
MARGIN_BYTES = 1 << 30
MARGIN_SHARE = 0.04


class Tier(Enum):
    """What the training thread pays for a snapshot of one device's state."""

    #: A copy inside of the device's memory; the way to the host is another thread's.
    CLONE = "clone"
    #: A copy to the host beside the next forward and backward pass; the optimizer's step waits on the device.
    OVERLAP = "overlap"
    #: A copy to the host that the loop waits for.
    WAIT = "wait"


def choose(state_bytes: int, free_bytes: int, total_bytes: int, *, has_buffers: bool, guarded: bool) -> Tier:
    """The cheapest tier that is safe: `has_buffers` when the clone's memory is ours already, `guarded` when every
    optimizer can be made to wait."""
    margin = max(MARGIN_BYTES, int(total_bytes * MARGIN_SHARE))
    if has_buffers or free_bytes >= state_bytes + margin:
        return Tier.CLONE
    return Tier.OVERLAP if guarded else Tier.WAIT
