"""What a warm worker runs, and what it is told about a child.

Decides the worker's command, which variables belong to a child alone, and the line of a task. Must not know processes
or sockets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

import windfall
from windfall.agent.container.orders import WorkerOrders
from windfall.agent.container.worker_command import interpreter
from windfall.agent.messages import Start
from windfall.agent.processes import TOKEN_VARIABLE
from windfall.jobs.containers import ContainerRun
from windfall.jobs.job_users import RunAs
from windfall.jobs.workers import Worker, WorkerKind

#: Says to a program of the kind `lines` that it is one.
WORKER_VARIABLE = "WINDFALL_WORKER"
INDEX = "AWS_BATCH_JOB_ARRAY_INDEX"
#: Variables of each child that are not part of the worker's own environment.
_OF_A_CHILD = frozenset({INDEX, "AWS_BATCH_JOB_ID", "AWS_BATCH_JOB_ATTEMPT"})
_CALLING = os.path.join(os.path.dirname(os.path.abspath(windfall.__file__)), "worker", "calling.py")


class Suits(msgspec.Struct, frozen=True):
    """What a worker and a child must have in common."""

    key: str
    worker: Worker | None
    gpu_ids: tuple[str, ...]
    gpu_share: float | None
    memory_mib: int
    vcpus: float
    needs_sandbox: bool
    container: ContainerRun | None
    run_as: RunAs | None


def suits(start: Start) -> Suits:
    """Return what a worker must be for this child."""
    return Suits(
        start.worker_key,
        start.worker,
        tuple(start.gpu_ids),
        start.gpu_share,
        start.memory_mib,
        start.vcpus,
        start.needs_sandbox,
        start.container,
        start.run_as,
    )


def worker_start(start: Start, worker: Worker, name: str) -> Start:
    """Return the start of the worker that a child is the first of, as if it were an attempt of this name."""
    environment = {key: value for key, value in start.environment.items() if key not in _OF_A_CHILD}
    environment[WORKER_VARIABLE] = worker.kind.value
    return msgspec.structs.replace(
        start,
        token=name,
        task_id=name,
        # What a container runs is known when its image is there.
        argv=worker_command(start.argv, worker) if start.container is None else [],
        environment=environment,
        # What it says without a child is nobody's log.
        log_path=os.devnull,
        worker=None,
    )


def worker_command(argv: list[str], worker: Worker) -> list[str]:
    """Return the command of a worker: the job's own, or the job's Python with the function that it is to call."""
    orders = worker_orders(worker)
    return [*interpreter(argv), "-c", orders.source, orders.target] if orders.target else argv


def worker_orders(worker: Worker) -> WorkerOrders:
    """Return what a container is told in order to be a worker."""
    if worker.kind is WorkerKind.LINES:
        return WorkerOrders()
    with open(_CALLING, encoding="utf-8") as file:
        return WorkerOrders(worker.target, file.read())


def task_line(start: Start, base: Mapping[str, str]) -> bytes:
    """Return what a worker with this environment is told about a child, as one line of JSON."""
    own = {name: value for name, value in start.environment.items() if base.get(name) != value}
    task = {
        "index": int(start.environment.get(INDEX, "0")),
        "environment": {**own, TOKEN_VARIABLE: start.token},
    }
    return msgspec.json.encode(task)


#: The process of a child: a shell of one line, which starts in a millisecond and needs nothing of ours. It says that it
#: exists, waits for the exit code on its standard input, and exits with it. It does not heed SIGTERM (the worker's
#: process gets that too, and what it makes of it is the child's end); when it is killed, the keeper at the other end of
#: the socket sees it and kills the worker's process. A keeper that died without a word leaves no code: its child was
#: killed.
_SCRIPT = "trap '' TERM HUP INT; echo go >&0; read -r code || code=137; exit \"$code\""

CLIENT = ["/bin/sh", "-c", _SCRIPT, "windfall-child"]
