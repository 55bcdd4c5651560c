"""Training jobs on several hosts in the simulation: who submits them, and what their hosts may never be seen to do.

All hosts start together or none, the end of a try is decided once and by all of them, none outlives it, each of them
is paid for, and each knows the same of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.store import BrokenPromise, FakeStore
from windfall.accounting.prices import price_of, training_seconds
from windfall.capacity.environments import ComputeEnvironment, Provisioning
from windfall.control import events
from windfall.control.gangs import members
from windfall.control.instructions import StartAttempt
from windfall.control.interrupting import WITH_NOTICE
from windfall.control.state import State
from windfall.jobs.attempts import Attempt, StopCause
from windfall.jobs.definitions import ContainerSpec
from windfall.jobs.ids import AttemptToken, EnvironmentName, JobId, node_id, split_node
from windfall.jobs.job import Job, TimeLimits
from windfall.jobs.nodes import NodeGroup, Nodes
from windfall.jobs.resources import Resources
from windfall.jobs.staging import Checkpoints, Output, Staging
from windfall.jobs.states import PLACED, SUCCEEDED

if TYPE_CHECKING:
    from tests.simulation.clients import Clients
    from tests.simulation.world import World

HOUR_MS = 3_600_000
#: Where every host can have a machine of its own; the other place is the host that all of them share.
CLOUD = ComputeEnvironment(
    EnvironmentName("cloud-training"), Provisioning.SPOT, 0, 8, allocation="SPOT_PRICE_CAPACITY_OPTIMIZED"
)
SHARED = ComputeEnvironment(EnvironmentName("training-spot"), Provisioning.SPOT, 0, 4)
_SMALL, _LARGE = Resources(0.5, 512), Resources(2, 1024, 1)
_LIMITS = (
    TimeLimits(run_s=10),
    TimeLimits(run_s=12, wait_s=40),
    TimeLimits(run_s=30, wait_s=90, pending_s=15),
    TimeLimits(run_s=60),
)
_TAGS: tuple[dict[str, str], ...] = ({}, {}, {"windfall:budget-usd": "0.3"}, {"windfall:budget-usd": "1.5"})
#: Whole jobs that are stopped for these reasons never succeed, whatever their hosts make of it.
_STOPPED = {StopCause.TERMINATED, StopCause.RUN_TIME, StopCause.WAIT_TIME}


def peers_of(sizes: Sequence[Resources], staging: Staging) -> Nodes:
    """As many equal nodes as there are sizes, each in a group of its own."""
    groups = tuple(
        NodeGroup(number, number, ContainerSpec("image", size, ("train",)), staging=staging)
        for number, size in enumerate(sizes)
    )
    return Nodes(len(groups), 0, groups, peers=True, name_prefix="algo-")


def staging_at(uri: str) -> Staging:
    """Checkpoints under one prefix, and one archive of all hosts' files."""
    return Staging(Checkpoints(uri, publish=True), outputs=(Output("/opt/ml/model", f"{uri}/model.tar.gz"),))


def submit_training_gang(clients: Clients) -> None:
    """A training job on two or three hosts, perhaps with limits and a budget."""
    clients.submitted += 1
    rng, job_id = clients.rng, JobId(f"training-{clients.submitted}")
    environment = rng.choice((CLOUD, CLOUD, SHARED))
    sizes = [_SMALL] * rng.choice((2, 2, 3))
    if rng.random() < 0.4:
        sizes[-1] = _LARGE
    staging = staging_at(f"s3://simulated/training/{clients.submitted}")
    clients.submit_training_job(
        events.SubmitTraining(
            job_id,
            job_id.removeprefix("training-"),
            environment,
            ContainerSpec("image", sizes[0], ("train",)),
            staging,
            rng.choice(_LIMITS),
            rng.choice((1, 3)),
            tags=rng.choice(_TAGS),
            nodes=peers_of(sizes, staging),
        )
    )


def is_of_peers(job: Job) -> bool:
    """Whether a job is one of several equal hosts, or all of them."""
    return job.submission.nodes is not None and job.submission.nodes.peers


# Memory -------------------------------------------------------------------------------------------------------


def check_peers(state: State) -> None:
    """All hosts are at the same try, and when one cannot go on, all that still run have been told."""
    for gang in [job for job in state.jobs.values() if job.is_gang and is_of_peers(job)]:
        hosts = members(state, gang)
        _check_together(gang, hosts)
        live = [one.attempt for one in hosts if one.attempt is not None]
        ended = [one.attempts[-1] for one in hosts if one.attempts and one.attempt is None]
        over = [one for one in ended if not one.succeeded]
        unasked = [one.token for one in live if one.stop_cause is None]
        if gang.state in PLACED and unasked and (over or len(unasked) != len(live)):
            raise BrokenPromise(f"{unasked} go on while others of them cannot: {gang.story()}")
        deadlines = {one.deadline_at for one in live if one.stop_cause in WITH_NOTICE}
        if len(deadlines) > 1:
            raise BrokenPromise(f"one gang has notice until {sorted(map(str, deadlines))}: {gang.story()}")


def _check_together(gang: Job, hosts: list[Job]) -> None:
    nodes = gang.submission.nodes
    assert nodes is not None
    number = len(gang.gang_ends) + (gang.state in PLACED)
    if number and len(hosts) != nodes.count:
        raise BrokenPromise(f"{len(hosts)} of {nodes.count} hosts were ever placed: {gang.story()}")
    tries = {len(one.attempts) for one in hosts}
    if tries != {number}:
        raise BrokenPromise(f"try {number} has hosts that have had {sorted(tries)}: {gang.story()}")
    if number and len({one.attempts[-1].placed_at for one in hosts}) != 1:
        raise BrokenPromise(f"the hosts of try {number} were not placed at once: {gang.story()}")


def check_budgets(state: State) -> None:
    """Whoever pays is watched: the limit is due no later than the moment at which the money is spent."""
    for job in state.jobs.values():
        budget = job.submission.budget_usd
        if budget is None or job.is_node or job.is_array:
            continue
        payers = members(state, job)
        live = [one.attempt for one in payers if one.attempt is not None]
        peers = is_of_peers(job)
        if not live or any(one.stop_cause is not None for one in live) or (job.attempt is None and not peers):
            continue
        spent_at = _spent_at(state, payers, budget)
        if spent_at is not None and state.limit_due.get(job.id, spent_at + 10) > spent_at + 2:
            raise BrokenPromise(
                f"the budget of {job.id} is spent at {spent_at}, and looked at {state.limit_due.get(job.id)}"
            )


def _spent_at(state: State, payers: list[Job], budget: float) -> int | None:
    """When a budget is used up if all goes on: a line through what has ended and what runs."""
    left_usd, usd_ms = budget, 0.0
    for job in payers:
        for attempt in job.attempts:
            each = (price_of(attempt, job.resources, state.rules.rates).paid_usd or 0.0) / HOUR_MS
            if attempt.stopped_at is None:
                usd_ms += each
                left_usd += each * attempt.placed_at
            else:
                left_usd -= each * max(0, attempt.stopped_at - attempt.placed_at)
    return int(left_usd / usd_ms) if usd_ms else None


# Store and processes ------------------------------------------------------------------------------------------


def check_ends_of_peers(world: World, changed: dict[JobId, Job]) -> None:
    """What is durable about a gang that has moved: a try that is over ended with all its hosts, as they did."""
    gangs = {job.parent or job.id for job in changed.values() if is_of_peers(job)}
    for gang_id in sorted(gangs & world.store.jobs.keys()):
        gang = world.store.jobs[gang_id]
        hosts = hosts_in(world.store, gang)
        for number, whole in enumerate(gang.tries[: len(gang.gang_ends)], 1):
            _check_end(gang, whole, [one.attempts[number - 1] for one in hosts])
        if gang.state in PLACED:
            continue
        left = [
            token
            for token in world.processes
            if gang_of_token(token) == gang.id and not world.may_run_beside(token)
        ]
        if left:
            raise BrokenPromise(f"{left} run, and their job is {gang.state}: {gang.story()}")
        if gang.finished and not all(one.finished for one in hosts):
            raise BrokenPromise(f"has ended without {[one.id for one in hosts if not one.finished]}")
        if gang.gang_ends and gang.finished:
            _check_outcome(gang, [one.attempts[-1] for one in hosts])


def _check_end(gang: Job, whole: Attempt, parts: list[Attempt]) -> None:
    stops = [part.stopped_at for part in parts if part.stopped_at is not None]
    if len(stops) != len(parts):
        raise BrokenPromise(f"try {whole.number} is over and some of its hosts are not: {gang.story()}")
    if whole.stopped_at != max(stops):
        raise BrokenPromise(f"try {whole.number} ended at {whole.stopped_at}, its hosts at {stops}")
    well = whole.succeeded and whole.stop_cause not in _STOPPED
    if well and not all(part.succeeded for part in parts):
        raise BrokenPromise(f"try {whole.number} is said to have ended well: {gang.story()}")
    billed = training_seconds([whole], max(stops))
    if billed != max(1, round((max(stops) - parts[0].placed_at) / 1000)):
        raise BrokenPromise(f"{billed} s are billed for try {whole.number}: {gang.story()}")


def _check_outcome(gang: Job, last: list[Attempt]) -> None:
    well = all(part.succeeded and part.stop_cause not in _STOPPED for part in last)
    if well is not (gang.state is SUCCEEDED):
        codes = [(part.exit_code, part.stop_cause) for part in last]
        raise BrokenPromise(f"its hosts ended with {codes}, and it is {gang.state}: {gang.story()}")


def hosts_in(store: FakeStore, gang: Job) -> list[Job]:
    """The hosts of a training job that have ever been placed, as they are stored, the first one first."""
    nodes = gang.submission.nodes
    others = () if nodes is None else (node_id(gang.id, number) for number in nodes.others)
    return [gang, *(store.jobs[one] for one in others if one in store.jobs)]


def gang_of_token(token: AttemptToken) -> JobId:
    """The job that an attempt belongs to, of whichever host it is."""
    return split_node(JobId(token.rpartition("#")[0]))[0]


@dataclass(slots=True)
class PeerWatch:
    """What the hosts of each try were told of one another."""

    told: dict[str, tuple[object, ...]] = field(default_factory=dict)

    def look(self, world: World, start: StartAttempt) -> None:
        """A process begins: its try is that of all hosts, nobody is left of another, and all were told the same."""
        gang_id = gang_of_token(start.token)
        gang = world.store.jobs[gang_id]
        if not is_of_peers(gang) or world.may_run_beside(start.token):
            return
        number = start.token.rpartition("#")[2]
        hosts = hosts_in(world.store, gang)
        for host in hosts:
            if host.attempts[-1].token.rpartition("#")[2] != number:
                raise BrokenPromise(f"{start.token} begins, and {host.id} is at another try: {host.story()}")
        for other in world.processes:
            is_of_another_try = gang_of_token(other) == gang_id and other.rpartition("#")[2] != number
            if is_of_another_try and not world.may_run_beside(other):
                raise BrokenPromise(f"{start.token} begins while {other} of another try runs")
        assert start.staging is not None
        own = (start.staging.hosts, *(output.merged_as for output in start.staging.outputs))
        one_try = f"{gang_id}#{number}"
        if self.told.setdefault(one_try, own) != own:
            raise BrokenPromise(f"{start.token} was told {own}, another host {self.told[one_try]}")
        self._check_addresses(world, one_try, start)

    def _check_addresses(self, world: World, one_try: str, start: StartAttempt) -> None:
        assert start.staging is not None
        # Machines have addresses of their own, and gangs on them different ports.
        addresses = {address for _, address in start.staging.hosts if address.startswith("127.")}
        for token, (_, other) in world.processes.items():
            if other.staging is None or gang_of_token(token) == gang_of_token(start.token):
                continue
            if addresses & {address for _, address in other.staging.hosts}:
                raise BrokenPromise(f"{one_try} and {token} have the same addresses {addresses}")
