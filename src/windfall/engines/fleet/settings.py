"""What tells one engine over many machines from another. Values only."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from windfall.engines.agent_link import Patience
from windfall.engines.fleet.standing import Silence
from windfall.engines.provisioning import SharedStock


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """What tells one engine over machines from another."""

    name: str = "hosts"
    silence: Silence = field(default_factory=Silence)
    patience: Patience = field(default_factory=Patience)
    stock: SharedStock = field(default_factory=SharedStock)
    #: What the daemon's copy of a log may have at most; 0 means no limit.
    log_limit_bytes: int = 0
    #: The clock for silences, in seconds; the simulation has its own.
    clock_s: Callable[[], float] = time.monotonic
