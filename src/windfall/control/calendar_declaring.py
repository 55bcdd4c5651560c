"""Schedules and their groups: commands that declare them, and the limits on how many there are.

Each handler either changes everything it should or raises Rejected having changed nothing. The group `default` is
always there: it is written down when something first needs a row of it. Deletions are remembered by the token of their
request: a client whose answer got lost asks again with the same token, perhaps another daemon or after a restart, and
must hear that it is done instead of 404. Must not know what happens when a schedule is due; agenda.py hears about every
change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from windfall.capacity.environments import Switch
from windfall.control.agenda import policies, watch_schedule
from windfall.control.commands import calendar as commands
from windfall.control.declaring import retagged
from windfall.control.round import Round
from windfall.control.state import CLIENT_TOKEN_MS, State
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.submitters import Submitter
from windfall.jobs.tenants import given_name, split_name, split_schedule
from windfall.schedules.due_times import Due, next_due
from windfall.schedules.errors import LimitReached, ScheduleError
from windfall.schedules.expressions import At, parse
from windfall.schedules.schedule import DEFAULT_GROUP, Deletion, Schedule, ScheduleGroup
from windfall.schedules.tag_rules import check_policy_tags

GROUPS_MAX = 500
SCHEDULES_MAX = 10_000
#: A schedule is as exact as a minute, so that at() may name the minute that is just going on.
JUST_NOW_MS = 60_000


def on_create_schedule(state: State, command: commands.CreateSchedule, round_: Round) -> Schedule:
    """Declare a schedule; the same request a second time (by its token, in the document) is not an error."""
    schedule = command.schedule
    _require_group(state, schedule.group)
    existing = state.schedules.get(schedule.key)
    if existing is not None:
        if existing.document == schedule.document:
            return existing
        raise Conflict(f"Schedule {schedule.name} already exists.")
    if _of_tenant(schedule.group, (it.group for it in state.schedules.values())) >= SCHEDULES_MAX:
        raise LimitReached(f"There are {SCHEDULES_MAX} schedules already; delete some first")
    schedule = replace(schedule, created_at=round_.now, modified_at=round_.now, tags={})
    schedule = replace(schedule, decided_at=_undecided_since(schedule, round_.now))
    _check_comes(state, schedule)
    if schedule.group not in state.schedule_groups:  # a default one: the others were asked for above
        _keep_group(state, ScheduleGroup(schedule.group, round_.now, round_.now), round_)
    return _keep(state, schedule, round_)


def on_update_schedule(state: State, command: commands.UpdateSchedule, round_: Round) -> Schedule:
    """Replace a schedule; its tags, and what is remembered of its ticks, stay.

    New times count from now on. Where the times did not change, none that is due already gets lost.
    """
    wanted = command.schedule
    old = _schedule(state, wanted.key)
    new = replace(
        wanted, created_at=old.created_at, modified_at=round_.now, tags=old.tags, last_run=old.last_run
    )
    new = replace(new, submitter=_submitter_after(old, wanted))
    if _times(new) == _times(old) and old.switch is Switch.ENABLED:
        new = replace(new, decided_at=old.decided_at)
    else:
        new = replace(new, decided_at=max(old.decided_at, _undecided_since(new, round_.now)))
    if _times(new) != _times(old):
        _check_comes(state, new)
    return _keep(state, new, round_)


def _submitter_after(old: Schedule, wanted: Schedule) -> Submitter:
    """Whose rights a schedule has after an update: a key that pauses it does not lend its rights to the target.

    The rights never grow, not even where the target changes: a client that reads a schedule and writes it back may
    send a target that somebody else has replaced meanwhile.
    """
    before, now = old.submitter, wanted.submitter
    if now.has_rights_of(before):
        return now
    if now.is_admin or wanted.target == old.target:
        return before
    if now.user != before.user:
        raise Conflict(
            f"Jobs of schedule {old.name} run as another user than those of this key: its target can be changed with a"
            " key of that user or an admin key; or create a schedule of another name."
        )
    return now


def on_delete_schedule(state: State, command: commands.DeleteSchedule, round_: Round) -> None:
    """Remove a schedule; what it started goes on."""
    if is_done(state, command.key, command.client_token, round_.now):
        return
    _schedule(state, command.key)
    _remove(state, command.key, round_)
    note_deletion(state, command.key, command.client_token, round_)


def on_create_schedule_group(
    state: State, command: commands.CreateScheduleGroup, round_: Round
) -> ScheduleGroup:
    """Declare a group; the same request a second time (by its token) is not an error."""
    group = command.group
    existing = state.schedule_groups.get(group.name)
    if existing is not None and group.client_token is not None and _same_request(existing, group):
        return existing
    if existing is not None or given_name(group.name) == DEFAULT_GROUP:
        raise Conflict(f"Schedule group {given_name(group.name)} already exists.")
    if _of_tenant(group.name, state.schedule_groups) >= GROUPS_MAX:
        raise LimitReached(f"There are {GROUPS_MAX} schedule groups already; delete one first")
    tags = _retagged({}, group.tags)
    return _keep_group(
        state, replace(group, tags=tags, created_at=round_.now, modified_at=round_.now), round_
    )


def on_delete_schedule_group(state: State, command: commands.DeleteScheduleGroup, round_: Round) -> None:
    """Remove a group with all its schedules."""
    if given_name(command.name) == DEFAULT_GROUP:
        raise Invalid("The default schedule group cannot be deleted; delete its schedules instead")
    # A key of its own: a tenant's group and a schedule of another tenant can have the same one.
    key = f"{command.name}/"
    if is_done(state, key, command.client_token, round_.now):
        return
    _require_group(state, command.name)
    for schedule_key in _keys_of(state, command.name):
        _remove(state, schedule_key, round_)
    del state.schedule_groups[command.name]
    round_.changes.declared[ScheduleGroup, command.name] = None
    note_deletion(state, key, command.client_token, round_)


def on_tag_schedules(state: State, command: commands.TagSchedules, round_: Round) -> None:
    """Add and remove tags of a group, or of one schedule."""
    if command.name is not None:
        schedule = _schedule(state, f"{command.group}/{command.name}")
        tags = _retagged(schedule.tags, command.add, command.remove)
        _keep(state, replace(schedule, tags=tags), round_)
        return
    _require_group(state, command.group)
    group = state.schedule_groups.get(command.group, ScheduleGroup(command.group, round_.now, round_.now))
    tags = _retagged(group.tags, command.add, command.remove)
    _keep_group(state, replace(group, tags=tags, modified_at=round_.now), round_)
    for key in _keys_of(state, command.group):
        watch_schedule(state, key, round_)


def _schedule(state: State, key: str) -> Schedule:
    if key not in state.schedules:
        raise NotFound(f"Schedule {split_schedule(key)[1]} does not exist.")
    return state.schedules[key]


def _require_group(state: State, name: str) -> None:
    if given_name(name) != DEFAULT_GROUP and name not in state.schedule_groups:
        raise NotFound(f"Schedule group {given_name(name)} does not exist.")


def _of_tenant(group: str, groups: Iterable[str]) -> int:
    """How many of these groups, each counted as often as it is named, are of the tenant of `group`."""
    tenant, _ = split_name(group)
    return sum(split_name(name)[0] == tenant for name in groups)


def _same_request(group: ScheduleGroup, other: ScheduleGroup) -> bool:
    return group.client_token == other.client_token and dict(group.tags) == dict(other.tags)


def _keys_of(state: State, group: str) -> list[str]:
    return [key for key, schedule in state.schedules.items() if schedule.group == group]


def _keep(state: State, schedule: Schedule, round_: Round) -> Schedule:
    state.schedules[schedule.key] = schedule
    round_.changes.declared[Schedule, schedule.key] = schedule
    watch_schedule(state, schedule.key, round_)
    return schedule


def _remove(state: State, key: str, round_: Round) -> None:
    del state.schedules[key]
    round_.changes.declared[Schedule, key] = None
    watch_schedule(state, key, round_)


def _keep_group(state: State, group: ScheduleGroup, round_: Round) -> ScheduleGroup:
    state.schedule_groups[group.name] = group
    round_.changes.declared[ScheduleGroup, group.name] = group
    return group


def _retagged(
    tags: Mapping[str, str], add: Mapping[str, str], remove: tuple[str, ...] = ()
) -> dict[str, str]:
    check_policy_tags(add)
    return retagged(tags, add, remove)


def _times(schedule: Schedule) -> tuple[str, str, int | None, int | None]:
    return schedule.expression, schedule.timezone, schedule.start_at, schedule.end_at


def _undecided_since(schedule: Schedule, now: int) -> int:
    """The time after which due times count: now is one, as rate() without a start date begins at once."""
    return now - JUST_NOW_MS if isinstance(parse(schedule.expression), At) else now - 1


def _check_comes(state: State, schedule: Schedule) -> None:
    """Refuse a schedule that would never run: a mistake, and one that nobody would notice."""
    due = _first(state, schedule)
    if due is None:
        raise ScheduleError(
            f"{schedule.expression} in {schedule.timezone} is never due from now on"
            + ("" if schedule.end_at is None else " until its EndDate")
            + "; write a time that comes"
        )
    if due.skipped and isinstance(parse(schedule.expression), At):
        raise ScheduleError(f"{schedule.expression} would never run: {due.note}; write another time")


def _first(state: State, schedule: Schedule) -> Due | None:
    zone = state.rules.zones(schedule.timezone)
    return next_due(schedule, schedule.decided_at, zone, policies(state, schedule).summer_time)


#: As many as there may be schedules: all of them can be deleted at once.
DELETIONS_MAX = 10_000


def is_done(state: State, key: str, client_token: str | None, now: int) -> bool:
    """Whether this very request has been carried out before."""
    deletion = None if client_token is None else state.deletions.get(_request(key, client_token))
    return deletion is not None and now - deletion.at < CLIENT_TOKEN_MS


def note_deletion(state: State, key: str, client_token: str | None, round_: Round) -> None:
    """Remember a request that has just been carried out."""
    if client_token is None:
        return
    request = _request(key, client_token)
    # Out and in again, so that the oldest stay first.
    state.deletions.pop(request, None)
    state.deletions[request] = round_.changes.declared[Deletion, request] = Deletion(request, round_.now)
    forget_deletions(state, round_)


def forget_deletions(state: State, round_: Round) -> None:
    """Drop those that are too old, or too many."""
    while state.deletions:
        oldest = next(iter(state.deletions.values()))
        if len(state.deletions) <= DELETIONS_MAX and round_.now - oldest.at < CLIENT_TOKEN_MS:
            return
        del state.deletions[oldest.request]
        round_.changes.declared[Deletion, oldest.request] = None


def _request(key: str, client_token: str) -> str:
    return f"{key} {client_token}"
