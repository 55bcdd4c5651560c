"""The processes of a warm worker, seen from an attempt that it works for.

Decides which of them a signal to the attempt is meant for. Reads only what it is given: also an agent that did not
start the worker knows it by its record in the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windfall.agent.attempt import Attempt
from windfall.agent.processes import ProcessStat, members
from windfall.agent.records import Hosted
from windfall.agent.stages import Story

#: How the isolation of an attempt begins that runs in a warm worker.
WARM = "warm worker"


def runs_in_worker(story: Story) -> bool:
    """Return whether an attempt runs in a warm worker, or is to; journals of 0.1 say so only in the isolation."""
    return story.intended.in_worker or story.isolation.startswith(WARM)


def worker_pids(
    hosted: Hosted | None, processes: Mapping[int, ProcessStat], *, spare_keeper: bool
) -> set[int]:
    """Return the processes of an attempt's worker, with the keeper or without those that only keep the others."""
    if hosted is None or not _is_there(hosted, processes):
        return set()
    found = {stat.pid for stat in members(processes, {hosted.pid}).get(hosted.pid, [])}
    if not spare_keeper:
        return found
    keepers = {hosted.pid}
    # In a sandbox the monitor of the namespace would die and leave nobody to tell the exit code, and its init is deaf.
    for _ in range(2 if hosted.sandboxed else 0):
        keepers |= {stat.pid for stat in processes.values() if stat.ppid in keepers}
    return found - keepers


def contained_keeper(attempt: Attempt, processes: Mapping[int, ProcessStat]) -> int:
    """Return the keeper of an attempt whose worker is a container; 0 where it is none, or nobody keeps it."""
    hosted = attempt.story.hosted
    return hosted.pid if hosted is not None and hosted.container and _is_there(hosted, processes) else 0


def worker_hosts(attempts: Iterable[Attempt], processes: Mapping[int, ProcessStat]) -> dict[str, int]:
    """Return the keeper of each attempt that runs in a warm worker below it, by token."""
    found = {}
    for attempt in attempts:
        hosted = attempt.story.hosted
        if hosted is not None and not hosted.container and _is_there(hosted, processes):
            found[attempt.token] = hosted.pid
    return found


def _is_there(hosted: Hosted, processes: Mapping[int, ProcessStat]) -> bool:
    stat = processes.get(hosted.pid)
    return stat is not None and stat.start_ticks == hosted.start_ticks and stat.state != "Z"
