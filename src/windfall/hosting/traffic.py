"""What the usher counts, as it answers `stats`: for CloudWatch's metrics, for drains and for autoscaling.

Decides the form of the answer alone. All counts begin at zero when an usher starts (`since_ms`), so readers take
differences, and begin anew when `since_ms` has changed.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The stages of a request in order: until its last byte was received, until its signature was verified, until a replica
#: was free, until the replica's last byte, until the client had taken the answer.
STAGES = ("received", "verified", "waited", "container", "sent")
#: A histogram has this many buckets; bucket N counts times below 2**N microseconds that are not in the one before.
BUCKETS = 32


@dataclass(frozen=True, slots=True)
class StageTimes:
    """How long one stage took, over all requests of a replica."""

    sum_us: int
    histogram: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaTraffic:
    """The requests of one replica."""

    #: The token of its attempt, as in the route table.
    id: str
    in_flight: int
    #: Requests that ended, whatever their answer; those below are a part of them.
    invocations: int
    #: Answers of the model with 4xx and 5xx, the latter with those that never came or came too late.
    status_4xx: int
    status_5xx: int
    #: By stage.
    stages: dict[str, StageTimes]
    #: Milliseconds since the epoch; 0 for never.
    last_request_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantTraffic:
    """The requests of one variant. A replica that has left the table stays until its last request has ended."""

    name: str
    #: Requests that wait for a replica now.
    waiting: int
    #: Refused with 429 because the queue was full, or because no replica was free in time.
    throttled: int
    #: Refused because no replica was ready.
    unavailable: int
    #: Copies that a shadow variant did not get because it was busy.
    copies_dropped: int
    replicas: tuple[ReplicaTraffic, ...]


@dataclass(frozen=True, slots=True)
class EndpointTraffic:
    """The requests of one endpoint."""

    name: str
    tenant: str
    #: Requests that named a variant which does not exist.
    invalid: int
    #: The last request of any variant, also one that no replica was ready for, in milliseconds since the epoch.
    last_request_at: int
    variants: tuple[VariantTraffic, ...]


@dataclass(frozen=True, slots=True)
class UsherTraffic:
    """Everything that one usher has counted since it started."""

    #: Windfall's version in this process, its process id, and when it began to count.
    version: str
    pid: int
    since_ms: int
    #: The version of the route table in use.
    table: int
    connections: int
    #: Requests that were refused before their endpoint was known: not signed, not readable, too large.
    refused: int
    endpoints: tuple[EndpointTraffic, ...]
