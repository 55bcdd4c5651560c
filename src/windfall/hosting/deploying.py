"""Deployments: from where an endpoint and its replicas stand to what happens next.

One pure function, `step`, is called whenever something of an endpoint may have changed, and is idempotent. It decides
which replicas start, drain and leave, and when the deployment and the endpoint move. A ready replica always drains
before its place is given up. Must not know jobs' records, clocks or sockets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from windfall.hosting.endpoint import (
    ENDPOINT_MOVES,
    REPLICA_MOVES,
    Deployment,
    EndpointState,
    Generation,
    HostedEndpoint,
    Replica,
    ReplicaState,
    RolloutKind,
    Setback,
    Variant,
)
from windfall.hosting.sizing import wanted
from windfall.jobs.ids import JobId

#: Replicas of one variant in a row that fail before a new generation is given up.
FAILURES_MAX = 3
#: How long a replica that leaves has for its last requests: SageMaker's limit for one answer, and a little.
DRAIN_MS = 65_000
#: How long the replicas of an update wait for places before it is taken that there is no room.
ROOM_MS = 60_000
#: The first and the longest pause before a replica that failed is replaced.
BACKOFF_MS, BACKOFF_MAX_MS = 1_000, 60_000
#: A replica that has served for this long has got over the failures before it.
STEADY_MS = 300_000

_E, _R = EndpointState, ReplicaState
_WANTED = (_R.STARTING, _R.READY)


@dataclass(frozen=True, slots=True)
class ReplicaJob:
    """What the job of a replica is now."""

    #: Whether it has a place.
    placed: bool = False
    started_at: int | None = None
    ended: bool = False
    #: Why it ended, where that is a fault of its own; None when its place was lost or somebody stopped it.
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What became of an endpoint; None when it is gone."""

    endpoint: HostedEndpoint | None
    #: Replicas without id and port, to be given jobs.
    start: tuple[Replica, ...] = ()
    #: Replicas whose jobs are to be stopped.
    stop: tuple[JobId, ...] = ()


def step(endpoint: HostedEndpoint, jobs: Mapping[JobId, ReplicaJob], now: int) -> Step:
    """What happens to an endpoint now."""
    before = {replica.id: replica.state for replica in endpoint.replicas}
    endpoint = _without_ended(endpoint, jobs, now)
    endpoint = _without_late(endpoint, jobs, now)
    endpoint = _advanced(endpoint, jobs, now)
    if endpoint.state is _E.DELETING and not endpoint.replicas:
        return Step(None)
    endpoint = _without_surplus(endpoint, now)
    endpoint = _after_draining(endpoint, now)
    stop = tuple(
        replica.id
        for replica in endpoint.replicas
        if replica.state is _R.LEAVING and before[replica.id] is not _R.LEAVING
    )
    return Step(endpoint, tuple(_missing(endpoint, now)), stop)


def moved(endpoint: HostedEndpoint, new: EndpointState) -> HostedEndpoint:
    """The endpoint in another state, if the table has such a move."""
    ENDPOINT_MOVES.check(endpoint.state, new, endpoint.story)
    return replace(endpoint, state=new)


def moved_replica(replica: Replica, new: ReplicaState) -> Replica:
    """The replica in another state, if the table has such a move."""
    REPLICA_MOVES.check(replica.state, new, lambda: f"replica {replica.id}")
    return replace(replica, state=new)


def with_replica(endpoint: HostedEndpoint, changed: Replica) -> HostedEndpoint:
    """The endpoint with one replica changed."""
    replicas = tuple(changed if replica.id == changed.id else replica for replica in endpoint.replicas)
    return replace(endpoint, replicas=replicas)


def _without_ended(endpoint: HostedEndpoint, jobs: Mapping[JobId, ReplicaJob], now: int) -> HostedEndpoint:
    """Without replicas whose jobs have ended; those that ended by a fault of their own are held against the variant."""
    for replica in endpoint.replicas:
        job = jobs.get(replica.id, ReplicaJob(ended=True))
        if not job.ended:
            continue
        if replica.state in _WANTED and job.fault is not None:
            endpoint = _with_setback(endpoint, replica, job.fault, now)
        left = tuple(other for other in endpoint.replicas if other.id != replica.id)
        endpoint = replace(endpoint, replicas=left)
    return endpoint


def _without_late(endpoint: HostedEndpoint, jobs: Mapping[JobId, ReplicaJob], now: int) -> HostedEndpoint:
    """With those leaving that should have answered a ping by now."""
    for replica in endpoint.replicas:
        started_at = jobs[replica.id].started_at if replica.id in jobs else None
        if replica.state is not _R.STARTING or started_at is None:
            continue
        startup_s = _variant_of(endpoint, replica).startup_s
        if now - started_at >= startup_s * 1000:
            reason = f"it did not answer GET /ping with 200 within {startup_s} s"
            endpoint = with_replica(endpoint, moved_replica(replica, _R.LEAVING))
            endpoint = _with_setback(endpoint, replica, reason, now)
    return endpoint


def given_up(endpoint: HostedEndpoint, replica: Replica, reason: str, now: int) -> HostedEndpoint:
    """The endpoint when a ready replica does not answer any more."""
    endpoint = with_replica(endpoint, moved_replica(replica, _R.LEAVING))
    return _with_setback(endpoint, replica, reason, now)


def _with_setback(endpoint: HostedEndpoint, replica: Replica, reason: str, now: int) -> HostedEndpoint:
    earlier = _setback(endpoint, replica.generation, replica.variant)
    steady = replica.ready_at is not None and now - replica.ready_at >= STEADY_MS
    failures = 1 if earlier is None or steady else earlier.failures + 1
    pause = min(BACKOFF_MAX_MS, BACKOFF_MS * 2 ** min(failures - 1, 10))
    setback = Setback(replica.generation, replica.variant, failures, now + pause, reason)
    others = tuple(other for other in endpoint.setbacks if other is not earlier)
    return replace(endpoint, setbacks=(*others, setback))


def _setback(endpoint: HostedEndpoint, generation: int, variant: str) -> Setback | None:
    return next(
        (it for it in endpoint.setbacks if (it.generation, it.variant) == (generation, variant)), None
    )


def _variant_of(endpoint: HostedEndpoint, replica: Replica) -> Variant:
    generation = next(it for it in endpoint.generations() if it.number == replica.generation)
    variant = generation.variant(replica.variant)
    assert variant is not None, f"{endpoint.story()}; {replica.id} belongs to no variant"
    return variant


def _advanced(endpoint: HostedEndpoint, jobs: Mapping[JobId, ReplicaJob], now: int) -> HostedEndpoint:
    """The endpoint and its deployment where they are to be now."""
    match endpoint.state:
        case _E.CREATING:
            return _creating(endpoint, now)
        case _E.UPDATING:
            return _updating(endpoint, jobs, now)
        case _E.ROLLING_BACK:
            serves = _ready(endpoint, endpoint.serving) and not _of(endpoint, endpoint.generations()[-1])
            return _settled(endpoint, endpoint.serving, now) if serves else endpoint
        case _:
            return endpoint


def _creating(endpoint: HostedEndpoint, now: int) -> HostedEndpoint:
    if (failed := _failed(endpoint, endpoint.serving)) is not None:
        endpoint = replace(endpoint, failure_reason=_failure(failed), modified_at=now)
        return moved(endpoint, _E.FAILED)
    return _settled(endpoint, endpoint.serving, now) if _ready(endpoint, endpoint.serving) else endpoint


def _settled(endpoint: HostedEndpoint, generation: Generation, now: int) -> HostedEndpoint:
    setbacks = tuple(setback for setback in endpoint.setbacks if setback.generation == generation.number)
    endpoint = replace(endpoint, serving=generation, deployment=None, setbacks=setbacks, modified_at=now)
    return moved(endpoint, _E.IN_SERVICE)


def _updating(endpoint: HostedEndpoint, jobs: Mapping[JobId, ReplicaJob], now: int) -> HostedEndpoint:
    deployment = endpoint.deployment
    if deployment is None:  # Only the numbers of its replicas have changed.
        has_all = _ready(endpoint, endpoint.serving) and not _leaving(endpoint)
        return _settled(endpoint, endpoint.serving, now) if has_all else endpoint
    target, rollout = deployment.target, deployment.rollout
    if deployment.retiring:
        is_over = not _of(endpoint, endpoint.serving) and _ready(endpoint, target)
        return _settled(endpoint, target, now) if is_over else endpoint
    if (failed := _failed(endpoint, target)) is not None:
        return _back(endpoint, _failure(failed), now)
    if rollout.max_s is not None and now - deployment.begun_at >= rollout.max_s * 1000:
        return _back(endpoint, f"The update took longer than {rollout.max_s} seconds.", now)
    if _lacks_room(endpoint, jobs, now):
        return _without_room(endpoint, deployment, now)
    if not _has_arrived(endpoint, deployment):
        return endpoint
    waited_ms = 0 if deployment.moved_at is None else now - deployment.moved_at
    if deployment.moved_at is not None and waited_ms < _watched_ms(deployment):
        return endpoint
    if deployment.part >= 1.0 and rollout.kind is not RolloutKind.ROLLING:
        return replace(endpoint, deployment=replace(deployment, retiring=True), modified_at=now)
    part = _next_part(deployment)
    retiring = rollout.kind is RolloutKind.ROLLING and part >= 1.0
    shifted = replace(deployment, part=part, moved_at=now, retiring=retiring)
    return replace(endpoint, deployment=shifted, modified_at=now)


def _watched_ms(deployment: Deployment) -> int:
    """How long the last step is watched before the next."""
    rollout = deployment.rollout
    return 1000 * (rollout.termination_wait_s if deployment.part >= 1.0 else rollout.wait_s)


def _next_part(deployment: Deployment) -> float:
    rollout = deployment.rollout
    if rollout.kind is RolloutKind.ALL_AT_ONCE or (
        rollout.kind is RolloutKind.CANARY and deployment.part > 0.0
    ):
        return 1.0
    part = deployment.part + rollout.part
    return 1.0 if part >= 1.0 - 1e-9 else part


def _has_arrived(endpoint: HostedEndpoint, deployment: Deployment) -> bool:
    """Whether the replicas of the step that is under way answer."""
    target, counts = deployment.target, wanted(endpoint)
    return all(
        _count(endpoint, target.number, variant.name, _R.READY) >= counts[target.number, variant.name]
        for variant in target.variants
    )


def _lacks_room(endpoint: HostedEndpoint, jobs: Mapping[JobId, ReplicaJob], now: int) -> bool:
    deployment = endpoint.deployment
    assert deployment is not None
    if deployment.makes_room:
        return False
    return any(
        replica.state is _R.STARTING
        and not jobs[replica.id].placed
        and now - replica.created_at >= ROOM_MS
        and (deployment.rollout.kind is RolloutKind.ROLLING or not deployment.rollout.chosen)
        for replica in _of(endpoint, deployment.target)
    )


def _without_room(endpoint: HostedEndpoint, deployment: Deployment, now: int) -> HostedEndpoint:
    """Go on replica by replica, where that leaves something that answers; otherwise go back."""
    if deployment.rollout.kind is RolloutKind.ROLLING:
        return replace(endpoint, deployment=replace(deployment, makes_room=True), modified_at=now)
    fewest = min(variant.count for variant in endpoint.serving.variants)
    if fewest < 2:
        reason = (
            "There is no room for a second set of replicas beside the one that serves. Update the endpoint with a"
            " RollingUpdatePolicy, which lets old replicas leave first, or add capacity."
        )
        return _back(endpoint, reason, now)
    rolling = replace(deployment.rollout, kind=RolloutKind.ROLLING, part=1.0 / fewest)
    return replace(
        endpoint, deployment=replace(deployment, rollout=rolling, makes_room=True), modified_at=now
    )


def _back(endpoint: HostedEndpoint, reason: str, now: int) -> HostedEndpoint:
    return moved(replace(endpoint, failure_reason=reason, modified_at=now), _E.ROLLING_BACK)


def _failed(endpoint: HostedEndpoint, generation: Generation) -> Setback | None:
    return next(
        (
            setback
            for setback in endpoint.setbacks
            if setback.generation == generation.number and setback.failures >= FAILURES_MAX
        ),
        None,
    )


def _failure(setback: Setback) -> str:
    """SageMaker's sentence, and what was the matter here."""
    return (
        f"The primary container for production variant {setback.variant} did not pass the ping health check."
        f" Please check CloudWatch logs for this endpoint. The last of {setback.failures} replicas: {setback.reason}."
    )


def _ready(endpoint: HostedEndpoint, generation: Generation) -> bool:
    return all(
        _count(endpoint, generation.number, variant.name, _R.READY) >= variant.count
        for variant in generation.variants
    )


def _leaving(endpoint: HostedEndpoint) -> bool:
    counts = wanted(endpoint)
    return len(endpoint.replicas) > sum(counts.values())


def _of(endpoint: HostedEndpoint, generation: Generation) -> list[Replica]:
    return [replica for replica in endpoint.replicas if replica.generation == generation.number]


def _count(endpoint: HostedEndpoint, generation: int, variant: str, *states: ReplicaState) -> int:
    return sum(
        replica.generation == generation and replica.variant == variant and replica.state in states
        for replica in endpoint.replicas
    )


def _missing(endpoint: HostedEndpoint, now: int) -> Iterator[Replica]:
    for (generation, variant), count in wanted(endpoint).items():
        setback = _setback(endpoint, generation, variant)
        if setback is not None and now < setback.again_at:
            continue
        for _ in range(count - _count(endpoint, generation, variant, *_WANTED)):
            yield Replica(id=JobId(""), generation=generation, variant=variant, port=0, created_at=now)


def _without_surplus(endpoint: HostedEndpoint, now: int) -> HostedEndpoint:
    """With replicas draining or leaving that are more than wanted: first those that serve nobody yet."""
    counts = wanted(endpoint)
    for generation in endpoint.generations():
        for variant in generation.variants:
            key = (generation.number, variant.name)
            present = [
                replica
                for replica in endpoint.replicas
                if (replica.generation, replica.variant) == key and replica.state in _WANTED
            ]
            present.sort(key=lambda replica: (replica.state is _R.READY, -replica.created_at))
            for replica in present[: max(0, len(present) - counts.get(key, 0))]:
                endpoint = with_replica(endpoint, _sent_away(replica, now))
    return endpoint


def _sent_away(replica: Replica, now: int) -> Replica:
    if replica.state is _R.STARTING:
        return moved_replica(replica, _R.LEAVING)
    return replace(moved_replica(replica, _R.DRAINING), drained_by=now + DRAIN_MS)


def _after_draining(endpoint: HostedEndpoint, now: int) -> HostedEndpoint:
    for replica in endpoint.replicas:
        if replica.state is _R.DRAINING and replica.drained_by is not None and replica.drained_by <= now:
            endpoint = with_replica(endpoint, moved_replica(replica, _R.LEAVING))
    return endpoint


def drained(endpoint: HostedEndpoint, replica: Replica, now: int) -> HostedEndpoint:
    """The endpoint when a draining replica has no request left."""
    return with_replica(endpoint, replace(replica, drained_by=now))
