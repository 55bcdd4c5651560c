"""This moment, as the scheduler and explain see it: the one place where state becomes a snapshot.

Built at every scheduling tick, so it must cost instances, not jobs: waiting jobs are handed over as groups, and what
runs on an instance is listed only when somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from windfall.capacity.environments import ComputeEnvironment, Provisioning
from windfall.capacity.machines import Instance, Offer, share_of
from windfall.capacity.occupancy import InstanceUse
from windfall.control.state import State
from windfall.jobs.ids import EnvironmentName
from windfall.scheduling.snapshot import (
    EnvironmentView,
    InstanceView,
    MachineView,
    QueueView,
    Release,
    Snapshot,
)

Offers = Mapping[EnvironmentName, tuple[Offer, ...]]
_NO_USE = InstanceUse()


def make_snapshot(state: State, offers: Offers, now: int) -> Snapshot:
    """This moment, as the scheduler sees it."""
    return Snapshot(
        now=now,
        queues=[QueueView(queue, state.backlog.groups(queue.name)) for queue in state.queues.values()],
        environments={
            name: EnvironmentView(
                environment,
                _offers_left(state, environment, offers.get(name, ())),
                state.launch_troubles.get(name),
            )
            for name, environment in state.environments.items()
        },
        instances=[_instance_view(state, instance) for instance in state.instances.values()],
        machines={
            machine.id: MachineView(
                machine.id,
                machine.total,
                state.occupancy.used_on(machine.id),
                state.occupancy.free_gpus(machine),
            )
            for machine in state.machines.values()
        },
        rules=state.rules.scheduling,
    )


def _offers_left(
    state: State, environment: ComputeEnvironment, offers: tuple[Offer, ...]
) -> tuple[Offer, ...]:
    """Offers clipped to the environment; one that is a share of a known machine can be taken once."""
    left = []
    for offer in offers:
        if offer.machine is None and environment.provisioning is Provisioning.UNMANAGED:
            continue  # its owner brings the machines; what is there already can be used
        available = offer.available
        if offer.machine is not None:
            offer = replace(offer, resources=share_of(offer.resources, environment.max_vcpus))
            taken = any(
                instance.environment == environment.name and instance.machine in (offer.machine, None)
                for instance in state.instances.values()
            )
            available = 0 if taken or offer.resources.vcpus <= 0 else 1
        left.append(replace(offer, available=available))
    return tuple(left)


def _instance_view(state: State, instance: Instance) -> InstanceView:
    use = state.occupancy.instances.get(instance.id, _NO_USE)
    return InstanceView(
        instance.id,
        instance.environment,
        instance.type,
        instance.state,
        instance.total,
        use.used,
        instance.machine,
        use.idle_since if use is not _NO_USE else instance.launched_at,
        _Releases(state, use),
    )


class _Releases(Sequence[Release]):
    """What runs on an instance, listed only when somebody looks: most ticks do not."""

    __slots__ = ("_state", "_use")

    def __init__(self, state: State, use: InstanceUse) -> None:
        self._state, self._use = state, use

    def __len__(self) -> int:
        return len(self._use.holds)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[Release]:
        for token, hold in self._use.holds.items():
            job = self._state.attempts.get(token)
            started = job.attempt.started_at if job is not None and job.attempt is not None else None
            timeout_s = job.submission.timeout_s if job is not None else None
            at = started + timeout_s * 1000 if started is not None and timeout_s is not None else None
            yield Release(hold.resources, len(hold.gpu_ids), at)
