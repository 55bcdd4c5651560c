"""Which cgroup files limit an attempt; the acceptance tests try the real thing where it can be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from windfall.agent.cgroups import AttemptCgroup, CgroupTree, Hierarchy, parse_mounts, parse_own_groups
from windfall.agent.errors import CannotIsolate

FILES = {
    1: ("memory.limit_in_bytes", "cpu.cfs_period_us", "cpu.cfs_quota_us"),
    2: ("memory.max", "memory.swap.max", "memory.oom.group", "cpu.max"),
}


def a_group(root: Path, version: int) -> tuple[AttemptCgroup, Path]:
    """A directory that has the files which the kernel would put there."""
    hierarchy = Hierarchy(str(root), version, ("memory", "cpu"))
    group = CgroupTree([hierarchy]).group("token")
    directory = Path(group.procs_files[0]).parent
    directory.mkdir()
    for name in (*FILES[version], "cgroup.procs"):
        (directory / name).touch()
    return group, directory


def test_version_1_limits(tmp_path: Path):
    group, directory = a_group(tmp_path, 1)
    group.make(128, 0.5)
    written = {name: (directory / name).read_text() for name in FILES[1]}
    assert written == {
        "memory.limit_in_bytes": str(128 << 20),
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "50000",
    }


def test_version_2_limits_kill_the_whole_group(tmp_path: Path):
    group, directory = a_group(tmp_path, 2)
    group.make(128, 2.0)
    written = {name: (directory / name).read_text() for name in FILES[2]}
    assert written == {
        "memory.max": str(128 << 20),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.max": "200000 100000",
    }


def test_a_soft_cpu_limit_writes_none_and_says_so(tmp_path: Path):
    group, directory = a_group(tmp_path, 2)
    group.make(128, None)
    assert (directory / "cpu.max").read_text() == ""
    tree = CgroupTree([Hierarchy(str(tmp_path), 2, ("memory", "cpu"))])
    assert tree.description(hard_cpu_limit=False) == "cgroup v2 (memory)"
    assert tree.description(hard_cpu_limit=True) == "cgroup v2 (memory, cpu)"


@pytest.mark.parametrize(
    ("version", "name", "content", "over"),
    [
        (1, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", True),
        (1, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", False),
        (2, "memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n", True),
        (2, "memory.events", "low 0\nhigh 0\nmax 3\noom 0\noom_kill 0\n", False),
    ],
)
def test_a_kill_for_memory_is_seen(tmp_path: Path, version: int, name: str, content: str, over: bool):
    group, directory = a_group(tmp_path, version)
    (directory / name).write_text(content)
    assert group.out_of_memory() is over


def test_a_limit_that_cannot_be_written_is_an_error(tmp_path: Path):
    hierarchy = Hierarchy(str(tmp_path / "file"), 1, ("memory",))
    (tmp_path / "file").touch()
    with pytest.raises(CannotIsolate):
        AttemptCgroup([hierarchy], "x").make(1, 1.0)


def test_mounts_and_own_groups_are_found():
    mountinfo = (
        "30 24 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
        "31 24 0:27 / /sys/fs/cgroup/memory rw,nosuid shared:10 - cgroup cgroup rw,memory\n"
        "32 24 0:28 / /sys/fs/cgroup/pids rw,nosuid shared:11 - cgroup cgroup rw,pids\n"
        "33 24 0:29 / /sys/fs/cgroup/unified rw,nosuid shared:12 - cgroup2 cgroup2 rw\n"
        "34 24 0:30 / /proc rw shared:13 - proc proc rw\n"
    )
    assert parse_mounts(mountinfo) == [
        (1, ["cpu"], "/sys/fs/cgroup/cpu,cpuacct"),
        (1, ["memory"], "/sys/fs/cgroup/memory"),
        (2, [], "/sys/fs/cgroup/unified"),
    ]
    own = parse_own_groups("4:memory:/a/b\n1:cpu,cpuacct:/\n0::/user.slice/x:y\n")
    assert own == {"memory": "/a/b", "cpu": "/", "cpuacct": "/", "": "/user.slice/x:y"}


def test_what_a_persons_command_used_up_is_not_counted(tmp_path: Path):
    group, directory = a_group(tmp_path, 2)
    events = directory / "memory.events"
    events.write_text("low 0\noom_kill 1\n")
    assert group.out_of_memory()
    group.forgive()
    assert not group.out_of_memory()
    events.write_text("low 0\noom_kill 2\n")
    assert group.out_of_memory()


def test_the_processes_of_a_group_can_be_killed_one_at_a_time(tmp_path: Path):
    group, directory = a_group(tmp_path, 2)
    for together in (False, True):
        group.end_together(together=together)
        assert (directory / "memory.oom.group").read_text() == str(int(together))
