"""What time it is, as an argument: by the clock that nobody sets, by the calendar, and by that of the files.

Decides nothing. Its own module because everything that works with time here gets it from tests too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from windfall.agent.sync.scanning import Look


@dataclass(frozen=True, slots=True)
class Clocks:
    """Time, as an argument."""

    monotonic: Callable[[], float] = time.monotonic
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    sleep: Callable[[float], None] = time.sleep
    #: The time by the clock that files' own times are from; None where it is not known.
    of_files: Callable[[Look], int | None] = lambda look: look.clock_ns
