"""Where the requests of endpoints go: what the daemon tells the usher, and nothing else.

Decides the form of the table alone. The daemon writes it (usher/table_file.py does the encoding), and the usher follows
the last one that it could read while the daemon is away. Must not know how replicas are started or how requests travel.
"""

from __future__ import annotations

from dataclasses import dataclass

#: What SageMaker gives a model's container for one answer, and for one streamed answer.
ANSWER_TIMEOUT_S = 60.0
STREAM_TIMEOUT_S = 480.0
#: Requests of one variant that may wait while every replica has as many as it takes at once.
QUEUE_LIMIT = 1000
#: Requests that one replica gets at once; further ones wait at the usher, which can still choose another replica.
CONCURRENCY_PER_REPLICA = 64


@dataclass(frozen=True, slots=True)
class ReplicaRoute:
    """One server that answers `POST /invocations`."""

    #: The token of the replica's attempt, which names it for ever.
    id: str
    #: An address, never a name: requests do not wait for a resolver.
    host: str
    port: int
    #: Finishes what it has, and gets nothing new.
    draining: bool = False
    #: The log stream of its output, within its variant's group.
    log_stream: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRoute:
    """A production variant, or a shadow variant, with its replicas."""

    name: str
    #: Its part of the requests is its weight by the sum of all weights; 0 gets only requests that name it.
    weight: float
    replicas: tuple[ReplicaRoute, ...] = ()
    queue_limit: int = QUEUE_LIMIT
    concurrency_per_replica: int = CONCURRENCY_PER_REPLICA
    timeout_s: float = ANSWER_TIMEOUT_S
    stream_timeout_s: float = STREAM_TIMEOUT_S
    #: A shadow variant gets copies of the requests of the others, and its answers are dropped. `weight` is the part of
    #: the requests that it gets a copy of, from 0 to 1.
    shadow: bool = False
    #: Answers requests that come while no replica is ready by waiting for one, up to `timeout_s`: a variant that was
    #: scaled to nothing or parked is on its way back. Without it they get an error at once.
    holds: bool = False
    #: The log group of its replicas, for `LogStreamArn` of a ModelError; without `:*` at its end.
    log_group_arn: str = ""


@dataclass(frozen=True, slots=True)
class EndpointRoute:
    """One endpoint; for callers of another tenant than its own it does not exist."""

    name: str
    arn: str
    tenant: str
    variants: tuple[VariantRoute, ...] = ()


@dataclass(frozen=True, slots=True)
class RouteTable:
    """All endpoints that take requests. A table with a lower version than the one in use is never used."""

    version: int
    endpoints: tuple[EndpointRoute, ...] = ()
