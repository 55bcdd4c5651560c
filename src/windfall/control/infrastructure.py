"""An environment's infrastructure changes while jobs run: instances that it would not launch any more are replaced.

Such an instance takes nothing new and goes when its jobs have left it; they have until a time that the update sets, and
then notice. Shares of a machine stay: there is nothing to replace.
"""

from __future__ import annotations

from windfall.capacity import catalog
from windfall.capacity.environments import ComputeEnvironment
from windfall.capacity.machines import Instance, InstanceState
from windfall.control.instances import let_go_if_left
from windfall.control.interrupting import take_away
from windfall.control.round import Round
from windfall.control.state import State

WORDS = "the infrastructure of its compute environment was updated"


def replace_outdated(
    state: State, old: ComputeEnvironment, new: ComputeEnvironment, jobs_have_s: float, round_: Round
) -> None:
    """Let instances go that an updated environment would not launch any more."""
    same = (old.provisioning, old.instance_types) == (new.provisioning, new.instance_types)
    if same and old.bid_percent == new.bid_percent:
        return
    allowed = _allowed(new)
    for instance in [instance for instance in state.instances.values() if instance.environment == new.name]:
        outdated = (
            old.provisioning is not new.provisioning
            or old.bid_percent != new.bid_percent
            or (allowed is not None and instance.type not in allowed)
        )
        if outdated and not instance.is_share and instance.state is not InstanceState.TERMINATING:
            instance.move(InstanceState.TERMINATING)
            instance.leave_at = round_.now + int(jobs_have_s * 1000)
            round_.changes.instances[instance.id] = instance
            state.unsettled = True
            let_go_if_left(state, instance, round_)


def ask_to_leave(state: State, round_: Round) -> None:
    """Give notice to what still runs on instances that are to be replaced soon."""
    notice_ms = int(state.rules.notice_s * 1000)
    due = [instance for instance in state.instances.values() if _is_due(instance, round_.now + notice_ms)]
    for instance in due:
        assert instance.leave_at is not None
        take_away(state, instance.id, max(instance.leave_at, round_.now), WORDS, round_)


def _is_due(instance: Instance, by: int) -> bool:
    return instance.leave_at is not None and instance.reclaim_at is None and instance.leave_at <= by


def _allowed(environment: ComputeEnvironment) -> set[str] | None:
    """The types that it may launch; None when its words are not the catalog's, so that nobody can tell."""
    if not environment.instance_types:
        return None
    try:
        return {kind.name for kind in catalog.expand(environment.instance_types)}
    except catalog.UnknownInstanceType:
        return None
