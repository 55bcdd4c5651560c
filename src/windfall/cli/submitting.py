"""What a command line asks for as a SubmitJob request, and its submission to a daemon that may lack a queue for it.

A job that is refused leaves nothing behind: it is submitted first, and what is missing is made only when the daemon
could take it then. Must not know how a job is watched.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windfall.cli.client import Client
from windfall.cli.default_queue import choose_queue, definition_name, find_or_make_definition, make_queue
from windfall.cli.errors import BadUsage, CliError, Refused


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for."""

    command: tuple[str, ...]
    queue: str | None = None
    vcpus: int = 1
    memory_mib: int = 2048
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

    @property
    def tags(self) -> dict[str, str]:
        """What AWS has no field for."""
        asked = {
            "windfall:git": self.git,
            "windfall:checkpoint": self.checkpoint,
            "windfall:budget-usd": None if self.budget_usd is None else f"{self.budget_usd:g}",
            "windfall:runtime": self.runtime,
            "windfall:pull": self.pull,
            "windfall:gpu-model": self.gpu_model,
            "windfall:gpu-memory-gib": None if self.gpu_memory_gib is None else f"{self.gpu_memory_gib:g}",
            "windfall:gpu-share": None if self.gpu_share is None else f"{self.gpu_share:g}",
            "windfall:on-gpu-oom": self.on_gpu_oom,
        }
        return {**self.own_tags, **{name: value for name, value in asked.items() if value is not None}}


def submit(
    client: Client, wanted: Wanted, tags: Mapping[str, str] | None = None
) -> tuple[str, dict[str, Any]]:
    """Submit it, with more tags if given, and make what a fresh daemon lacks; the queue, and the daemon's answer."""
    queue, is_there = (wanted.queue, True) if wanted.queue else choose_queue(client, spot=wanted.spot)
    definition = definition_name(wanted.image)
    asked = request(wanted, queue, definition)
    if tags:
        asked["tags"] = {**wanted.tags, **tags}
    try:
        return queue, client.batch("SubmitJob", **asked)
    except Refused as refusal:
        missing = [f"Job definition {definition}", *([] if is_there else [f"Job queue {queue}"])]
        if not any(str(refusal).startswith(f"{one} does not exist") for one in missing):
            raise
    _check_before_making(wanted, None if is_there else queue)
    if not is_there:
        make_queue(client, queue)
    find_or_make_definition(client, wanted.image)
    return queue, client.batch("SubmitJob", **asked)


def _check_before_making(wanted: Wanted, new_queue: str | None) -> None:
    """Refuse what the daemon would only refuse when queue and definition are there, by asking its own core."""
    # Here, because only the first run of all comes here.
    from windfall.capacity.environments import JobQueue
    from windfall.control.events import SubmitJob
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
    resources = Resources(wanted.vcpus, wanted.memory_mib, wanted.gpus)
    queue, definition = QueueName("new"), JobDefinition("new", 1, ContainerSpec("", resources))
    state = State(Rules(storage=StorageLayout("file:///objects")))
    state.queues[queue], state.definitions["new"] = JobQueue(queue, 1, ()), {1: definition}
    try:
        # The daemon knows which storage this key may name.
        command = SubmitJob(
            JobId("new"),
            "new",
            queue,
            "new",
            wanted.array,
            tags=wanted.tags,
            submitter=Submitter(is_admin=True),
        )
        on_submit_job(state, command, Round(0))
    except Rejected as rejected:
        raise CliError(str(rejected)) from None


def request(wanted: Wanted, queue: str, definition: str) -> dict[str, Any]:
    """The parameters of SubmitJob."""
    requirements = [
        {"type": "VCPU", "value": str(wanted.vcpus)},
        {"type": "MEMORY", "value": str(wanted.memory_mib)},
    ]
    if wanted.gpus:
        requirements.append({"type": "GPU", "value": str(wanted.gpus)})
    command = command_in(wanted.directory, wanted.command)
    return {
        "jobName": wanted.name or name_of(wanted.command or (wanted.image or "",)),
        "jobQueue": queue,
        "jobDefinition": definition,
        "shareIdentifier": wanted.share,
        "schedulingPriorityOverride": wanted.priority,
        "arrayProperties": {"size": wanted.array} if wanted.array else None,
        "containerOverrides": {
            # Without one the image's own is meant.
            **({"command": command} if command else {}),
            "environment": [{"name": name, "value": value} for name, value in wanted.variables.items()],
            "resourceRequirements": requirements,
        },
        "timeout": {"attemptDurationSeconds": wanted.timeout_s} if wanted.timeout_s else None,
        "retryStrategy": {"attempts": wanted.attempts} if wanted.attempts else None,
        "tags": wanted.tags or None,
    }


def command_in(directory: Path | None, command: tuple[str, ...]) -> list[str]:
    """The command, begun in a directory of the host if one is given."""
    if directory is None:
        return list(command)
    place = directory.expanduser().absolute()
    if not place.is_dir():
        raise BadUsage(f"{place} is no directory; name another with --dir")
    return ["/bin/sh", "-c", f'cd {shlex.quote(str(place))} && exec "$@"', "sh", *command]


def name_of(command: tuple[str, ...]) -> str:
    """A job name that AWS allows, from the program and the first script or word after it."""
    words = [word.rpartition("/")[2] for word in command[:2] if not word.startswith("-")]
    name = re.sub(r"[^A-Za-z0-9_]+", "-", "-".join(words)).strip("-_")
    return name[:64] or "run"
