"""What the reactor asks engines to do. Carried out only after the changes that led to them are durable.

Every one may be given twice (after a crash they are derived from state again), so engines must take a repetition
in their stride.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from windfall.capacity.machines import Offer
from windfall.jobs.ids import AttemptToken, EnvironmentName, InstanceId, TaskId
from windfall.jobs.resources import Resources


@dataclass(frozen=True, slots=True)
class LaunchInstance:
    instance: InstanceId
    environment: EnvironmentName
    offer: Offer


@dataclass(frozen=True, slots=True)
class TerminateInstance:
    instance: InstanceId


@dataclass(frozen=True, slots=True)
class StartAttempt:
    token: AttemptToken
    task_id: TaskId
    instance: InstanceId
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    #: None means a private, empty working directory.
    directory: str | None
    resources: Resources
    gpu_ids: tuple[str, ...]
    shared_memory_mib: int | None
    #: Whether more than one tenant uses this daemon, so that jobs must not see one another.
    shared_with_strangers: bool = False


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """SIGTERM to all its processes now, SIGKILL to what is left after the grace."""

    token: AttemptToken
    #: None when the core no longer knows the attempt: the engine knows who spoke of it.
    instance: InstanceId | None
    grace_s: float


@dataclass(frozen=True, slots=True)
class ForgetAttempt:
    """Its end is durable: the agent may drop what it kept of it."""

    token: AttemptToken
    #: None when the core no longer knows the attempt: the engine knows who spoke of it.
    instance: InstanceId | None


Instruction = LaunchInstance | TerminateInstance | StartAttempt | StopAttempt | ForgetAttempt
