"""What a command line asks for as a SubmitJob request, and its submission to a daemon that may lack a queue for it.

A job that is refused leaves nothing behind: it is submitted first, and what is missing is made only when the daemon
could take it then. Must not know how a job is watched.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from windfall.aws_api.batch.run_definitions import definition_name
from windfall.cli.capacity_lookup import LEAST_DEFAULT_MIB, Capacity
from windfall.cli.client import Client
from windfall.cli.default_queue import choose_queue, find_or_make_definition, make_queue
from windfall.cli.errors import BadUsage, CliError, RequestRefused
from windfall.cli.listing import job_id
from windfall.cli.plain_words import with_options
from windfall.cli.surroundings import (
    ExpectedJobUser,
    cannot_enter,
    cannot_write,
    directories_to_check,
    is_utf8,
    take_along,
)

#: What runs a script that is named without its program.
_RUNNERS = {".py": "python", ".sh": "bash", ".bash": "bash"}
#: How often a job without checkpoints is tried that loses its place.
SPOT_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What the command line asks for."""

    command: tuple[str, ...]
    queue: str | None = None
    vcpus: int = 1
    #: None means a share of the machine's.
    memory_mib: int | None = None
    gpus: int = 0
    array: int | None = None
    name: str | None = None
    directory: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)
    timeout_s: int | None = None
    attempts: int | None = None
    spot: bool = False
    git: str | None = None
    #: `true`, or the prefix in the object store.
    checkpoint: str | None = None
    budget_usd: float | None = None
    #: As the tags have them.
    deadline: str | None = None
    work: str | None = None
    image: str | None = None
    runtime: str | None = None
    pull: str | None = None
    gpu_model: str | None = None
    gpu_memory_gib: float | None = None
    gpu_share: float | None = None
    on_gpu_oom: str | None = None
    share: str | None = None
    priority: int | None = None
    #: Tags that have no option of their own.
    own_tags: Mapping[str, str] = field(default_factory=dict)
    #: Whether nothing of the place where the user stands is taken along.
    clean: bool = False
    #: The jobs that must have succeeded before.
    after: tuple[str, ...] = ()
    #: Patterns of files in the job's private directory.
    keep: tuple[str, ...] = ()

    @property
    def tags(self) -> dict[str, str]:
        """What AWS has no field for."""
        tags = {
            "windfall:git": self.git,
            "windfall:checkpoint": self.checkpoint,
            "windfall:budget-usd": None if self.budget_usd is None else f"{self.budget_usd:g}",
            "windfall:deadline": self.deadline,
            "windfall:work": self.work,
            "windfall:runtime": self.runtime,
            "windfall:pull": self.pull,
            "windfall:gpu-model": self.gpu_model,
            "windfall:gpu-memory-gib": None if self.gpu_memory_gib is None else f"{self.gpu_memory_gib:g}",
            "windfall:gpu-share": None if self.gpu_share is None else f"{self.gpu_share:g}",
            "windfall:on-gpu-oom": self.on_gpu_oom,
        }
        return {**self.own_tags, **{name: value for name, value in tags.items() if value is not None}}

    @property
    def kind_of_queue(self) -> dict[str, bool]:
        """What its queue is for, where none is named."""
        return {"spot": self.spot, "deadline": self.deadline is not None}

    @property
    def retries_interruptions(self) -> bool:
        """Whether it loses its work with its place, so that only another attempt helps."""
        return self.spot and self.checkpoint is None and self.attempts is None

    @property
    def retry_strategy(self) -> dict[str, Any] | None:
        """What is tried again: after an interruption, or whatever the user said."""
        if self.retries_interruptions:
            rules = [{"onStatusReason": "Host EC2*", "action": "RETRY"}, {"onReason": "*", "action": "EXIT"}]
            return {"attempts": SPOT_ATTEMPTS, "evaluateOnExit": rules}
        return {"attempts": self.attempts} if self.attempts else None

    @property
    def parameters(self) -> dict[str, str]:
        """Where it starts and what it keeps. A tag can be too short for it, and has no letters such as an asterisk."""
        params = {
            "windfall-dir": None if self.directory is None else str(self.directory),
            "windfall-keep": "".join(f"{pattern}\n" for pattern in self.keep) or None,
        }
        return {name: value for name, value in params.items() if value is not None}


def completed(
    client: Client, wanted: JobRequest, environment: Mapping[str, str]
) -> tuple[JobRequest, list[str]]:
    """The job with all that the daemon has to be asked for, and what the user should know about it.

    Raises CliError where the job could not start.
    """
    after = tuple(job_id(client, text) for text in wanted.after)
    wanted, remarks = in_place(client, replace(wanted, after=after), environment)
    capacity = Capacity.of(client, wanted)
    if wanted.memory_mib is None:
        wanted = replace(wanted, memory_mib=capacity.default_memory_mib(wanted.vcpus, wanted.gpus))
    if wanted.spot and not capacity.may_be_spot:
        remarks.append(f"queue {wanted.queue} has no spot capacity, so the job runs on demand")
    elif wanted.deadline is not None and not capacity.may_be_spot:
        remarks.append(
            f"queue {wanted.queue} has no spot capacity, so the deadline saves nothing: the job runs on demand; with"
            " --spot it uses spot capacity while that is safe"
        )
    elif wanted.retries_interruptions:
        remarks.append(
            f"without --checkpoint an interrupted job starts from the beginning; it is tried {SPOT_ATTEMPTS} times"
        )
    return wanted, remarks


def in_place(
    client: Client, wanted: JobRequest, environment: Mapping[str, str]
) -> tuple[JobRequest, list[str]]:
    """The job with what it takes along of the place where the user stands, and what the user should know about it.

    Raises CliError where the job's user could not start there.
    """
    if wanted.directory is not None:
        wanted = replace(wanted, directory=_existing(wanted.directory))
    elif not wanted.clean and wanted.image is None and wanted.git is None:
        wanted = replace(wanted, directory=_current())
    if wanted.directory is None and (wanted.clean or wanted.image is not None):
        return wanted, []
    # Where it starts in a checkout, only the variables are taken along.
    directory = "/" if wanted.directory is None else str(wanted.directory)
    if not is_utf8(directory):
        raise BadUsage(f"the path {directory!r} is not UTF-8; run it from another directory, or with --clean")
    seen = {} if wanted.clean or wanted.image is not None else environment
    answer = client.own("CheckDirectories", directories=directories_to_check(seen, directory))
    directories = answer["directories"]
    user = ExpectedJobUser(
        answer["user"],
        answer["host"],
        frozenset(entry["path"] for entry in directories if entry["enters"]),
        frozenset(entry["path"] for entry in directories if entry["writes"]),
    )
    problem = cannot_enter(seen, directory, user, os.uname().nodename)
    if problem is not None:
        raise CliError(problem)
    remark = None if wanted.directory is None else cannot_write(directory, user)
    remarks = [] if remark is None else [remark]
    if not seen:
        return wanted, remarks
    taken = take_along(seen, user)
    variables = {**taken.variables, **wanted.variables}
    if wanted.directory is not None and wanted.command:
        check_program(wanted.command, directory, variables.get("PATH"))
    return replace(wanted, variables=variables), [*remarks, *taken.remarks]


def check_program(command: tuple[str, ...], directory: str, path: str | None) -> None:
    """Refuse a program that is a file of the directory or a whole line of shell, which are not found in PATH."""
    program = command[0]
    if "/" in program or shutil.which(program, path=path) is not None:
        return
    place = Path(directory) / program
    if _is_file(place):
        runner = _RUNNERS.get(place.suffix)
        instead = shlex.join([runner, *command] if runner else [f"./{program}", *command[1:]])
        hint = "" if runner or os.access(place, os.X_OK) else f", after `chmod +x {shlex.quote(program)}`"
        raise BadUsage(
            f"{program} is a file of this directory, and programs are found in PATH; write: windfall run --"
            f" {instead}{hint}"
        )
    if len(command) == 1 and any(letter.isspace() for letter in program):
        raise BadUsage(
            f"there is no program called {program!r}; write the command without quotes, or let a shell read it:"
            f" windfall run -- sh -c {shlex.quote(program)}"
        )


def _is_file(place: Path) -> bool:
    try:
        return place.is_file()
    except OSError:
        return False  # such as a name that no file can have


def _existing(directory: Path) -> Path:
    place = directory.expanduser().absolute()
    if not place.is_dir():
        raise BadUsage(f"{place} is not a directory; name another with --dir")
    return place


def _current() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise BadUsage(
            "the current directory was removed: go to another one, or name one with --dir"
        ) from None


def submit(
    client: Client, wanted: JobRequest, tags: Mapping[str, str] | None = None
) -> tuple[str, dict[str, Any]]:
    """Submit it, with more tags if given, and make what a fresh daemon lacks; the queue, and the daemon's answer."""
    queue, is_there = (wanted.queue, True) if wanted.queue else choose_queue(client, **wanted.kind_of_queue)
    definition = definition_name(wanted.image)
    parameters = request(wanted, queue, definition)
    if tags:
        parameters["tags"] = {**wanted.tags, **tags}
    try:
        return queue, client.batch("SubmitJob", **parameters)
    except RequestRefused as refusal:
        missing = [f"Job definition {definition}", *([] if is_there else [f"Job queue {queue}"])]
        if not any(str(refusal).startswith(f"{name} does not exist") for name in missing):
            raise _in_own_words(refusal, queue) from None
    _check_before_making(client, wanted, None if is_there else queue)
    if not is_there:
        make_queue(client, queue)
    find_or_make_definition(client, wanted.image)
    try:
        return queue, client.batch("SubmitJob", **parameters)
    except RequestRefused as refusal:
        raise _in_own_words(refusal, queue) from None


def _in_own_words(refusal: RequestRefused, queue: str) -> CliError:
    """A refusal that names options of the command line, and what lists the queues there are."""
    if str(refusal).startswith(f"Job queue {queue} does not exist"):
        return CliError(f"there is no queue {queue!r}; `windfall queues` lists the queues there are")
    return RequestRefused(refusal.code, with_options(str(refusal)))


def rehearse(client: Client, wanted: JobRequest) -> dict[str, Any]:
    """The request that `submit` would send first; nothing is made and nothing is sent."""
    queue = wanted.queue or choose_queue(client, **wanted.kind_of_queue)[0]
    return request(wanted, queue, definition_name(wanted.image))


def _check_before_making(client: Client, wanted: JobRequest, new_queue: str | None) -> None:
    """Refuse what the daemon would only refuse when queue and definition are there, by asking its own core."""
    # Here, because only the first run of all comes here.
    from windfall.accounting.prices import Rates
    from windfall.capacity.environments import JobQueue
    from windfall.control.events import SubmitJob
    from windfall.control.limits import check_budget
    from windfall.control.round import Round
    from windfall.control.state import Rules, State
    from windfall.control.submitting import on_submit_job
    from windfall.jobs.definitions import ContainerSpec, JobDefinition
    from windfall.jobs.errors import Rejected
    from windfall.jobs.ids import JobId, QueueName
    from windfall.jobs.resources import Resources
    from windfall.jobs.storage import StorageLayout
    from windfall.jobs.submitters import Submitter

    if new_queue is not None and (wanted.share is not None or wanted.priority is not None):
        raise CliError(
            f"there is no queue yet, and the one that would be made, {new_queue!r}, has no shares: leave --share and"
            " --priority out, or name a queue with a scheduling policy with --queue"
        )
    resources = Resources(wanted.vcpus, wanted.memory_mib or LEAST_DEFAULT_MIB, wanted.gpus)
    queue, definition = QueueName("new"), JobDefinition("new", 1, ContainerSpec("", resources))
    status = client.own("Status") if new_queue is not None and wanted.budget_usd is not None else {}
    prices = status.get("prices") or {}
    rates = Rates(prices.get("usdGpuHour", 0.0), prices.get("usdVcpuHour", 0.0))
    local = frozenset({None} if prices and status.get("engine") == "local" else ())
    state = State(
        Rules(storage=StorageLayout("file:///objects"), rates=rates, unpriced_engines=local, changeover_s=1.0)
    )
    state.queues[queue], state.definitions["new"] = JobQueue(queue, 1, ()), {1: definition}
    try:
        # The daemon knows which storage this key may name.
        command = SubmitJob(
            JobId("new"),
            "new",
            queue,
            "new",
            wanted.array,
            parameters=wanted.parameters,
            tags=wanted.tags,
            submitter=Submitter(is_admin=True),
        )
        on_submit_job(state, command, Round(time.time_ns() // 1_000_000))
        check_budget(state, {None}, resources, wanted.budget_usd)
    except Rejected as rejected:
        raise CliError(with_options(str(rejected))) from None


def request(wanted: JobRequest, queue: str, definition: str) -> dict[str, Any]:
    """The parameters of SubmitJob."""
    requirements = [
        {"type": "VCPU", "value": str(wanted.vcpus)},
        {"type": "MEMORY", "value": str(wanted.memory_mib or LEAST_DEFAULT_MIB)},
    ]
    if wanted.gpus:
        requirements.append({"type": "GPU", "value": str(wanted.gpus)})
    return {
        "jobName": wanted.name or name_of(wanted.command or (wanted.image or "",)),
        "jobQueue": queue,
        "jobDefinition": definition,
        "shareIdentifier": wanted.share,
        "schedulingPriorityOverride": wanted.priority,
        "arrayProperties": {"size": wanted.array} if wanted.array else None,
        "containerOverrides": {
            # Without one the image's own is meant.
            **({"command": list(wanted.command)} if wanted.command else {}),
            "environment": [{"name": name, "value": value} for name, value in wanted.variables.items()],
            "resourceRequirements": requirements,
        },
        "timeout": {"attemptDurationSeconds": wanted.timeout_s} if wanted.timeout_s else None,
        "retryStrategy": wanted.retry_strategy,
        "dependsOn": [{"jobId": awaited} for awaited in wanted.after] or None,
        "parameters": wanted.parameters or None,
        "tags": wanted.tags or None,
    }


#: What a script's name ends with, and options that a script follows as a module or that are the program itself.
_SCRIPT = re.compile(r"[^=]*[^=/.][^=/]*\.(?:py|pyc|pyz|sh|bash|pl|rb|jl|js|lua|R|r|ipynb)")
_MODULE, _INLINE = "-m", "-c"
#: Modules whose script comes after them, as in `python -m torch.distributed.run train.py`.
_LAUNCHERS = ("run", "launch")


def name_of(command: tuple[str, ...]) -> str:
    """A job name that AWS allows: that of the script or module that the command runs, else that of its program."""
    program, *words = command or ("",)
    name = program.rpartition("/")[2]
    if _SCRIPT.fullmatch(program):
        name = name.rpartition(".")[0]
    else:
        for before, word in zip([program, *words], words, strict=False):
            if word == _INLINE:
                break
            if before == _MODULE:
                name = word.rpartition(".")[2]
                if name not in _LAUNCHERS:
                    break
            elif _SCRIPT.fullmatch(word):
                name = word.rpartition("/")[2].rpartition(".")[0]
                break
    return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-_")[:64] or "run"
