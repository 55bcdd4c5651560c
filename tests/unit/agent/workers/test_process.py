"""The agent's end of a warm worker where the machine lacks something: nothing is lost, and it can be tried again."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.agent.workers.test_commands import CALLABLE, a_child
from windfall.agent.credentials import JobUser
from windfall.agent.spawner import Launch
from windfall.agent.starting import PASSING
from windfall.agent.workers.coming import NoWorker
from windfall.agent.workers.commands import suits, worker_start
from windfall.agent.workers.process import WorkerProcess


def open_files() -> set[str]:
    return {one.name for one in Path("/proc/self/fd").iterdir()}


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_worker_that_gets_no_open_files_keeps_none(tmp_path: Path, left: int):
    child = a_child()
    worker = WorkerProcess(worker_start(child, CALLABLE, "worker-1"), suits(child), 60.0, sandboxed=False)
    machine = SimpleNamespace(user=JobUser("me", 1000, 1000, (), drop=False))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = open_files()
    spare = [os.open(os.devnull, os.O_RDONLY)]
    while spare[-1] <= max(map(int, before)):
        spare.append(os.open(os.devnull, os.O_RDONLY))
    directory_fd, log_fd = os.open(tmp_path, os.O_PATH), os.open(os.devnull, os.O_WRONLY)
    launch = Launch(
        "worker-1", ["python3"], {}, os.environ["PATH"], str(tmp_path), directory_fd, log_fd, None, "process"
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (log_fd + 1 + left, hard))
    try:
        with pytest.raises(OSError, match="Too many open files") as refused:
            worker.run(launch, machine, None, [], lambda *_: None, lambda _: None)  # type: ignore[arg-type] # all of a machine that it asks for
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in spare:
            os.close(fd)
    assert open_files() == before
    assert refused.value.errno == errno.EMFILE


def test_what_a_worker_lacks_for_a_moment_is_known_as_that():
    assert NoWorker("Too many open files", errno.EMFILE).errno in PASSING
    assert NoWorker("what keeps the worker's container has ended").errno not in PASSING
