"""Compute environments and job queues: what users declare about capacity.

Values only. Fields that have no behaviour here (subnets, roles, AMIs) live in `document`, opaque.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from windfall.jobs.ids import EnvironmentName, QueueName


class Switch(StrEnum):
    """Whether an environment or queue takes new work."""

    ENABLED = "ENABLED"
    DISABLED = "DISABLED"


class Provisioning(StrEnum):
    """What kind of capacity an environment asks for."""

    EC2 = "EC2"
    SPOT = "SPOT"
    FARGATE = "FARGATE"
    FARGATE_SPOT = "FARGATE_SPOT"
    UNMANAGED = "UNMANAGED"


#: Environments of these kinds run on capacity that others may take back.
RECLAIMABLE = frozenset({Provisioning.SPOT, Provisioning.FARGATE_SPOT})
#: Environments of these kinds take no GPU jobs, as on AWS.
WITHOUT_GPUS = frozenset({Provisioning.FARGATE, Provisioning.FARGATE_SPOT})


#: The environments of training jobs, which nobody declares: they are made when the first training job wants one. Each
#: has a queue of its own name.
TRAINING_SPOT = EnvironmentName("windfall-training-spot")
TRAINING_ON_DEMAND = EnvironmentName("windfall-training-on-demand")
#: The environment of the replicas of endpoints, in the same way.
ENDPOINTS = EnvironmentName("windfall-endpoints")
UNDECLARED = frozenset({TRAINING_SPOT, TRAINING_ON_DEMAND, ENDPOINTS})


@dataclass(frozen=True, slots=True)
class ComputeEnvironment:
    """A pool of instances that scales between two numbers of vCPUs."""

    name: EnvironmentName
    provisioning: Provisioning
    min_vcpus: int
    max_vcpus: int
    switch: Switch = Switch.ENABLED
    #: The engine that serves it; None means the daemon's default one.
    engine: str | None = None
    uuid: str = ""
    created_at: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    #: The request as it was sent (and updated), for the wire alone.
    document: str = "{}"
    #: The instance types and families that it may launch, as they were named; empty means any.
    instance_types: tuple[str, ...] = ()
    #: How a type is chosen among those that fit; None means the first.
    allocation: str | None = None
    #: The most that a spot instance may cost, in percent of its price on demand.
    bid_percent: int | None = None


@dataclass(frozen=True, slots=True)
class ServiceEnvironment:
    """How much of a service (SageMaker training) the jobs of its queue may use at once."""

    name: str
    #: (unit, amount) pairs: `NUM_INSTANCES`, or instance types.
    limits: tuple[tuple[str, int], ...]
    switch: Switch = Switch.ENABLED
    created_at: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StateTimeLimit:
    """How long a RUNNABLE job may block the head of its queue for one reason before it is cancelled."""

    #: The code that AWS's reason begins with.
    reason: str
    max_time_s: int


@dataclass(frozen=True, slots=True)
class JobQueue:
    """Where jobs wait. Higher priority goes first among queues that share an environment."""

    name: QueueName
    priority: int
    #: Tried in this order.
    environments: tuple[EnvironmentName, ...]
    switch: Switch = Switch.ENABLED
    created_at: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    document: str = "{}"
    time_limits: tuple[StateTimeLimit, ...] = ()
    #: The scheduling policy; None means first come, first served.
    policy: str | None = None
    #: Where its service jobs run; a queue has this or `environments`, for all its life.
    service_environment: str | None = None
