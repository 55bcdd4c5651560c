"""How long a job works, as a distribution: from earlier runs of its like, or from what was said.

Few runs say little: with n of them the logarithm of the next length is distributed as Student's t around their mean,
with a spread that begins wide and is narrowed by what was seen. Many runs speak for themselves. Where nothing is
known nothing is claimed: a play then uses an assumption that is named. Must not know where runs are kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from math import erf, exp, log, sqrt

#: Points of a distribution, evenly spaced in probability.
POINTS = 199
#: The spread of lengths of one kind of job that is believed before any is seen (of their logarithm), and how many runs
#: that belief counts for.
PRIOR_SPREAD, PRIOR_RUNS = 0.5, 2
#: How far the work that somebody said is off, in the same measure, and what is left by a pace that is sure, or not yet.
SAID_SPREAD = 0.25
PACE_SPREAD, UNSURE_PACE_SPREAD = 0.1, 0.4
#: From this many runs on they are the distribution.
MANY_RUNS = 24
#: What has run longer than any known run: it goes on beyond t times as long with probability t to minus this.
TAIL = 1.5
#: What a play assumes where nothing at all is known.
USUAL_S = 3600.0


class Basis(StrEnum):
    """What an estimate rests on."""

    STEPS = "steps"
    EARLIER_RUNS = "earlier runs"
    SAID = "said"
    TIMEOUT = "timeout"
    NOTHING = "nothing"


#: Estimates that a range may be claimed from.
KNOWN = frozenset({Basis.STEPS, Basis.EARLIER_RUNS, Basis.SAID})


@dataclass(frozen=True, slots=True)
class LogLengths:
    """What few runs say: the mean and the spread of the logarithms of lengths, neither of them known well."""

    mean: float
    spread: float
    #: How many runs the spread is known by, and the mean.
    freedom: int
    runs: int

    def drawn(self, draw: Callable[[], float]) -> tuple[float, float]:
        """A mean and a spread that may be the true ones; all jobs of a kind have them in common."""
        squares = sum(_normal(draw()) ** 2 for _ in range(self.freedom))
        spread = self.spread * sqrt(self.freedom / max(squares, 1e-9))
        return self.mean + spread / sqrt(self.runs) * _normal(draw()), spread


def length_beyond(mean: float, spread: float, share: float, beyond_s: float) -> float:
    """The length that this share does not exceed of those beyond some seconds, where mean and spread are known."""
    below = 0.0 if beyond_s <= 0 else _normal_below((log(beyond_s) - mean) / spread)
    if below > 1 - 1e-6:
        return _tail(beyond_s, share)
    return max(beyond_s, exp(mean + spread * _normal(below + (1 - below) * share)))


def _tail(beyond_s: float, share: float) -> float:
    return max(beyond_s, 1.0) * exp(-log(1.0 - min(share, 0.999)) / TAIL)


@dataclass(frozen=True, slots=True)
class WorkEstimate:
    """The distribution of the work of a job, in seconds."""

    basis: Basis
    #: Its quantiles, rising.
    points: tuple[float, ...]
    #: How many earlier runs it is from.
    runs: int = 0
    #: What those say, where they are few.
    logs: LogLengths | None = None

    @property
    def is_known(self) -> bool:
        """Whether a range may be claimed from it."""
        return self.basis in KNOWN

    def at(self, share: float, beyond_s: float = 0.0) -> float:
        """The length that this share of such jobs does not exceed, of those that take longer than `beyond_s`."""
        count = len(self.points)
        below = bisect_right(self.points, beyond_s) / count
        if below >= 1.0 or count == 1:
            return max(self.points[0], beyond_s) if count == 1 and below < 1.0 else _tail(beyond_s, share)
        position = min(max((below + (1.0 - below) * share) * count - 0.5, 0.0), count - 1.0)
        index = min(int(position), count - 2)
        low, high = self.points[index], self.points[index + 1]
        return max(beyond_s, low + (high - low) * (position - index))


def estimate(
    runs: Sequence[float], said_s: float | None = None, timeout_s: float | None = None
) -> WorkEstimate:
    """What is known of a job: runs of its like in seconds, the work that was said, its timeout."""
    seen = sorted(max(1.0, run) for run in runs)
    if said_s is not None:
        return WorkEstimate(
            Basis.SAID, tuple(said_s * exp(SAID_SPREAD * _normal(share)) for share in _shares())
        )
    if len(seen) >= MANY_RUNS:
        return WorkEstimate(Basis.EARLIER_RUNS, _smoothed(seen), len(seen))
    if seen:
        logs = _log_lengths(seen)
        return WorkEstimate(Basis.EARLIER_RUNS, _student_points(logs), len(seen), logs)
    if timeout_s is not None:
        return WorkEstimate(Basis.TIMEOUT, (float(timeout_s),))
    return WorkEstimate(Basis.NOTHING, (USUAL_S,))


def by_pace(done_s: float, left_s: float, *, sure: bool) -> WorkEstimate:
    """The work of a job that counts its steps, from what it has done and what is left at its pace."""
    spread = PACE_SPREAD if sure else UNSURE_PACE_SPREAD
    points = tuple(done_s + left_s * exp(spread * _normal(share)) for share in _shares())
    return WorkEstimate(Basis.STEPS, points)


def _log_lengths(seen: Sequence[float]) -> LogLengths:
    logs, count = [log(run) for run in seen], len(seen)
    mean = sum(logs) / count
    squares = PRIOR_RUNS * PRIOR_SPREAD**2 + sum((each - mean) ** 2 for each in logs)
    freedom = PRIOR_RUNS + count - 1
    return LogLengths(mean, sqrt(squares / freedom), freedom, count)


def _student_points(logs: LogLengths) -> tuple[float, ...]:
    spread, even = logs.spread * sqrt(1 + 1 / logs.runs), logs.freedom + logs.freedom % 2
    return tuple(exp(logs.mean + spread * _student(share, even)) for share in _shares())


def _smoothed(seen: Sequence[float]) -> tuple[float, ...]:
    """Quantiles of what was seen; the next one may be beyond the shortest and the longest."""
    logs = [log(run) for run in seen]
    count = len(logs)
    mean = sum(logs) / count
    margin = sqrt(sum((each - mean) ** 2 for each in logs) / (count - 1)) / 2
    ends = [logs[0] - margin, *logs, logs[-1] + margin]
    points = []
    for share in _shares():
        position = share * (count + 1)
        index = min(int(position), count)
        points.append(exp(ends[index] + (ends[index + 1] - ends[index]) * (position - index)))
    return tuple(points)


@cache
def _shares() -> tuple[float, ...]:
    return tuple((number + 0.5) / POINTS for number in range(POINTS))


@cache
def _student(share: float, freedom: int) -> float:
    """The quantile of Student's t with an even number of degrees of freedom."""
    low, high = -1e4, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        if _student_below(middle, freedom) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _student_below(value: float, freedom: int) -> float:
    """How likely it is below a value; for an even number of degrees of freedom that is a finite sum."""
    ratio, term, total = 1.0 / (1.0 + value * value / freedom), 1.0, 0.0
    for number in range(freedom // 2):
        total += term
        term *= ratio * (2 * number + 1) / (2 * number + 2)
    return 0.5 + 0.5 * value / sqrt(freedom + value * value) * total


def _normal_below(value: float) -> float:
    return 0.5 * (1 + erf(value / sqrt(2)))


def _normal(share: float) -> float:
    """The quantile of the normal distribution."""
    low, high = -8.0, 8.0
    for _ in range(40):
        middle = (low + high) / 2
        if _normal_below(middle) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2
