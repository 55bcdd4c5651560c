"""Log groups: made, deleted, and what is declared of them.

Decides what exists: a group that was made, and any to which a job has logged since it was last deleted. Whether a job
has is for the caller to say; the core does not keep streams.
"""

from __future__ import annotations

from dataclasses import replace

from windfall.control.commands.logs import CreateLogGroup, DeleteLogGroup, SetLogGroup
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.errors import Conflict
from windfall.jobs.log_groups import LogGroup


def on_create_log_group(state: State, command: CreateLogGroup, round_: Round) -> LogGroup:
    """Make a group."""
    old = state.log_groups.get(command.name)
    if command.in_use or (old is not None and old.declared):
        raise Conflict("The specified log group already exists")
    deleted_at = None if old is None else old.deleted_at
    return _kept(
        state, LogGroup(command.name, round_.now, tags=dict(command.tags), deleted_at=deleted_at), round_
    )


def on_delete_log_group(state: State, command: DeleteLogGroup, round_: Round) -> None:
    """Delete a group; what it held stays hidden, and is removed."""
    _kept(state, LogGroup(command.name, round_.now, declared=False, deleted_at=round_.now), round_)


def on_set_log_group(state: State, command: SetLogGroup, round_: Round) -> LogGroup:
    """Change what is declared of a group."""
    group = state.log_groups.get(command.name) or LogGroup(command.name, round_.now)
    if command.retention_days is not None:
        group = replace(group, retention_days=command.retention_days or None)
    if command.tags is not None:
        group = replace(group, tags=dict(command.tags))
    return _kept(state, group, round_)


def _kept(state: State, group: LogGroup, round_: Round) -> LogGroup:
    state.log_groups[group.name] = group
    round_.changes.declared[LogGroup, group.name] = group
    return group
