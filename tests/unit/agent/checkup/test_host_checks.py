"""Room, clock, Git and isolation, of hand-made hosts; and once all of it on this one."""

from __future__ import annotations

import os

import pytest

from tests.unit.agent.checkup.hosts import AMAZON, DEBIAN, MadeHost, room
from windfall.agent.checkup.clock import check_clock
from windfall.agent.checkup.host import Ran, ThisHost
from windfall.agent.checkup.isolation import Means, check_isolation
from windfall.agent.checkup.programs import check_git
from windfall.agent.checkup.room import check_room
from windfall.agent.checkup.verdicts import State
from windfall.agent.credentials import JobUser
from windfall.agent.errors import AgentError
from windfall.agent.sandbox import SandboxTools

NOBODY = JobUser("nobody", 65534, 65534, (65534,), drop=True)


def states(verdicts):
    return {one.subject: one.state for one in verdicts}


@pytest.mark.parametrize(
    ("rooms", "expected"),
    [
        ({"/dev/shm": room(8), "/data": room(100)}, (State.GOOD, State.GOOD)),
        ({"/dev/shm": room(0.0625), "/data": room(10)}, (State.DOUBTFUL, State.DOUBTFUL)),
        ({"/data": room(0.5, 100)}, (State.BAD, State.BAD)),
        ({"/dev/shm": room(8), "/data": room(100, inodes=10)}, (State.GOOD, State.BAD)),
    ],
)
def test_shared_memory_and_disk_are_judged_by_their_size(rooms, expected):
    seen = states(check_room(MadeHost(rooms=rooms), "/data"))
    assert (seen["shared memory"], seen["disk"]) == expected


def test_small_shared_memory_is_not_confused_with_gpu_memory():
    verdict = next(iter(check_room(MadeHost(rooms={"/dev/shm": room(0.06)}), "/data")))
    assert "not GPU memory" in verdict.mend


@pytest.mark.parametrize(
    ("taken_ms", "expected"), [(0.3, State.GOOD), (50.0, State.DOUBTFUL), (None, State.SKIPPED)]
)
def test_slow_durable_writes_are_told(taken_ms, expected):
    host = MadeHost(rooms={"/data": room(100)}, taken_ms=taken_ms)
    assert states(check_room(host, "/data"))["durable writes"] is expected


def test_few_open_files_are_told():
    host = MadeHost(open_files=(1024, 1024))
    assert states(check_room(host, "/data"))["open files"] is State.DOUBTFUL


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (MadeHost(programs={"timedatectl": Ran(0, "yes")}), State.GOOD),
        (MadeHost(programs={"timedatectl": Ran(0, "no")}), State.DOUBTFUL),
        (MadeHost(programs={"chronyc": Ran(0, "A,1.2.3.4,2,1763,0.000021,x")}), State.GOOD),
        (MadeHost(programs={"chronyc": Ran(0, "A,1.2.3.4,2,1763,-42.5,x")}), State.DOUBTFUL),
        (MadeHost(programs={"chronyc": Ran(0, "what")}), State.SKIPPED),
        (MadeHost(files={"/.dockerenv": ""}), State.SKIPPED),
        (MadeHost(files={"/etc/os-release": AMAZON}), State.DOUBTFUL),
    ],
)
def test_the_clock_is_asked_of_whoever_keeps_it(host, expected):
    assert check_clock(host).state is expected


def test_git_is_wanted_by_some_jobs():
    assert check_git(MadeHost(programs={"git": Ran(0, "git version 2.39.5")})).state is State.GOOD
    missing = check_git(MadeHost(files={"/etc/os-release": DEBIAN}))
    assert (missing.state, missing.mend) == (State.DOUBTFUL, "sudo apt-get install -y git")


def means(*, user=NOBODY, tools=None, cgroups=None):
    return Means(lambda _: user, lambda _: tools, lambda _: cgroups)


class _Tree:
    def __init__(self, *controllers):
        self.controllers = controllers
        self.removed = False

    def remove_if_empty(self):
        self.removed = True


def test_a_host_that_isolates_leaves_nothing_behind():
    tree = _Tree("memory", "cpu")
    tools = SandboxTools("/usr/bin/bwrap", None)
    assert "bubblewrap works" in list(check_isolation(MadeHost(), "nobody", means(tools=tools)))[-1].seen
    without = SandboxTools("/usr/bin/python3", None, ("-I",))
    seen = list(check_isolation(MadeHost(), "nobody", means(tools=without)))[-1]
    assert (seen.state, "without bubblewrap" in seen.seen) == (State.GOOD, True)
    host = MadeHost(files={"/proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"})
    verdicts = list(check_isolation(host, "nobody", means(tools=tools, cgroups=tree)))
    assert {one.state for one in verdicts} == {State.GOOD}
    assert "version 2" in verdicts[1].seen
    assert tree.removed


def test_what_is_missing_says_how_to_have_it():
    host = MadeHost(files={"/etc/os-release": DEBIAN})
    user, cgroups, sandbox = check_isolation(host, "nobody", means(cgroups=_Tree("memory")))
    assert user.state is State.GOOD
    assert "Delegate=cpu" in cgroups.mend
    assert sandbox.mend == "sudo apt-get install -y bubblewrap"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"}, "apparmor"),
        ({"/proc/sys/kernel/unprivileged_userns_clone": "0\n"}, "unprivileged_userns_clone=1"),
        ({}, "seccomp"),
    ],
)
def test_a_forbidden_sandbox_says_who_forbids_it(files, words):
    host = MadeHost(files=files, programs={"bwrap": Ran(0, "bubblewrap 0.8")}, is_root=False)
    assert words in list(check_isolation(host, "nobody", means()))[-1].mend


def test_jobs_as_root_are_doubtful_and_an_unknown_user_is_bad():
    root = JobUser("root", 0, 0, (0,), drop=False)
    assert next(iter(check_isolation(MadeHost(), "root", means(user=root)))).state is State.DOUBTFUL

    def nobody_knows(_):
        raise AgentError('there is no user "ghost" to run jobs as')

    seen = states(check_isolation(MadeHost(), "ghost", Means(user=nobody_knows)))
    assert seen == {"job user": State.BAD, "cgroups": State.SKIPPED, "namespaces": State.SKIPPED}


def test_this_host_answers_every_check_truthfully(tmp_path):
    host = ThisHost()
    seen = states([*check_room(host, str(tmp_path)), check_clock(host), check_git(host)])
    assert seen.keys() == {"shared memory", "disk", "durable writes", "open files", "clock", "git"}
    assert seen["durable writes"] in (State.GOOD, State.DOUBTFUL)
    assert list(tmp_path.iterdir()) == []
    assert host.is_root == (os.geteuid() == 0)
    assert host.run("no-such-program-here") is None
    assert host.read("/proc/self/no-such-file") is None
    assert host.names("/no-such-directory") == []
