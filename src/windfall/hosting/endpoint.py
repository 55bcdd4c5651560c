"""Models, endpoint configurations and endpoints: what is declared, and where an endpoint and its replicas stand.

Values that the store keeps. The legal moves of an endpoint and of a replica are the two tables here; deploying.py makes
the moves. Must not know SageMaker's requests (each is kept as opaque text), nor how a job is placed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from windfall.jobs.definitions import ContainerSpec
from windfall.jobs.ids import JobId
from windfall.jobs.staging import Staging
from windfall.jobs.states import MoveTable
from windfall.jobs.submitters import UNKNOWN, Submitter

#: How long a container has from its start to its first good answer to a ping, where nobody says otherwise.
STARTUP_S = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedModel:
    """A model as it was declared: the request, kept as text."""

    #: As it is kept: `<tenant>/<name>` for another tenant than `default`.
    name: str
    region: str
    document: str
    created_at: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    submitter: Submitter = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedConfig:
    """An endpoint configuration as it was declared: the request, kept as text."""

    name: str
    region: str
    document: str
    created_at: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    submitter: Submitter = UNKNOWN


class EndpointState(StrEnum):
    """SageMaker's words for where an endpoint stands."""

    CREATING = "Creating"
    IN_SERVICE = "InService"
    UPDATING = "Updating"
    ROLLING_BACK = "RollingBack"
    FAILED = "Failed"
    DELETING = "Deleting"


_E = EndpointState
ENDPOINT_MOVES = MoveTable(
    {
        (_E.CREATING, _E.IN_SERVICE): "every replica answers",
        (_E.CREATING, _E.FAILED): "replicas fail again and again",
        (_E.CREATING, _E.DELETING): "deleted",
        (_E.IN_SERVICE, _E.UPDATING): "another configuration, or other numbers of replicas",
        (_E.IN_SERVICE, _E.DELETING): "deleted",
        (_E.UPDATING, _E.IN_SERVICE): "the new generation has all requests, and the old one is gone",
        (_E.UPDATING, _E.ROLLING_BACK): "new replicas fail, find no room, or take too long",
        (_E.UPDATING, _E.DELETING): "deleted",
        (_E.ROLLING_BACK, _E.IN_SERVICE): "the old generation has all requests again",
        (_E.ROLLING_BACK, _E.DELETING): "deleted",
        (_E.FAILED, _E.DELETING): "deleted",
    },
    begins={_E.CREATING: ""},
    ends={_E.DELETING: "the last replica is gone"},
)


class ReplicaState(StrEnum):
    """Where a replica stands, beside its job."""

    #: Waits for a place, is prepared, or has not answered a ping yet.
    STARTING = "STARTING"
    READY = "READY"
    #: Gets no new request and finishes those that it has.
    DRAINING = "DRAINING"
    #: Its job is asked to stop.
    LEAVING = "LEAVING"


_R = ReplicaState
REPLICA_MOVES = MoveTable(
    {
        (_R.STARTING, _R.READY): "answers a ping",
        (_R.STARTING, _R.LEAVING): "not wanted any more, or does not answer in time",
        (_R.READY, _R.DRAINING): "not wanted any more",
        (_R.READY, _R.LEAVING): "does not answer any more",
        (_R.DRAINING, _R.LEAVING): "has no request left, or had long enough",
    },
    begins={_R.STARTING: "the deployment wants it"},
    ends=dict.fromkeys(_R, "its job has ended"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One server of a variant; its job is one of the hidden queue."""

    id: JobId
    generation: int
    variant: str
    #: Where it listens on its machine.
    port: int
    state: ReplicaState = ReplicaState.STARTING
    created_at: int = 0
    ready_at: int | None = None
    #: When it leaves, whatever it still has.
    drained_by: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A production variant: how many replicas of what, and their part of the requests."""

    name: str
    count: int
    weight: float
    container: ContainerSpec
    staging: Staging
    model: str = ""
    instance_type: str | None = None
    startup_s: int = STARTUP_S
    #: As the configuration has them; `count` and `weight` may have been changed since.
    initial_count: int = 1
    initial_weight: float = 1.0
    #: What of the type this host cannot give, and what runs in place of the image; None when nothing is to be said.
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The variants of one deployment; replicas of two generations are never taken for one another."""

    number: int
    #: The name of the configuration, as it is kept.
    config: str
    variants: tuple[Variant, ...]
    #: What is asked for beyond the API's own members: GPU shares, runtime.
    tags: Mapping[str, str] = field(default_factory=dict)

    def variant(self, name: str) -> Variant | None:
        """The variant of this name."""
        return next((variant for variant in self.variants if variant.name == name), None)


class RolloutKind(StrEnum):
    """How the requests come from the old generation to the new one."""

    ALL_AT_ONCE = "ALL_AT_ONCE"
    CANARY = "CANARY"
    LINEAR = "LINEAR"
    #: Some replicas at a time, so that there need not be room for both generations.
    ROLLING = "ROLLING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The rules of a deployment."""

    kind: RolloutKind = RolloutKind.ALL_AT_ONCE
    #: The part of the requests, or with ROLLING of the replicas, that one step moves.
    part: float = 1.0
    #: How long each step is watched before the next one, and the last one before the old generation goes.
    wait_s: int = 0
    termination_wait_s: int = 0
    #: How long all of it may take; None means for ever.
    max_s: int | None = None
    #: Whether the caller chose it; otherwise Windfall may choose another one where there is no room.
    chosen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A new generation on its way in."""

    target: Generation
    rollout: Rollout
    begun_at: int
    #: The part of the requests (with ROLLING: of the replicas) that the target has.
    part: float = 0.0
    #: When it last got more.
    moved_at: int | None = None
    #: Whether old replicas leave before new ones have their place, because there is no room for both.
    makes_room: bool = False
    #: Whether the old generation leaves for good.
    retiring: bool = False


@dataclass(frozen=True, slots=True)
class Setback:
    """Replicas of a variant that failed, one after the other."""

    generation: int
    variant: str
    failures: int
    #: When the next one may be started.
    again_at: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedEndpoint:
    """An endpoint: the generation that serves, the one on its way, and every replica of both."""

    name: str
    region: str
    #: Of `...:endpoint/<name>`.
    arn: str
    serving: Generation
    state: EndpointState = EndpointState.CREATING
    deployment: Deployment | None = None
    replicas: tuple[Replica, ...] = ()
    setbacks: tuple[Setback, ...] = ()
    #: How many replicas it has had.
    replicas_made: int = 0
    failure_reason: str | None = None
    created_at: int = 0
    modified_at: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    submitter: Submitter = UNKNOWN
    #: The last DeploymentConfig as it was sent; empty when none was.
    deployment_document: str = ""

    def generations(self) -> tuple[Generation, ...]:
        """The one that serves, and the one on its way."""
        return (self.serving,) if self.deployment is None else (self.serving, self.deployment.target)

    def story(self) -> str:
        """Its life in one line, for errors and logs."""
        return f"endpoint {self.name} is {self.state} with {len(self.replicas)} replicas"
