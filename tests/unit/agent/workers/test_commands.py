"""What a warm worker runs and is told."""

from __future__ import annotations

import json

import pytest

from windfall.agent.messages import Start
from windfall.agent.workers.commands import interpreter, suits, task_line, worker_command, worker_start
from windfall.jobs.containers import ContainerRun
from windfall.jobs.workers import Worker, WorkerKind

CALLABLE = Worker(WorkerKind.CALLABLE, "tasks:work")
LINES = Worker(WorkerKind.LINES)


def a_child(index: int = 0, **fields: object) -> Start:
    values: dict[str, object] = {
        "token": f"array:{index}#1",
        "task_id": f"task{index}",
        "argv": ["python3"],
        "environment": {
            "AWS_BATCH_JOB_ARRAY_INDEX": str(index),
            "AWS_BATCH_JOB_ID": f"array:{index}",
            "AWS_BATCH_JOB_ATTEMPT": "1",
            "COLOUR": "red",
        },
        "directory": None,
        "log_path": "/logs/task",
        "vcpus": 1.0,
        "memory_mib": 64,
        "gpu_ids": ["GPU-a"],
        "worker": CALLABLE,
        "worker_key": "array",
    }
    return Start(**{**values, **fields})  # type: ignore[arg-type]  # keyword arguments of any type


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["python3"], ["python3"]),
        (["/opt/env/bin/python3.12", "-u", "train.py"], ["/opt/env/bin/python3.12"]),
        (["conda", "run", "-n", "env", "python", "x.py"], ["conda", "run", "-n", "env", "python"]),
        (["./run.sh"], ["python3"]),
        (["pythonic"], ["python3"]),
    ],
)
def test_the_first_python_of_the_command_is_the_interpreter(argv, found):
    assert interpreter(argv) == found


def test_a_container_runs_what_its_image_says_and_is_shared_by_children_of_the_same():
    run = ContainerRun("image:1", None, ("python3",))
    child = a_child(argv=[], container=run)
    started = worker_start(child, CALLABLE, "worker-1")
    assert (started.argv, started.container, started.worker) == ([], run, None)
    assert suits(child) == suits(a_child(1, argv=[], container=ContainerRun("image:1", None, ("python3",))))
    assert suits(child) != suits(a_child())


def test_a_callable_is_given_as_text_and_lines_run_the_jobs_own_command():
    command = worker_command(["python3", "ignored.py"], CALLABLE)
    assert command[:2] == ["python3", "-c"]
    assert command[3] == "tasks:work"
    compile(command[2], "calling.py", "exec")
    assert worker_command(["./serve", "--fast"], LINES) == ["./serve", "--fast"]


def test_the_worker_knows_nothing_of_its_first_child():
    start = worker_start(a_child(), CALLABLE, "worker-1")
    assert start.environment == {"COLOUR": "red", "WINDFALL_WORKER": "callable"}
    assert (start.token, start.task_id, start.log_path, start.worker) == (
        "worker-1",
        "worker-1",
        "/dev/null",
        None,
    )


def test_a_task_is_one_line_with_what_differs_from_the_workers_environment():
    line = task_line(a_child(7), {"COLOUR": "red"})
    assert b"\n" not in line
    assert json.loads(line) == {
        "index": 7,
        "environment": {
            "AWS_BATCH_JOB_ARRAY_INDEX": "7",
            "AWS_BATCH_JOB_ID": "array:7",
            "AWS_BATCH_JOB_ATTEMPT": "1",
            "WINDFALL_ATTEMPT": "array:7#1",
        },
    }


@pytest.mark.parametrize(
    "other",
    [
        {"worker_key": "another array"},
        {"gpu_ids": ["GPU-b"]},
        {"gpu_ids": ["GPU-a", "GPU-b"]},
        {"gpu_share": 0.5},
        {"memory_mib": 128},
        {"needs_sandbox": True},
        {"worker": LINES},
    ],
)
def test_a_worker_suits_only_children_like_its_first(other):
    assert suits(a_child(0)) == suits(a_child(1))
    assert suits(a_child(0)) != suits(a_child(0, **other))
