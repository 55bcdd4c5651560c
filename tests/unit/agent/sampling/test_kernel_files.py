"""What the kernel's files say: processes, the host and cgroups, as text that was seen and as they are here and now."""

from __future__ import annotations

import math
import os
import subprocess

from tests.waiting import wait_until
from windfall.agent.sampling.cgroup_counters import CgroupCounters, find_counters
from windfall.agent.sampling.host import HostMeter, parse_cpu
from windfall.agent.sampling.proc_files import (
    PAGE_BYTES,
    network_bytes,
    parse_stat,
    pids,
    read_process,
    read_thread,
    storage_bytes,
    thread_ids,
)

STAT = (
    b"4242 (a) b (c) D 17 4242 4200 0 -1 4194560 900 50 0 0 150 25 70 5 20 0 9 0 12345 1000000 300 "
    b"18446744073709551615 1 1 0 0 0 0 0\n"
)
NET = b"""Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets
    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0
  eth0: 1000 1 0 0 0 0 0 0 200 1 0 0 0 0 0 0
docker0: 77 1 0 0 0 0 0 0 77 1 0 0 0 0 0 0
veth12a: 77 1 0 0 0 0 0 0 77 1 0 0 0 0 0 0
  ib0:5000 1 0 0 0 0 0 0 30 1 0 0 0 0 0 0
"""


def test_a_name_with_parentheses_does_not_move_the_fields():
    seen = parse_stat(4242, STAT)
    assert (seen.ppid, seen.session, seen.state, seen.threads, seen.start_ticks) == (17, 4200, "D", 9, 12345)
    assert (seen.cpu_ticks, seen.children_ticks, seen.resident_bytes) == (175, 75, 300 * PAGE_BYTES)


def test_half_a_line_is_no_process():
    assert parse_stat(1, STAT[:40]) is None
    assert parse_stat(1, b"") is None


def test_this_process_is_seen_as_it_is():
    me = read_process(os.getpid())
    assert (me.ppid, me.session) == (os.getppid(), os.getsid(0))
    assert me.resident_bytes > 1 << 20
    assert os.getpid() in pids()
    assert os.getpid() in thread_ids(os.getpid())
    assert read_thread(os.getpid(), os.getpid()).pid == os.getpid()
    assert min(storage_bytes(os.getpid())) >= 0


def test_a_process_that_is_gone_is_none():
    child = subprocess.Popen(["true"])
    child.wait()
    assert read_process(child.pid) is None
    assert thread_ids(child.pid) == []
    assert storage_bytes(child.pid) is None


def test_only_what_crosses_to_the_outside_is_network():
    assert network_bytes(NET) == (6000, 230)


def test_waiting_and_idling_are_no_work():
    content = (
        b"cpu  100 5 50 9000 700 3 2 1 40 0\ncpu0 1 1 1 1 1 1 1 1 0 0\nprocs_running 3\nprocs_blocked 2\n"
    )
    assert parse_cpu(content) == (161, 3, 2)


def test_this_host_has_memory_at_once_and_processor_use_from_the_second_look_on():
    meter = HostMeter()
    first = meter.measure(0.0)
    assert first.memory_bytes > 0
    assert math.isnan(first.cpu_cores)
    assert meter.measure(1.0).cpu_cores >= 0


def test_version_2_counts_processor_throttling_and_memory(tmp_path):
    (tmp_path / "cpu.stat").write_text(
        "usage_usec 2500000\nnr_periods 100\nnr_throttled 30\nthrottled_usec 9\n"
    )
    (tmp_path / "cpu.max").write_text("200000 50000\n")
    (tmp_path / "memory.stat").write_text("anon 1000\nfile 99999\nshmem 24\n")
    counters = CgroupCounters(2, str(tmp_path), str(tmp_path)).read(with_memory=True)
    assert counters == (2.5, 1.5, 1024.0)


def test_version_1_counts_the_same_where_its_files_are(tmp_path):
    (tmp_path / "cpu.stat").write_text("nr_periods 100\nnr_throttled 10\nthrottled_time 5\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "memory.stat").write_text("cache 5\nrss 6\ntotal_rss 2000\ntotal_shmem 48\n")
    group = CgroupCounters(1, str(tmp_path), str(tmp_path))
    assert group.read(with_memory=True)[1:] == (1.0, 2048.0)
    assert math.isnan(group.read(with_memory=False).memory_bytes)
    assert math.isnan(group.read(with_memory=False).cpu_s)
    (tmp_path / "cpuacct.usage").write_text("3000000000\n")
    assert group.read(with_memory=False).cpu_s == 3.0


def test_a_group_that_is_gone_counts_nothing(tmp_path):
    counters = CgroupCounters(2, str(tmp_path / "gone"), str(tmp_path / "gone")).read(with_memory=True)
    assert all(math.isnan(value) for value in counters)


def test_the_group_of_a_process_is_found_below_its_mount(tmp_path):
    child = subprocess.Popen(["sleep", "60"])
    try:
        lines = wait_until(lambda: read_cgroup(child.pid), "the child's cgroup")
        mounts = []
        for number, line in enumerate(lines):
            _, controllers, path = line.split(":", 2)
            kind = "cgroup" if controllers else "cgroup2"
            mount = tmp_path / f"m{number}"
            (mount / path.lstrip("/")).mkdir(parents=True)
            for name in ("cpu", "memory"):
                (mount / path.lstrip("/") / f"{name}.stat").write_text("usage_usec 1\n")
            mounts.append(f"1 1 0:1 / {mount} rw - {kind} {kind} rw,{controllers}")
        assert find_counters(child.pid, "\n".join(mounts).encode()) is not None
        assert find_counters(child.pid, b"1 1 0:1 / /nowhere rw - cgroup2 cgroup2 rw") is None
    finally:
        child.kill()
        child.wait()


def read_cgroup(pid: int) -> list[str]:
    with open(f"/proc/{pid}/cgroup") as file:
        return [line for line in file.read().splitlines() if line.split(":")[1] in ("", "cpu", "memory")]
