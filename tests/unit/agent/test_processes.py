"""Whose a process is, and how much memory counts."""

from __future__ import annotations

import os

from windfall.agent.processes import (
    ProcessStat,
    boot_ticks,
    members,
    read_stat,
    resident_bytes,
    snapshot,
)


def a_process(pid: int, ppid: int, session: int, resident: int = 0) -> ProcessStat:
    return ProcessStat(pid, ppid, session, 1, resident, "S")


def test_processes_belong_by_session_and_by_descent():
    table = {
        stat.pid: stat
        for stat in (
            a_process(1, 0, 1),
            a_process(10, 1, 10),  # an attempt
            a_process(11, 10, 10),  # its child
            a_process(12, 11, 12),  # a grandchild in a session of its own
            a_process(13, 1, 10),  # an orphan in the attempt's session
            a_process(14, 12, 12),
            a_process(20, 1, 20),  # another attempt
            a_process(30, 1, 30),  # a stranger
        )
    }
    grouped = {root: {stat.pid for stat in stats} for root, stats in members(table, {10, 20}).items()}
    assert grouped == {10: {10, 11, 12, 13, 14}, 20: {20}}


def test_a_loop_of_parents_that_vanished_ends():
    table = {5: a_process(5, 4, 5)}
    assert members(table, {10}) == {}


def test_this_process_is_read_and_recognised():
    stat = read_stat(os.getpid())
    assert stat is not None
    assert (stat.pid, stat.ppid) == (os.getpid(), os.getppid())
    assert stat.resident_bytes > 1 << 20
    assert 0 < stat.start_ticks <= boot_ticks()
    assert os.getpid() in snapshot()


def test_shared_pages_do_not_condemn_forked_workers():
    held = bytearray(os.urandom(1 << 20) * 64)
    children = []
    reader, writer = os.pipe()
    for _ in range(4):
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        children.append(child)
    os.close(reader)
    try:
        stats = [stat for pid in (os.getpid(), *children) if (stat := read_stat(pid)) is not None]
        once = stats[0].resident_bytes
        plain_sum = sum(stat.resident_bytes for stat in stats)
        assert resident_bytes(stats, plain_sum) == plain_sum
        assert resident_bytes(stats, plain_sum - 1) < plain_sum - 2 * (len(held) // 2)
        assert resident_bytes(stats, plain_sum - 1) < 2 * once
    finally:
        os.close(writer)
        for child in children:
            os.waitpid(child, 0)
