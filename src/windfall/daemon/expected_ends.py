"""The newest expected ends of all jobs: made in the background when somebody asks, and shared by all who ask.

Decides how often they are made. Must not know who sees which job.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Set
from functools import partial
from typing import Any

from windfall.daemon.forecast_copies import records_of, values_of
from windfall.daemon.forecast_process import ForecastFailed, ForecastProcesses, TooBusy, drawn_ends
from windfall.daemon.gateway import Gateway
from windfall.forecast.ranges import Ranges
from windfall.jobs.errors import Rejected
from windfall.jobs.ids import JobId

log = logging.getLogger(__name__)

#: They are made anew after this time at the earliest, and so rarely that they take a tenth of one processor.
ENDS_LAST_S, ENDS_COST = 15.0, 10.0


class ExpectedEnds:
    """The newest expected ends of all jobs, made anew when somebody asks and they are old; shared by all callers."""

    def __init__(self, gateway: Gateway, processes: ForecastProcesses) -> None:
        self._gateway, self._processes = gateway, processes
        self._newest: Ranges | None = None
        self._again_at = 0.0
        self._making: asyncio.Task[None] | None = None

    async def latest(self, wanted: Set[JobId], wait_s: float) -> Ranges | None:
        """What was found last; waits for the next if that says nothing of a wanted job."""
        if self._making is None and time.monotonic() >= self._again_at:
            # Asked for here: a daemon that does not lead refuses, and its client is sent on.
            values = await values_of(self._gateway)
            if values is not None and self._making is None:
                self._making = asyncio.create_task(self._make(values), name="expected ends")
        newest, making = self._newest, self._making
        jobs_known = set() if newest is None else newest.ends.keys() | newest.unknown.keys()
        if wait_s and making is not None and not wanted <= jobs_known:
            await asyncio.wait([making], timeout=wait_s)
        return self._newest

    async def _make(self, values: dict[str, Any]) -> None:
        begin = time.monotonic()
        try:
            work = partial(drawn_ends, random.randrange(1 << 62))
            self._newest = await self._processes.ask(work, lambda: records_of(self._gateway, values), values)
        except (TooBusy, ForecastFailed, Rejected) as error:
            log.info("expected ends are not known: %s", error)
        finally:
            took_s = time.monotonic() - begin
            self._again_at = time.monotonic() + max(ENDS_LAST_S, ENDS_COST * took_s)
            self._making = None
