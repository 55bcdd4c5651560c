"""Which processes of a warm worker a signal to a child is meant for."""

from __future__ import annotations

from tests.unit.agent.stories import attempt_of
from windfall.agent.processes import ProcessStat
from windfall.agent.records import Hosted, Intended
from windfall.agent.stages import Story
from windfall.agent.workers.hosts import contained_keeper, worker_pids

KEEPER, FIRST, SECOND, THIRD, STRANGER = 10, 11, 12, 13, 99


def processes(*, keeper_ticks: int = 5) -> dict[int, ProcessStat]:
    """A keeper with a chain of three below it, each in a session of its own, and somebody else."""
    chain = [(KEEPER, 1), (FIRST, KEEPER), (SECOND, FIRST), (THIRD, SECOND), (STRANGER, 1)]
    return {
        pid: ProcessStat(pid, parent, pid, keeper_ticks if pid == KEEPER else 50, 0, "S")
        for pid, parent in chain
    }


def test_sigkill_is_for_all_and_sigterm_for_all_but_the_keeper():
    hosted = Hosted("t", KEEPER, 5, sandboxed=False)
    assert worker_pids(hosted, processes(), spare_keeper=False) == {KEEPER, FIRST, SECOND, THIRD}
    assert worker_pids(hosted, processes(), spare_keeper=True) == {FIRST, SECOND, THIRD}


def test_the_monitor_and_the_init_of_a_sandbox_are_spared_too():
    hosted = Hosted("t", KEEPER, 5, sandboxed=True)
    assert worker_pids(hosted, processes(), spare_keeper=True) == {THIRD}
    assert worker_pids(hosted, processes(), spare_keeper=False) == {KEEPER, FIRST, SECOND, THIRD}


def test_a_pid_that_was_given_to_another_process_is_left_alone():
    hosted = Hosted("t", KEEPER, 5, sandboxed=False)
    assert worker_pids(hosted, processes(keeper_ticks=6), spare_keeper=False) == set()
    assert worker_pids(None, processes(), spare_keeper=False) == set()


def test_only_the_keeper_of_a_container_is_told():
    attempt = attempt_of(Story(Intended("t", "t", "/log", [], 64, 1.0, sandboxed=False, at=0)))
    assert contained_keeper(attempt, processes()) == 0
    attempt.story.add(Hosted("t", KEEPER, 5, sandboxed=False))
    assert contained_keeper(attempt, processes()) == 0, "its worker is a process"
    attempt.story.add(Hosted("t", KEEPER, 5, sandboxed=True, container="worker-1"))
    assert contained_keeper(attempt, processes()) == KEEPER
    assert contained_keeper(attempt, processes(keeper_ticks=6)) == 0
