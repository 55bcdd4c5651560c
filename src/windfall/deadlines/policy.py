"""One decision for one job: the table's best action, within the shield.

The shield makes a miss impossible while its assumptions hold: the work left is not more than was said, a changeover
takes no longer than `shield_s`, and on-demand capacity is available. A job without a place may wait only if a whole
changeover to on-demand capacity still fits after the next tick, and may try spot capacity only if two fit: one to
get there, and one to leave when it is lost at once. This holds for any table, also for a wrong one.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum

from windfall.deadlines.market import STATES, is_up
from windfall.deadlines.solving import COST_EVERY, PolicyTable, PolicyTerms, SpotAction


class JobMode(StrEnum):
    """What a job has now."""

    NONE = "none"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


class DecidedBy(StrEnum):
    """What decided."""

    #: The table: this is the cheapest on average.
    CHEAPEST = "cheapest"
    #: The shield: waiting, or trying spot capacity, could miss the deadline.
    SHIELD = "shield"
    #: The deadline cannot be kept for certain any more; this keeps it most likely.
    TOO_LATE = "too late"


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known about a job at a tick."""

    work_s: float
    #: The time until the deadline less the work left; negative when it cannot be kept.
    slack_s: float
    mode: JobMode
    #: The state of the pool that it could use, or uses.
    state: int
    #: How much slack may be gone at the next look although the job works: 0 while its work is what was said.
    shrinks_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do until the next tick, and what decided it."""

    action: SpotAction
    by: DecidedBy


def slack_for_spot(terms: PolicyTerms, situation: Situation) -> float:
    """The least slack to begin on spot capacity with; more than a job leaves it with, so that it does not return."""
    return 2 * (terms.shield_s + situation.shrinks_s)


def decide(table: PolicyTable, situation: Situation) -> Decision:
    """What a job does until the next tick."""
    terms, slack = table.terms, situation.slack_s
    if situation.mode is JobMode.SPOT:
        return _on_spot(terms, situation)
    available = is_up(situation.state)
    if situation.mode is JobMode.ON_DEMAND:
        leaves = (
            available
            and slack >= slack_for_spot(terms, situation)
            and _looked_up(table, situation) is SpotAction.SPOT
        )
        return Decision(SpotAction.SPOT if leaves else SpotAction.ON_DEMAND, DecidedBy.CHEAPEST)
    if slack < terms.shield_s:
        return Decision(SpotAction.ON_DEMAND, DecidedBy.TOO_LATE)
    action = _looked_up(table, situation)
    if action is SpotAction.SPOT and (not available or slack < slack_for_spot(terms, situation)):
        action = SpotAction.WAIT
    if action is not SpotAction.SPOT and slack < terms.shield_s + terms.tick_s + situation.shrinks_s:
        return Decision(SpotAction.ON_DEMAND, DecidedBy.SHIELD)
    return Decision(action, DecidedBy.CHEAPEST)


def _looked_up(table: PolicyTable, situation: Situation) -> SpotAction:
    """The table's own answer; a job that is larger than the table is looked up in proportion."""
    layer, column = _place_in(table, situation.work_s, situation.slack_s)
    at = column * STATES + situation.state
    if situation.mode is JobMode.ON_DEMAND:
        return SpotAction.SPOT if table.paid_actions[layer][at] else SpotAction.ON_DEMAND
    return SpotAction(table.idle_actions[layer][at])


def _place_in(table: PolicyTable, work_s: float, slack_s: float) -> tuple[int, int]:
    tick = table.terms.tick_s
    most = len(table.idle_actions) * tick
    if work_s > most:
        slack_s, work_s = slack_s * most / work_s, most
    layer = min(len(table.idle_actions), max(1, round(work_s / tick))) - 1
    return layer, max(0, bisect_right(table.slacks, slack_s) - 1)


def expected_cost(table: PolicyTable, state: int, work_s: float, slack_s: float) -> float:
    """What a job without a place is expected to cost, in hours of on-demand capacity."""
    layer, column = _place_in(table, work_s, slack_s)
    at, tick = column * STATES + state, table.terms.tick_s
    # Between the layers that are kept, and beyond the last one, cost is about a straight line.
    low = min(layer // COST_EVERY, max(0, len(table.costs) - 2))
    cost = table.costs[low][at]
    if low + 1 < len(table.costs):
        ticks = work_s / tick - (low * COST_EVERY + 1)
        cost += ticks / COST_EVERY * (table.costs[low + 1][at] - cost)
    return cost


def cost_of_deadline(table: PolicyTable, state: int, work_s: float, slack_s: float) -> float:
    """What a job costs more than with all the slack that the table has, in hours of on-demand capacity."""
    least = expected_cost(table, state, work_s, max(slack_s, table.slacks[-1]))
    return max(0.0, expected_cost(table, state, work_s, slack_s) - least)


def decide_steadily(terms: PolicyTerms, situation: Situation, lead_s: float) -> Decision:
    """What a job does while there is no table: Uniform Progress within the shield.

    `lead_s` is how far it is ahead of steady progress towards its deadline.
    """
    slack, available = situation.slack_s, is_up(situation.state)
    if situation.mode is JobMode.SPOT:
        return _on_spot(terms, situation)
    if situation.mode is JobMode.ON_DEMAND:
        ahead = lead_s >= 2 * terms.changeover_s
        leaves = available and ahead and slack >= slack_for_spot(terms, situation)
        return Decision(SpotAction.SPOT if leaves else SpotAction.ON_DEMAND, DecidedBy.CHEAPEST)
    if slack < terms.shield_s:
        return Decision(SpotAction.ON_DEMAND, DecidedBy.TOO_LATE)
    if available and slack >= slack_for_spot(terms, situation):
        return Decision(SpotAction.SPOT, DecidedBy.CHEAPEST)
    if slack < terms.shield_s + terms.tick_s + situation.shrinks_s:
        return Decision(SpotAction.ON_DEMAND, DecidedBy.SHIELD)
    return Decision(SpotAction.ON_DEMAND if lead_s < 0 else SpotAction.WAIT, DecidedBy.CHEAPEST)


def _on_spot(terms: PolicyTerms, situation: Situation) -> Decision:
    """Whether a job stays on the spot capacity that it has."""
    slack = situation.slack_s
    if slack >= terms.shield_s + situation.shrinks_s:
        return Decision(SpotAction.SPOT, DecidedBy.CHEAPEST)
    if slack >= terms.changeover_s:
        return Decision(SpotAction.ON_DEMAND, DecidedBy.SHIELD)
    # A changeover would be too late for certain; the place that it has may stay.
    return Decision(SpotAction.SPOT, DecidedBy.TOO_LATE)
