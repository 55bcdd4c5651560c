"""What an attempt sees, and which attempts are not even tried."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.agent.stories import attempt_of
from windfall.agent.credentials import JobUser
from windfall.agent.directories import PrivateDirectories
from windfall.agent.errors import CannotStart
from windfall.agent.log_room import open_log
from windfall.agent.machine import Machine
from windfall.agent.messages import Start
from windfall.agent.preparation import intend, job_environment, prepare
from windfall.agent.sandbox import SandboxTools
from windfall.agent.settings import AgentSettings
from windfall.agent.stages import Story

MYSELF = JobUser("me", os.geteuid() or 1000, os.getegid(), (), drop=False)


def a_start(**fields: object) -> Start:
    values: dict[str, object] = {
        "token": "t",
        "task_id": "task",
        "argv": ["true"],
        "environment": {},
        "directory": None,
        "log_path": "/dev/null",
        "vcpus": 1.0,
        "memory_mib": 64,
        "gpu_ids": [],
    }
    return Start(**{**values, **fields})  # type: ignore[arg-type]  # keyword arguments of any type


def a_machine(root: Path, *, hide: tuple[str, ...] = (), tools: SandboxTools | None = None) -> Machine:
    settings = AgentSettings(str(root / "agent"), str(root), hide=hide)
    return Machine(settings, 2.0, 1024, [], MYSELF, tools, None, [])


def try_prepare(root: Path, start: Start) -> None:
    machine = a_machine(root)
    attempt = attempt_of(Story(intend(start, machine, 1), order=start))
    launch = prepare(attempt, start, machine, PrivateDirectories(str(root)))
    os.close(launch.directory_fd)
    os.close(launch.log_fd)


def test_the_users_path_and_home_win_but_not_their_gpus_or_token():
    given = {"PATH": "/mine", "HOME": "/me", "CUDA_VISIBLE_DEVICES": "7", "WINDFALL_ATTEMPT": "other"}
    environment = job_environment(
        a_start(environment=given, gpu_ids=["GPU-a", "GPU-b"]), "/work", "200000", "me"
    )
    assert environment == {
        "PATH": "/mine",
        "HOME": "/me",
        "USER": "200000",
        "LOGNAME": "200000",
        "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "WINDFALL_ATTEMPT": "t",
        "WINDFALL_AGENT": "me",
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"argv": []}, "no command specified"),
        ({"token": "../x"}, "cannot name a file"),
        ({"task_id": "a/b"}, "cannot name a file"),
        ({"task_id": ".spare-1"}, "cannot name a file"),
        ({"task_id": ".."}, "cannot name a file"),
        ({"token": "job:3#2", "task_id": "."}, "the task id"),
        ({"environment": {"A=B": "c"}}, "cannot be an environment variable"),
        ({"environment": {"A": "b\0c"}}, "cannot be an environment variable"),
        ({"argv": ["a", "b\0"]}, "zero byte"),
        ({"directory": "relative"}, "not an absolute path"),
        ({"directory": "/no/such"}, 'chdir "/no/such": no such file or directory'),
        ({"own_directory": "relative"}, "not an absolute path"),
        ({"own_directory": "/no/such"}, 'chdir "/no/such": no such file or directory'),
        ({"log_path": "/no/such/log"}, 'open log "/no/such/log": no such file or directory'),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(tmp_path: Path, fields: dict[str, object], words: str):
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(CannotStart, match=words.replace("(", r"\(")):
        try_prepare(tmp_path, a_start(**fields))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_isolation_is_given_to_those_that_need_it(tmp_path: Path):
    tools = SandboxTools("/usr/bin/bwrap", None)
    with_tools = a_machine(tmp_path, tools=tools)
    assert not intend(a_start(), with_tools, 1).sandboxed
    assert intend(a_start(needs_sandbox=True), with_tools, 1).sandboxed
    assert intend(a_start(shared_memory_mib=64), with_tools, 1).sandboxed
    assert intend(a_start(), a_machine(tmp_path, hide=("/data",), tools=tools), 1).sandboxed
    assert not intend(a_start(needs_sandbox=True), a_machine(tmp_path), 1).sandboxed


def test_private_directories_are_listed_so_that_they_can_be_removed(tmp_path: Path):
    machine = a_machine(tmp_path, tools=SandboxTools("/usr/bin/bwrap", None))
    own = f"{tmp_path}/task"
    assert intend(a_start(), machine, 1).private_directories == [own]
    assert intend(a_start(needs_sandbox=True), machine, 1).private_directories == [own, own + ".tmp"]
    assert intend(a_start(directory="/mapped"), machine, 1).private_directories == []
    assert intend(a_start(task_id="../../etc"), machine, 1).private_directories == []


def test_a_directory_of_logs_that_was_cleared_away_is_made_again(tmp_path: Path):
    log = tmp_path / "logs" / "task.log"
    os.close(open_log(str(log)))
    assert (log.exists(), log.parent.stat().st_mode & 0o777) == (True, 0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a moment")
def test_a_log_of_a_start_that_came_to_nothing_is_gone_on_with_by_one_who_is_not_root(tmp_path: Path):
    for directory in (tmp_path, *tmp_path.parents[:4]):
        directory.chmod(directory.stat().st_mode | 0o011)
    tmp_path.chmod(0o777)
    log = tmp_path / "task.log"
    os.seteuid(65534)
    try:
        for word in (b"one ", b"two"):
            fd = open_log(str(log))
            os.write(fd, word)
            os.close(fd)
    finally:
        os.seteuid(0)
    assert (log.read_text(), log.stat().st_mode & 0o777) == ("one two", 0o400)
