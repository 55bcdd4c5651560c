"""Copies of worlds, as forecasts are made from them."""

from __future__ import annotations

import copy
from typing import Any

from tests.builders import TestWorld, a_job, a_machine, a_world
from windfall.forecast.copies import Copied
from windfall.jobs.ids import JobId

MINUTE_MS = 60_000


def copied(world: TestWorld, **values: Any) -> Copied:
    """The world as it is now; `runs` are seconds by job."""
    runs = {JobId(job): tuple(lengths) for job, lengths in values.pop("runs", {}).items()}
    return Copied(
        now=world.now,
        records=lambda: copy.deepcopy(world.store.load()),
        rules=world.state.rules,
        offers=world.state.offers,
        runs=runs,
        **values,
    )


def a_full_world(jobs: int = 4) -> TestWorld:
    """A host with room for two jobs, both running for a minute, and others that wait."""
    world = a_world(a_machine(vcpus=4)).declared()
    world.submits(*(a_job(f"job-{number}").vcpus(2) for number in range(jobs))).ready()
    return world.starts("job-0", "job-1").later(MINUTE_MS)
