"""Job definitions with revisions, and what a submission makes of one: overrides, parameters, environment.

Decides what a job finally runs. Must not know AWS's field names: the wire keeps the document it was given as
opaque text (`document`) so that every field comes back as it was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from windfall.jobs.containers import ContainerOptions
from windfall.jobs.errors import MissingParameter
from windfall.jobs.ids import DefinitionKey
from windfall.jobs.resources import Resources
from windfall.jobs.retry import ONCE, RetryStrategy

DEFAULT_LOG_GROUP = "/aws/batch/job"
#: The name of a container that was given none.
DEFAULT_CONTAINER = "default"


@dataclass(frozen=True, slots=True)
class HostProgram:
    """What stands in for an image that is not mapped, where its job runs as a process of the host."""

    #: Empty when nothing can.
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    #: The working directory as the job sees it; None means a private, empty one.
    directory: str | None = None
    #: Why nothing can stand in for the image, where that is not because nobody has said what would.
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """What a definition says about the container, or the process, to run."""

    image: str
    resources: Resources
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Size of the private /dev/shm; None when the definition is silent.
    shared_memory_mib: int | None = None
    log_group: str = DEFAULT_LOG_GROUP
    #: awslogs-stream-prefix; None means the definition's name.
    log_prefix: str | None = None
    #: Replaces what the image has as its own; None leaves that.
    entrypoint: tuple[str, ...] | None = None
    #: In place of `entrypoint` and `command`, for a process; None means these are as good without the image.
    on_host: HostProgram | None = None
    #: For a job that runs as a container; a process gets the secrets alone.
    options: ContainerOptions = field(default_factory=ContainerOptions)
    #: Stands in the names of its log streams.
    name: str = DEFAULT_CONTAINER
    #: For Fargate, which has certain sizes only: what the other containers of its task take. None for EC2.
    fargate_beside: Resources | None = None
    #: Whether it names a role, so that its programs may use object storage.
    has_role: bool = False


@dataclass(frozen=True, slots=True)
class ContainerOverrides:
    """What a submission changes in a definition; None leaves a part as it is."""

    command: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    vcpus: float | None = None
    memory_mib: int | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class NodeRange:
    """What a definition says about a range of the nodes of a multi-node job."""

    first: int
    #: None means the last node, however many there are.
    last: int | None
    container: ContainerSpec
    instance_type: str | None = None
    consumables: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What a definition says about its nodes."""

    count: int
    main: int
    ranges: tuple[NodeRange, ...]


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """One revision of a job definition. Never changed after registration, except to INACTIVE and in its tags."""

    name: str
    revision: int
    container: ContainerSpec
    parameters: Mapping[str, str] = field(default_factory=dict)
    retry: RetryStrategy = ONCE
    timeout_s: int | None = None
    propagate_tags: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    active: bool = True
    registered_at: int = 0
    deregistered_at: int | None = None
    #: The registration as it was sent, for the wire alone.
    document: str = "{}"
    #: Who goes first within a share: the higher.
    priority: int = 0
    #: How many tokens of which consumable resources a job of it holds.
    consumables: tuple[tuple[str, int], ...] = ()
    #: For multi-node jobs; `container` is then that of the main node.
    nodes: NodePlan | None = None
    #: Whether an administrator registered it for the tenant `default`, so that every tenant can use it.
    shared: bool = False

    @property
    def key(self) -> DefinitionKey:
        """`name:revision`."""
        return DefinitionKey(f"{self.name}:{self.revision}")


def requested_resources(definition: JobDefinition, overrides: ContainerOverrides | None) -> Resources:
    """What the job asks for, overrides applied."""
    return _overridden_resources(definition.container.resources, overrides)


def _overridden_resources(resources: Resources, overrides: ContainerOverrides | None) -> Resources:
    if overrides is None or (overrides.vcpus, overrides.memory_mib, overrides.gpus) == (None, None, None):
        return resources
    return Resources(
        resources.vcpus if overrides.vcpus is None else overrides.vcpus,
        resources.memory_mib if overrides.memory_mib is None else overrides.memory_mib,
        resources.gpus if overrides.gpus is None else overrides.gpus,
    )


def substituted(command: tuple[str, ...], parameters: Mapping[str, str]) -> tuple[str, ...]:
    """The command with each `Ref::name` replaced by its value, or MissingParameter."""
    if not any(word.startswith("Ref::") for word in command):
        return command
    words = []
    for word in command:
        if not word.startswith("Ref::"):
            words.append(word)
            continue
        name = word.removeprefix("Ref::")
        if name not in parameters:
            raise MissingParameter(name)
        words.append(parameters[name])
    return tuple(words)


def effective_container(
    definition: JobDefinition, overrides: ContainerOverrides | None, parameters: Mapping[str, str]
) -> ContainerSpec:
    """What the job finally runs: overrides over definition, submitted parameters over default ones."""
    return overridden(definition.container, overrides, {**definition.parameters, **parameters})


def overridden(
    spec: ContainerSpec, overrides: ContainerOverrides | None, parameters: Mapping[str, str]
) -> ContainerSpec:
    """A container with what a submission changes in it, and with values in place of references to parameters."""
    command = spec.command if overrides is None or overrides.command is None else overrides.command
    environment = spec.environment if overrides is None else {**spec.environment, **overrides.environment}
    return replace(
        spec,
        command=substituted(command, parameters),
        environment=environment,
        resources=_overridden_resources(spec.resources, overrides),
    )
