"""Counters of processes that come and go become rates: nothing is counted twice and nothing that ended is lost."""

from __future__ import annotations

import math

import pytest

from windfall.agent.sampling.proc_files import TICKS_S, ProcessTimes
from windfall.agent.sampling.usage import ProcessUsage

MIB = 1 << 20


def a_process(pid: int, cpu_s: float = 0.0, children_s: float = 0.0, **more) -> ProcessTimes:
    return ProcessTimes(
        pid=pid,
        ppid=1,
        session=1,
        state=more.get("state", "S"),
        cpu_ticks=round(cpu_s * TICKS_S),
        children_ticks=round(children_s * TICKS_S),
        threads=more.get("threads", 1),
        start_ticks=more.get("start", 5),
        resident_bytes=more.get("resident", MIB),
    )


class Machine:
    """Threads and storage as a test says they are."""

    def __init__(self) -> None:
        self.storage: dict[int, tuple[int, int] | None] = {}
        self.threads: dict[int, dict[int, ProcessTimes]] = {}
        self.usage = ProcessUsage(
            lambda pid: list(self.threads.get(pid, {})),
            lambda pid, thread: self.threads[pid].get(thread),
            lambda pid: self.storage.get(pid, (0, 0)),
        )

    def measure(self, *processes: ProcessTimes, span_s: float = 2.0):
        return self.usage.measure(processes, span_s)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_the_first_look_counts_from_the_beginning_of_the_processes(machine):
    used = machine.measure(a_process(10, cpu_s=3.0, resident=5 * MIB), a_process(11, cpu_s=1.0))
    assert used.cpu_cores == pytest.approx(2.0)
    assert (used.processes, used.resident_bytes, used.largest_bytes) == (2, 6 * MIB, 5 * MIB)


def test_later_looks_count_what_is_new(machine):
    machine.measure(a_process(10, cpu_s=100.0))
    assert machine.measure(a_process(10, cpu_s=101.0)).cpu_cores == pytest.approx(0.5)


def test_a_child_that_was_waited_for_is_counted_once(machine):
    machine.measure(a_process(10, cpu_s=1.0), a_process(11, cpu_s=4.0))
    # It used one second more and ended; all five seconds are now its parent's children's.
    used = machine.measure(a_process(10, cpu_s=1.0, children_s=5.0))
    assert used.cpu_cores == pytest.approx(0.5)


def test_a_child_that_came_and_went_between_two_looks_is_counted(machine):
    machine.measure(a_process(10, cpu_s=1.0))
    assert machine.measure(a_process(10, cpu_s=1.0, children_s=3.0)).cpu_cores == pytest.approx(1.5)


def test_a_child_that_nobody_waited_for_takes_nothing_away(machine):
    machine.measure(a_process(10, cpu_s=1.0), a_process(11, cpu_s=50.0))
    assert machine.measure(a_process(10, cpu_s=2.0)).cpu_cores == pytest.approx(0.5)


def test_a_pid_that_is_used_again_is_another_process(machine):
    machine.measure(a_process(10), a_process(11, cpu_s=9.0, start=5))
    used = machine.measure(a_process(10, children_s=9.0), a_process(11, cpu_s=2.0, start=700))
    assert used.cpu_cores == pytest.approx(1.0)


def test_storage_is_what_processes_moved_with_what_ended_counted_once(machine):
    machine.storage = {10: (0, 0), 11: (100 * MIB, 0)}
    machine.measure(a_process(10, cpu_s=1.0), a_process(11, cpu_s=1.0))
    # Reaped: its traffic, 20 MiB more than was seen, is its parent's now.
    machine.storage = {10: (120 * MIB, 4 * MIB)}
    used = machine.measure(a_process(10, cpu_s=1.1, children_s=1.0))
    assert (used.read_bytes_s, used.write_bytes_s) == (10 * MIB, 2 * MIB)


def test_storage_that_may_not_be_read_is_not_known(machine):
    machine.storage = {10: None}
    used = machine.measure(a_process(10, cpu_s=1.0))
    assert math.isnan(used.read_bytes_s)
    assert math.isnan(used.write_bytes_s)


def test_a_quiet_process_is_asked_for_its_storage_within_eight_rounds(machine):
    machine.measure(a_process(10))
    machine.storage = {10: (16 * MIB, 0)}
    seen = [machine.measure(a_process(10)).read_bytes_s for _ in range(8)]
    assert sum(seen) * 2.0 == 16 * MIB


def test_the_busiest_thread_is_found_in_the_busiest_process(machine):
    machine.threads = {10: {10: a_process(10, cpu_s=0.2), 12: a_process(12, cpu_s=1.8)}}
    used = machine.measure(a_process(10, cpu_s=2.0, threads=2), a_process(20, cpu_s=1.0))
    assert used.busiest_thread == pytest.approx(0.9)


def test_a_single_thread_is_its_process(machine):
    assert machine.measure(a_process(10, cpu_s=1.0), a_process(11, cpu_s=0.5)).busiest_thread == 0.5


def test_between_two_looks_at_threads_the_last_one_stands_as_far_as_the_process_allows(machine):
    machine.threads = {10: {10: a_process(10), 12: a_process(12, cpu_s=2.0)}}
    assert machine.measure(a_process(10, cpu_s=4.0, threads=2)).busiest_thread == pytest.approx(1.0)
    assert machine.measure(a_process(10, cpu_s=8.0, threads=2)).busiest_thread == pytest.approx(1.0)
    assert machine.measure(a_process(10, cpu_s=8.2, threads=2)).busiest_thread == pytest.approx(0.1)


def test_of_very_many_threads_each_has_its_turn(machine):
    ids = range(100, 300)
    machine.threads = {100: {one: a_process(one) for one in ids}}
    looked: set[int] = set()
    inner = machine.usage._look_at_thread
    machine.usage._look_at_thread = lambda pid, thread: looked.add(thread) or inner(pid, thread)
    for number in range(1, 31):
        machine.measure(a_process(100, cpu_s=number * 4.0, threads=200))
    assert looked == set(ids)


def test_threads_that_wait_for_a_disk_are_counted(machine):
    machine.threads = {10: {10: a_process(10), 12: a_process(12, state="D"), 13: a_process(13, state="D")}}
    used = machine.measure(a_process(10, cpu_s=1.0, threads=3, state="D"), a_process(11, state="D"))
    assert used.disk_waiters == 4
