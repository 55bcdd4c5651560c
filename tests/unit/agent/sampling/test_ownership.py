"""Whose a process is: by session, by descent, and for as long as it lives; others' are not looked at each time."""

from __future__ import annotations

import pytest

from windfall.agent.sampling.ownership import Ownership
from windfall.agent.sampling.proc_files import ProcessTimes


class Machine:
    """A table of processes that counts how often each is looked at."""

    def __init__(self) -> None:
        self.table: dict[int, ProcessTimes] = {}
        self.looked: list[int] = []
        self.ownership = Ownership(lambda: sorted(self.table), self._look)

    def has(self, pid: int, ppid: int, session: int, start: int = 1) -> None:
        self.table[pid] = ProcessTimes(pid, ppid, session, "S", 0, 0, 1, start, 0)

    def _look(self, pid: int) -> ProcessTimes | None:
        self.looked.append(pid)
        return self.table.get(pid)

    def pids(self, *roots: int) -> dict[int, list[int]]:
        found = self.ownership.processes(roots)
        return {root: [process.pid for process in processes] for root, processes in found.items()}


@pytest.fixture
def machine() -> Machine:
    one = Machine()
    one.has(1, 0, 1)
    one.has(100, 1, 100)
    one.has(101, 100, 100)
    one.has(200, 1, 200)
    return one


def test_a_session_is_an_attempts(machine):
    assert machine.pids(100, 200) == {100: [100, 101], 200: [200]}


def test_a_process_in_a_session_of_its_own_is_its_parents(machine):
    machine.has(150, 101, 150)
    machine.has(160, 150, 160)
    assert machine.pids(100)[100] == [100, 101, 150, 160]


def test_a_child_that_is_listed_before_its_parent_is_found(machine):
    machine.has(50, 180, 50)
    machine.has(180, 100, 180)
    assert machine.pids(100)[100] == [50, 100, 101, 180]


def test_an_orphan_stays_with_its_attempt(machine):
    machine.has(150, 101, 150)
    machine.pids(100)
    machine.has(150, 1, 150)
    assert machine.pids(100)[100] == [100, 101, 150]


def test_a_pid_that_is_used_again_by_somebody_else_does_not_stay(machine):
    machine.has(150, 101, 150)
    machine.pids(100)
    machine.has(150, 1, 1, start=99)
    assert machine.pids(100)[100] == [100, 101]


def test_processes_of_others_are_not_looked_at_in_every_round(machine):
    machine.pids(100)
    machine.looked.clear()
    machine.pids(100)
    assert machine.looked == [100, 101]


def test_a_new_attempt_finds_processes_that_were_nobodys(machine):
    machine.pids(100)
    assert machine.pids(100, 200)[200] == [200]


def test_an_attempt_whose_processes_have_all_gone_has_none(machine):
    machine.pids(100)
    del machine.table[100], machine.table[101]
    assert machine.pids(100) == {100: []}
