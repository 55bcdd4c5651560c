"""Which share of a fair-share queue of service jobs has the next turn.

Scores are those of ordinary queues (fair_share.py), with instances instead of vCPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from windfall.capacity.policies import INSTANCES
from windfall.scheduling.fair_share import Amount, FairShareView
from windfall.scheduling.service_views import WaitingService


def fair_turns(waiting: Iterable[WaitingService], shares: FairShareView) -> Iterator[WaitingService]:
    """The waiting jobs one by one, the share of the lowest score first; each turn is charged to its share."""
    lines: dict[str, list[WaitingService]] = {}
    for job in sorted(waiting, key=lambda job: (job.priority, -job.order)):
        lines.setdefault(job.share, []).append(job)
    had: dict[str, float] = {}

    def score(name: str) -> tuple[float, int]:
        more = Amount(had.get(name, 0.0))
        return shares.share(name).score(shares.total, more), lines[name][-1].order

    while lines:
        name = min(lines, key=score)
        job = lines[name].pop()
        had[name] = had.get(name, 0.0) + job.needs.get(INSTANCES, 0.0)
        if not lines[name]:
            del lines[name]
        yield job
