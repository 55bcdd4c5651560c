"""Commands about models and endpoints, and what the daemon reports of replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from windfall.capacity.environments import ComputeEnvironment
from windfall.control.commands.service_jobs import ServiceCommand
from windfall.hosting.endpoint import Generation, HostedConfig, HostedEndpoint, HostedModel, Rollout
from windfall.jobs.ids import AttemptToken

HostedKind = Literal["model", "endpoint-config", "endpoint"]


@dataclass(frozen=True, slots=True)
class CreateModel:
    """The reply is the HostedModel; one of this name is a Conflict."""

    model: HostedModel


@dataclass(frozen=True, slots=True)
class CreateEndpointConfig:
    """The reply is the HostedConfig; one of this name is a Conflict."""

    config: HostedConfig


@dataclass(frozen=True, slots=True)
class CreateEndpoint:
    """The reply is the HostedEndpoint. `environment` and its queue are made if they are missing."""

    endpoint: HostedEndpoint
    environment: ComputeEnvironment


@dataclass(frozen=True, slots=True)
class UpdateEndpoint:
    """Let another generation take over; the number in `target` is ignored. The reply is the HostedEndpoint."""

    name: str
    target: Generation
    rollout: Rollout
    environment: ComputeEnvironment
    #: The DeploymentConfig as it was sent.
    document: str = ""
    #: Whether weights and counts that were changed since stay as they are.
    keeps_sizes: bool = False


@dataclass(frozen=True, slots=True)
class ResizeVariants:
    """Change weights and numbers of replicas in place: variant -> (weight, count), None leaves one as it is."""

    name: str
    sizes: Mapping[str, tuple[float | None, int | None]]


@dataclass(frozen=True, slots=True)
class DeleteHosted:
    """Remove a model or a configuration, or let an endpoint end."""

    kind: HostedKind
    name: str


@dataclass(frozen=True, slots=True)
class TagHosted:
    """Set and remove tags. The reply is all tags."""

    kind: HostedKind
    name: str
    add: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()


HostingCommand = (
    CreateModel
    | CreateEndpointConfig
    | CreateEndpoint
    | UpdateEndpoint
    | ResizeVariants
    | DeleteHosted
    | TagHosted
)
#: What SageMaker has beside training jobs.
SageMakerCommand = ServiceCommand | HostingCommand


@dataclass(frozen=True, slots=True)
class ReplicaReady:
    """A replica has answered a ping for the first time."""

    token: AttemptToken


@dataclass(frozen=True, slots=True)
class ReplicaSilent:
    """A replica that was ready does not answer pings any more."""

    token: AttemptToken
    reason: str


@dataclass(frozen=True, slots=True)
class ReplicaDrained:
    """A replica that gets no new requests has none left."""

    token: AttemptToken


ReplicaReport = ReplicaReady | ReplicaSilent | ReplicaDrained
