"""Whether the next run will be over before the one after it is due, judged by the runs that were.

Decides from how long past runs took from the moment they were started to their end, waiting and interruptions included,
because that is what a calendar sees. Says how many runs it judges by. Must not know where they are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from windfall.schedules.schedule import Tick


class ForecastVerdict(StrEnum):
    """What the past says about the next run."""

    #: Nine in ten were over within the time that there will be.
    FITS = "fits"
    #: Most were, but not nine in ten.
    TIGHT = "tight"
    #: Most were not.
    OVERRUNS = "overruns"
    #: No run after the next one is due, so that there is nothing to fit before.
    UNBOUNDED = "unbounded"
    #: There is no next run, or no run of the past to judge by.
    UNKNOWN = "unknown"


class Certainty(StrEnum):
    """How much the past is worth."""

    NONE = "none"
    LOW = "low"
    FAIR = "fair"
    GOOD = "good"


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is to be expected of the next run."""

    verdict: ForecastVerdict
    certainty: Certainty
    #: How many runs it is judged by, and how many of them would have been over in time.
    runs: int
    in_time: int
    median_ms: int | None = None
    #: Nine in ten took no longer.
    p90_ms: int | None = None
    #: From the next run to the one after it.
    room_ms: int | None = None

    @property
    def chance(self) -> float | None:
        """How likely it is in time: Laplace's rule, which promises nothing after few runs."""
        if self.room_ms is None or not self.runs:
            return None
        return (self.in_time + 1) / (self.runs + 2)


def durations_ms(ticks: Iterable[Tick]) -> list[int]:
    """How long the runs took that succeeded; one that failed or was stopped says nothing about the next."""
    return [
        tick.run_ended_at - tick.done_at
        for tick in ticks
        if tick.run_succeeded and tick.run_ended_at is not None and tick.done_at is not None
    ]


def forecast(durations: Sequence[int], due: Sequence[int]) -> Forecast:
    """The forecast for the first of the coming due times, with the second as its bound."""
    runs = len(durations)
    certainty = _certainty(runs)
    room_ms = due[1] - due[0] if len(due) > 1 else None
    if not runs:
        return Forecast(ForecastVerdict.UNKNOWN, certainty, 0, 0, room_ms=room_ms)
    ordered = sorted(durations)
    median_ms, p90_ms = _rank(ordered, 50), _rank(ordered, 90)
    in_time = runs if room_ms is None else sum(duration_ms <= room_ms for duration_ms in ordered)
    if not due:
        verdict = ForecastVerdict.UNKNOWN
    elif room_ms is None:
        verdict = ForecastVerdict.UNBOUNDED
    elif p90_ms <= room_ms:
        verdict = ForecastVerdict.FITS
    else:
        verdict = ForecastVerdict.TIGHT if median_ms <= room_ms else ForecastVerdict.OVERRUNS
    return Forecast(verdict, certainty, runs, in_time, median_ms, p90_ms, room_ms)


def _certainty(runs: int) -> Certainty:
    if runs == 0:
        return Certainty.NONE
    if runs < 5:
        return Certainty.LOW
    return Certainty.FAIR if runs < 20 else Certainty.GOOD


def _rank(ordered: Sequence[int], percent: int) -> int:
    """The smallest value that this many percent of all do not exceed."""
    return ordered[-(-len(ordered) * percent // 100) - 1]
