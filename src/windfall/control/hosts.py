"""The hosts that the user listed: a record each, which the engine follows once it is durable.

Decides what can be listed. Must not know how a host is reached, nor look whether it answers.
"""

from __future__ import annotations

from dataclasses import replace

from windfall.capacity.hosts import Host
from windfall.capacity.labels import check_labels
from windfall.control.commands.hosts import AddHost, DrainHost, RemoveHost
from windfall.control.instructions import FollowHosts
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.errors import Conflict, NotFound

HOSTS_MAX = 10_000


def on_add_host(state: State, command: AddHost, round_: Round) -> Host:
    """List a host; one that is listed keeps its drain."""
    host = replace(command.host, labels=check_labels(command.host.labels.items()))
    listed = state.hosts.get(host.name)
    if listed is not None and listed.destination != host.destination:
        raise Conflict(
            f"{host.name} is {listed.destination} already; remove it first, or give this one another name"
        )
    if listed is None and len(state.hosts) >= HOSTS_MAX:
        raise Conflict(f"Maximum number of hosts ({HOSTS_MAX}) reached; remove one first")
    if listed is not None:
        host = replace(host, draining=listed.draining, added_at=listed.added_at)
    return _keep(state, host, round_)


def on_drain_host(state: State, command: DrainHost, round_: Round) -> Host:
    """Change whether new jobs are placed on a host."""
    return _keep(state, replace(_listed(state, command.name), draining=command.draining), round_)


def on_remove_host(state: State, command: RemoveHost, round_: Round) -> None:
    """Forget a host."""
    del state.hosts[_listed(state, command.name).name]
    round_.changes.declared[Host, command.name] = None
    round_.instructions.append(FollowHosts())


def _keep(state: State, host: Host, round_: Round) -> Host:
    state.hosts[host.name] = round_.changes.declared[Host, host.name] = host
    round_.instructions.append(FollowHosts())
    return host


def _listed(state: State, name: str) -> Host:
    host = state.hosts.get(name)
    if host is None:
        raise NotFound(f"{name[:100]!r} is not a host of this daemon; `windfall hosts list` shows them")
    return host
