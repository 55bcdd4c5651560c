"""The table of best actions: a stochastic dynamic programme over work left, slack, market state and mode.

Slack is the time until the deadline that is not needed for the work left. Work on a place costs no slack; waiting
does, and each changeover does. So the value of a situation depends on four things alone, and one table serves every
job with the same changeover and prices, however long it is.

Takes seconds: the daemon solves tables outside of its loop. Must not know the time.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from windfall.deadlines.market import (
    AGES,
    STATES,
    MarketRates,
    advances,
    older,
    turned,
)


class SpotAction(IntEnum):
    """What to do until the next tick."""

    WAIT = 0
    SPOT = 1
    ON_DEMAND = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTerms:
    """What a table is solved for. Times are in seconds; on-demand capacity costs 1 an hour."""

    #: The expected time from the decision until a new place works on, with what has to be done again.
    changeover_s: float
    #: The changeover that the shield counts with, longer than nearly every one.
    shield_s: float
    spot_price: float
    #: Decisions are made this often.
    tick_s: float = 600.0
    #: The most work, in ticks, and the most slack that the table knows.
    work_ticks: int = 288
    slack_ticks: int = 288


@dataclass(frozen=True, slots=True)
class PolicyTable:
    """The best actions, and what they cost on average, for one set of terms."""

    terms: PolicyTerms
    slacks: tuple[float, ...]
    #: By work, then slack, then state: what to do without a place, and whether to leave on-demand capacity for spot.
    idle_actions: Sequence[bytes]
    paid_actions: Sequence[bytes]
    #: The expected cost without a place, in hours of on-demand capacity; of every eighth layer, to save memory.
    costs: Sequence[array[float]]


#: How many layers apart costs are kept.
COST_EVERY = 8
#: The states that are up, and of those that are down where they begin.
_UP = range(STATES // 2, STATES)
_OLDER = [older(state) for state in range(STATES)]
_TURNED = [turned(state) for state in range(STATES)]
_Rows = list[list[float]]
#: For each state: how likely it stays as it is, reaches the next age, and ends, within some time.
_Step = tuple[list[float], list[float], list[float]]


def slack_grid(terms: PolicyTerms) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The slacks that a table has, and for each the number of the one that waiting leads to.

    Half ticks near the shield, then ticks, then two: a wait lasts as long as its step.
    """
    tick = terms.tick_s
    fine = 2 * round((4 * terms.shield_s + 4 * tick) / tick)
    slacks = [tick / 2 * number for number in range(fine + 1)]
    before = [max(0, number - 2) for number in range(fine + 1)]
    while slacks[-1] < terms.slack_ticks * tick:
        slacks.append(slacks[-1] + tick * (1 if slacks[-1] < 144 * tick else 2))
        before.append(len(slacks) - 2)
    return tuple(slacks), tuple(before)


def solve(rates: MarketRates, terms: PolicyTerms) -> PolicyTable:
    """Solve the programme, one tick of work after another."""
    slacks, before = slack_grid(terms)
    solver = _Solver(rates, terms, slacks, before)
    idle_actions, paid_actions, costs = [], [], []
    for layer in range(terms.work_ticks):
        idle, paid = solver.next_layer()
        idle_actions.append(idle)
        paid_actions.append(paid)
        if layer % COST_EVERY == 0:
            costs.append(array("f", (value for column in solver.idle_columns for value in column)))
    return PolicyTable(terms, slacks, idle_actions, paid_actions, costs)


class _Solver:
    """The values of one layer (an amount of work left), from those of the layer before."""

    def __init__(
        self, rates: MarketRates, terms: PolicyTerms, slacks: tuple[float, ...], before: tuple[int, ...]
    ) -> None:
        self.rates, self.terms, self.slacks, self.before = rates, terms, slacks, before
        tick, changeover = terms.tick_s, terms.changeover_s
        self.hour = tick / 3600.0
        #: A changeover is looked at in steps of about a tick: its place may be lost meanwhile.
        self.parts = max(1, round(changeover / tick))
        self.running = _step(rates, tick)
        self.changing = _step(rates, changeover / self.parts)
        self.waits = [
            _step(rates, slacks[number] - slacks[earlier] if number != earlier else tick)
            for number, earlier in enumerate(before)
        ]
        self.waits = _shared(self.waits)
        self.hop = [rates.hops(state, tick) for state in range(STATES)]
        self.hops = any(self.hop)
        self.shift = _shift(slacks, changeover)
        self.half_shift = _shift(slacks, changeover / 2)
        #: Waiting must leave time for one changeover, and spot capacity for two: this is the shield.
        self.may_wait = [slacks[number] - tick >= terms.shield_s for number in range(len(slacks))]
        self.spot_from = next(
            (number for number, slack in enumerate(slacks) if slack >= 2 * terms.shield_s), len(slacks)
        )
        none = [0.0] * len(slacks)
        self.idle: _Rows = [none] * STATES
        self.idle_earlier: _Rows = self.idle
        self.spot: _Rows = [none] * STATES
        self.paid: _Rows = [none] * STATES
        self.idle_columns: list[list[float]] = []

    def next_layer(self) -> tuple[bytes, bytes]:
        """Go on to one more tick of work; answers the actions without a place, and on demand."""
        spot_stay = self._on_spot()
        spot_enter = self._into_spot(spot_stay)
        paid_stay = self._on_demand()
        paid_enter = self._into_on_demand(paid_stay)
        columns, actions = self._waiting(spot_enter, paid_enter)
        self.idle_earlier, self.idle = self.idle, [list(row) for row in zip(*columns, strict=True)]
        self.idle_columns = columns
        self.spot = spot_stay
        self.paid = [
            [min(enter, stay) for stay, enter in zip(paid_stay[state], spot_enter[state], strict=True)]
            for state in range(STATES)
        ]
        leaving = zip(
            *(
                [enter < stay for stay, enter in zip(paid_stay[state], spot_enter[state], strict=True)]
                for state in range(STATES)
            ),
            strict=True,
        )
        return actions, b"".join(bytes(column) for column in leaving)

    def _lost(self, rows: _Rows, state: int) -> list[float]:
        """What follows when the place on spot capacity is lost in a state."""
        return rows[_TURNED[state]]

    def _hopped(self, rows: _Rows) -> dict[int, list[float]]:
        """By the first state of a history: what follows when another zone is up at the moment of the loss."""
        hopped = {}
        for base in range(STATES // 2, STATES, AGES):
            weights = self.rates.hop_ages
            hopped[base] = [
                sum(weight * value for weight, value in zip(weights, values, strict=True))
                for values in zip(*rows[base : base + AGES], strict=True)
            ]
        return hopped

    def _on_spot(self) -> _Rows:
        """One tick of work on the place that it has."""
        stays, ages, ends = self.running
        cost = self.hour * self.terms.spot_price
        rows: _Rows = [[] for _ in range(STATES)]
        hopped = self._hopped(self.idle) if self.hops else {}
        for state in _UP:
            a, b, c = stays[state], ages[state], ends[state]
            values = [
                cost + a * same + b * next_age + c * lost
                for same, next_age, lost in zip(
                    self.spot[state], self.spot[_OLDER[state]], self._lost(self.idle, state), strict=True
                )
            ]
            hop = self.hop[state]
            if hop:
                away = hopped[state - state % AGES]
                values = [
                    (1 - hop) * value + hop * (cost + other)
                    for value, other in zip(values, away, strict=True)
                ]
            rows[state] = values
        return rows

    def _into_spot(self, stay: _Rows) -> _Rows:
        """A changeover to spot capacity, and one tick of work there."""
        stays, ages, ends = self.changing
        changeover = self.terms.changeover_s / 3600.0 * self.terms.spot_price
        rows: _Rows = [[float("inf")] * len(self.slacks) for _ in range(STATES)]
        # Lost before it worked: the work of this tick is still to do, which costs about what the one before did.
        lost = {}
        for state in _UP:
            down = _TURNED[state]
            if down not in lost:
                again = [
                    2 * late - early
                    for late, early in zip(self.idle[down], self.idle_earlier[down], strict=True)
                ]
                lost[down] = [value - changeover / 2 for value in _shifted(again, self.half_shift)]
        chain = {state: [value + changeover for value in _shifted(stay[state], self.shift)] for state in _UP}
        charged = {down: [value + changeover for value in row] for down, row in lost.items()}
        for _ in range(self.parts):
            chain = {
                state: [
                    stays[state] * same + ages[state] * next_age + ends[state] * away
                    for same, next_age, away in zip(
                        chain[state], chain[_OLDER[state]], charged[_TURNED[state]], strict=True
                    )
                ]
                for state in _UP
            }
        for state in _UP:
            rows[state][self.spot_from :] = chain[state][self.spot_from :]
        return rows

    def _on_demand(self) -> _Rows:
        """One tick of work on demand."""
        rows = _stepped(self.paid, self.running)
        return [[self.hour + value for value in row] for row in rows]

    def _into_on_demand(self, stay: _Rows) -> _Rows:
        """A changeover to on-demand capacity, and one tick of work there."""
        changeover = self.terms.changeover_s / 3600.0
        rows = stay
        for _ in range(self.parts):
            rows = _stepped(rows, self.changing)
        return [[changeover + value for value in _shifted(row, self.shift)] for row in rows]

    def _waiting(self, spot_enter: _Rows, paid_enter: _Rows) -> tuple[list[list[float]], bytes]:
        """Without a place, from the least slack on, because waiting leads to less."""
        columns: list[list[float]] = []
        actions = []
        spot_columns = list(zip(*spot_enter, strict=True))
        paid_columns = list(zip(*paid_enter, strict=True))
        for number, earlier in enumerate(self.before):
            spot, paid = spot_columns[number], paid_columns[number]
            best = [min(on_demand, into_spot) for into_spot, on_demand in zip(spot, paid, strict=True)]
            action = [
                1 if into_spot < on_demand else 2 for into_spot, on_demand in zip(spot, paid, strict=True)
            ]
            if self.may_wait[number]:
                then = columns[earlier]
                stays, ages, ends = self.waits[number]
                for state in range(STATES):
                    value = (
                        stays[state] * then[state]
                        + ages[state] * then[_OLDER[state]]
                        + ends[state] * then[_TURNED[state]]
                    )
                    if value < best[state]:
                        best[state], action[state] = value, 0
            columns.append(best)
            actions.append(bytes(action))
        return columns, b"".join(actions)


def _step(rates: MarketRates, seconds: float) -> _Step:
    """How the market moves within some seconds."""
    ends = [rates.leaves(state, seconds) for state in range(STATES)]
    ages = [(1 - end) * advances(state, seconds) for state, end in enumerate(ends)]
    stays = [1 - end - age for end, age in zip(ends, ages, strict=True)]
    return stays, ages, ends


def _shared(steps: list[_Step]) -> list[_Step]:
    """The same steps, equal ones only once."""
    seen: dict[tuple[float, ...], _Step] = {}
    return [seen.setdefault(tuple(step[2]), step) for step in steps]


def _stepped(rows: _Rows, step: _Step) -> _Rows:
    """What is to be expected of rows of values when the market has moved by a step."""
    stays, ages, ends = step
    return [
        [
            stays[state] * same + ages[state] * next_age + ends[state] * other
            for same, next_age, other in zip(
                rows[state], rows[_OLDER[state]], rows[_TURNED[state]], strict=True
            )
        ]
        for state in range(STATES)
    ]


def _shift(slacks: tuple[float, ...], by: float) -> list[tuple[int, float]]:
    """For each slack, where it is in the grid when some is spent: the number below, and the part above that."""
    shift = []
    steps = list(pairwise(slacks))
    at = 0
    for slack in slacks:
        left = max(0.0, slack - by)
        while at + 1 < len(steps) and steps[at][1] <= left:
            at += 1
        low, high = steps[at]
        shift.append((at, (left - low) / (high - low)))
    return shift


def _shifted(row: list[float], shift: list[tuple[int, float]]) -> list[float]:
    return [row[at] + part * (row[at + 1] - row[at]) for at, part in shift]
