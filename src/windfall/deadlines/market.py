"""What is visible of a pool of spot capacity, and how likely it changes: rates by age, learnt from its history.

A pool that has been up for a day is a hundred times less likely to go in the next ten minutes than one that has just
come back, and the same is true of outages. So a state is: up or down, for how long, and whether the last time up
and the last outage were short. Counts of a public prior stand in for history that is not there yet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import exp, log

#: Histories are counted in probes of this length, as the public traces were taken.
PROBE_S = 600.0
#: Where one age ends and the next begins.
AGE_EDGES_S = (600.0, 1200.0, 2400.0, 4800.0, 9600.0, 19200.0, 38400.0)
AGES = len(AGE_EDGES_S) + 1
#: The last age has no end; an age is never older than this one.
LAST_AGE = AGES - 1
#: A time up, or an outage, below this is short. It is an edge, so that the age at the end tells.
SHORT_S = 4800.0
_SHORT_AGES = AGE_EDGES_S.index(SHORT_S) + 1
#: up or down, the last time up short or long, the last outage short or long, the age.
STATES = 2 * 2 * 2 * AGES
#: How many probes in each state the prior counts for, beside a pool's own: enough that a few weeks of a market which
#: then changes do not mislead (docs/deadlines.md).
PRIOR_PROBES = 100.0
#: No rate is believed to be above this: a state seen once or twice says little.
_MOST_LIKELY = 0.95


def age_of(seconds: float) -> int:
    """The number of the age that a time up, or an outage, has reached."""
    return bisect_right(AGE_EDGES_S, seconds)


def state_of(*, up: bool, seconds: float, last_up_s: float, last_down_s: float) -> int:
    """The state of a pool that has been up or down for some seconds."""
    return index_of(up, last_up_s >= SHORT_S, last_down_s >= SHORT_S, age_of(seconds))


def index_of(up: bool, long_up: bool, long_down: bool, age: int) -> int:
    """The number of a state."""
    return ((up * 2 + long_up) * 2 + long_down) * AGES + age


def is_up(state: int) -> bool:
    """Whether spot capacity is available in this state."""
    return state >= STATES // 2


def older(state: int) -> int:
    """The same state, one age on."""
    return state if state % AGES == LAST_AGE else state + 1


def turned(state: int) -> int:
    """The state at the moment in which this one ends: down if it was up, and the reverse."""
    was_up, long_up, long_down = is_up(state), bool(state // (2 * AGES) % 2), bool(state // AGES % 2)
    was_long = state % AGES >= _SHORT_AGES
    if was_up:
        return index_of(not was_up, was_long, long_down, 0)
    return index_of(not was_up, long_up, was_long, 0)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time during which a pool was up, or down. The last one of a history has not ended."""

    up: bool
    seconds: float
    ended: bool = True
    #: Whether it ended because its zone was lost while another zone of the pool was up: there was no outage.
    hopped: bool = False
    #: How long the zone had been up before this stretch began, for one that begins with a hop.
    age_s: float = 0.0


@dataclass(slots=True)
class Counts:
    """How many probes were made in each state, and how many of them found that it had ended."""

    probes: list[float] = field(default_factory=lambda: [0.0] * STATES)
    ends: list[float] = field(default_factory=lambda: [0.0] * STATES)
    #: In states that are up: how often the zone was lost while another was up, and that zone's age.
    hops: list[float] = field(default_factory=lambda: [0.0] * STATES)
    hop_ages: list[float] = field(default_factory=lambda: [0.0] * AGES)

    def add(self, history: Iterable[Stretch]) -> None:
        """Count a history of one pool, from its beginning."""
        last = {True: SHORT_S, False: SHORT_S}
        for stretch in history:
            begin = stretch.age_s
            end = begin + stretch.seconds
            base = index_of(stretch.up, last[True] >= SHORT_S, last[False] >= SHORT_S, 0)
            for age in range(AGES):
                low = AGE_EDGES_S[age - 1] if age else 0.0
                high = AGE_EDGES_S[age] if age < LAST_AGE else end
                self.probes[base + age] += max(0.0, min(end, high) - max(begin, low)) / PROBE_S
            # An end at an edge was seen by the last probe before it.
            at = base + bisect_right(AGE_EDGES_S, end - 1e-6)
            if stretch.hopped:
                self.hops[at] += 1
            elif stretch.ended:
                self.ends[at] += 1
                last[stretch.up] = end
            if stretch.age_s:
                self.hop_ages[age_of(stretch.age_s)] += 1


@dataclass(frozen=True, slots=True)
class MarketRates:
    """How a pool changes: of each state the rate, per second, at which it ends, and at which its zone goes."""

    ending: Sequence[float]
    hopping: Sequence[float]
    #: How likely the zone that is hopped to has each age.
    hop_ages: Sequence[float]

    def leaves(self, state: int, seconds: float) -> float:
        """How likely a state ends within some seconds."""
        return 1.0 - exp(-self.ending[state] * seconds)

    def hops(self, state: int, seconds: float) -> float:
        """How likely the zone in use is lost within some seconds while another one is up."""
        return 1.0 - exp(-self.hopping[state] * seconds)


def rates_of(own: Counts | None, prior: Counts, prior_probes: float = PRIOR_PROBES) -> MarketRates:
    """The rates that a pool's own history and the prior suggest together."""
    ending, hopping = [], []
    for state in range(STATES):
        before = prior.ends[state] / prior.probes[state] if prior.probes[state] else 0.5
        probes = prior_probes + (own.probes[state] if own else 0.0)
        ends = before * prior_probes + (own.ends[state] if own else 0.0)
        ending.append(_rate(ends / probes))
        hopping.append(_rate((own.hops[state] if own else 0.0) / probes))
    seen = [1.0] * AGES if own is None or not any(own.hop_ages) else own.hop_ages
    return MarketRates(ending, hopping, [count / sum(seen) for count in seen])


def _rate(share: float) -> float:
    """The rate per second that ends this share of all probes."""
    return -log(1.0 - min(_MOST_LIKELY, share)) / PROBE_S


def advances(state: int, seconds: float) -> float:
    """How likely a state that does not end reaches its next age within some seconds."""
    age = state % AGES
    if age == LAST_AGE:
        return 0.0
    width = AGE_EDGES_S[age] - (AGE_EDGES_S[age - 1] if age else 0.0)
    return min(1.0, seconds / width)
