"""When jobs end, with ranges: the time to come is played many times, each time with lengths and losses drawn anew.

A range is claimed only for a job whose length is known from its steps, from earlier runs or because it was said. The
others are played too, with an assumption, because those that wait behind them depend on it. Must not draw by itself:
numbers between 0 and 1 are an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log

from windfall.deadlines.market import AGE_EDGES_S, LAST_AGE, age_of, index_of, rates_of
from windfall.deadlines.public_prior import public_prior
from windfall.forecast.copies import Copied, Estimates, start_s, top_of
from windfall.forecast.lengths import Basis, LogLengths, WorkEstimate, length_beyond
from windfall.forecast.playing import Assumptions, Bounds, Playing
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job

#: How often the time to come is played, and how often at least for a range to be claimed.
PLAYS, LEAST_PLAYS = 60, 20
#: What is assumed of a length that nobody knows, of the assumption in `estimate`: from a part to many times of it.
UNKNOWN_FACTORS = (0.02, 20.0)

Draw = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRange:
    """When a job is expected to end. Half of all ends are in the first range, nine of ten in the second."""

    at: int
    half: tuple[int, int]
    most: tuple[int, int]
    #: When it starts, in the middle of all plays; None for one that runs.
    start_at: int | None
    basis: Basis
    runs: int


@dataclass(frozen=True, slots=True)
class Ranges:
    """The expected ends of all jobs for which one can be claimed, at one moment."""

    at: int
    ends: dict[JobId, EndRange]
    #: Live jobs whose end is not known, and what would make it known, for people.
    unknown: dict[JobId, str]
    plays: int


def expected_ends(draw: Draw, plays: int, copied: Copied, bounds: Bounds | None = None) -> Ranges:
    """Play the copy again and again, as often as the bounds allow."""
    bounds = bounds or Bounds()
    estimates, played = Estimates(copied), 0
    jobs: dict[JobId, Job] = {}
    ends: dict[JobId, list[int | None]] = {}
    starts: dict[JobId, list[int]] = {}
    for _ in range(plays):
        playing = Playing(
            copied.state(), copied.now, drawn_assumptions(copied, estimates, draw), bounds
        ).play()
        if not playing.complete and not bounds.goes_on():
            break
        played += 1
        jobs = jobs or {job.id: job for job in playing.wholes()}
        for job_id, fate in playing.fates().items():
            ends.setdefault(job_id, []).append(fate.end_at if fate.succeeded else None)
            if fate.start_at is not None and fate.start_at > copied.now:
                starts.setdefault(job_id, []).append(fate.start_at)
    ranges, unknown = {}, {}
    for job_id, job in jobs.items():
        estimate = estimates.of(job)
        seen = sorted(end for end in ends[job_id] if end is not None)
        if not estimate.is_known:
            unknown[job_id] = "no earlier run of it has succeeded, and nobody said how long it works (--work)"
        elif played < LEAST_PLAYS:
            unknown[job_id] = "there are too many jobs to play the time to come often enough"
        elif len(seen) < played * 0.98:
            unknown[job_id] = "it may not get a place, or may not end well"
        else:
            ranges[job_id] = _range(seen, sorted(starts.get(job_id, ())), estimate)
    return Ranges(copied.now, ranges, unknown, played)


def drawn_assumptions(copied: Copied, estimates: Estimates, draw: Draw) -> Assumptions:
    """What one play assumes: every length and loss is drawn, and what jobs of one kind have in common once."""
    kinds: dict[LogLengths, tuple[float, float]] = {}
    shares: dict[JobId, float] = {}

    def work_s(job: Job, beyond_s: float) -> float:
        estimate = estimates.of(job)
        # The nodes of one job work together.
        share = shares.setdefault(top_of(job.id), draw()) if job.submission.nodes is not None else draw()
        if estimate.logs is not None:
            if estimate.logs not in kinds:
                kinds[estimate.logs] = estimate.logs.drawn(draw)
            return length_beyond(*kinds[estimate.logs], share, beyond_s)
        if not estimate.is_known:
            low, high = UNKNOWN_FACTORS if estimate.basis is Basis.NOTHING else (UNKNOWN_FACTORS[0], 1.0)
            usual_s = estimate.points[0] * low * (high / low) ** share
            return usual_s if usual_s > beyond_s else estimate.at(share, max(beyond_s, estimate.points[-1]))
        return estimate.at(share, beyond_s)

    return Assumptions(copied.offers, work_s, start_s, stays_s=lambda age_s: stays_s(age_s, draw()))


def stays_s(age_s: float, share: float) -> float | None:
    """How long an instance of a spot market stays from an age on, by the rates of public traces; None for weeks."""
    rates, budget, age = rates_of(None, public_prior()).ending, -log(max(1e-12, 1.0 - share)), age_of(age_s)
    stayed_s = 0.0
    while age <= LAST_AGE:
        rate = rates[index_of(up=True, long_up=True, long_down=True, age=age)]
        edge_s = AGE_EDGES_S[age] if age < LAST_AGE else float("inf")
        lasts_s = edge_s - max(age_s, AGE_EDGES_S[age - 1] if age else 0.0)
        if rate * lasts_s >= budget:
            return stayed_s + budget / rate
        budget -= rate * lasts_s
        stayed_s += lasts_s
        age += 1
    return None


def _range(ends: list[int], starts: list[int], estimate: WorkEstimate) -> EndRange:
    return EndRange(
        at=_quantile(ends, 0.5),
        half=(_quantile(ends, 0.25), _quantile(ends, 0.75)),
        most=(_quantile(ends, 0.05), _quantile(ends, 0.95)),
        start_at=_quantile(starts, 0.5) if len(starts) * 2 > len(ends) else None,
        basis=estimate.basis,
        runs=estimate.runs,
    )


def _quantile(rising: list[int], share: float) -> int:
    """The value that the next one is below with this probability."""
    position = min(max(share * (len(rising) + 1) - 1, 0.0), len(rising) - 1.0)
    index = min(int(position), len(rising) - 2) if len(rising) > 1 else 0
    low, high = rising[index], rising[min(index + 1, len(rising) - 1)]
    return int(low + (high - low) * (position - index))
