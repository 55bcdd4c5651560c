"""Multi-node jobs in the simulation: who submits them, and that their nodes run all or none, of one generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.quota_shares import QUOTA_QUEUE, quota_share_in
from tests.simulation.shares import share_in
from tests.simulation.store import BrokenPromise
from tests.simulation.tokens import wanted_tokens
from windfall.control import events
from windfall.control.gangs import may_wait_alone, nodes_of
from windfall.control.state import State
from windfall.jobs.definitions import ContainerSpec, JobDefinition, NodePlan, NodeRange
from windfall.jobs.ids import AttemptToken, JobId, QueueName, split_node
from windfall.jobs.job import Job
from windfall.jobs.resources import Resources
from windfall.jobs.retry import RetryStrategy
from windfall.jobs.states import PLACED, RUNNABLE

if TYPE_CHECKING:
    from tests.simulation.clients import Clients
    from tests.simulation.world import World

_SMALL = ContainerSpec("image", Resources(0.5, 512), ("run",))
_LARGE = ContainerSpec("image", Resources(1, 1024, 1), ("run",))
#: The last one fits nowhere.
DEFINITIONS = (
    JobDefinition("pair", 0, _SMALL, nodes=NodePlan(2, 0, (NodeRange(0, None, _SMALL),))),
    JobDefinition(
        "trio", 0, _SMALL, nodes=NodePlan(3, 1, (NodeRange(0, None, _SMALL), NodeRange(2, 2, _LARGE)))
    ),
    JobDefinition("crowd", 0, _SMALL, nodes=NodePlan(90, 0, (NodeRange(0, None, _SMALL),))),
)
_TAGS: tuple[dict[str, str], ...] = (
    {},
    {"windfall:checkpoint": "true"},
    {"windfall:replace-lost-nodes": "true"},
    {"windfall:replace-lost-nodes": "true", "windfall:checkpoint": "true", "windfall:budget-usd": "0.8"},
)


def submit_gang(clients: Clients) -> None:
    """A multi-node job, perhaps with retries, a timeout, or nodes that are replaced."""
    clients.submitted += 1
    job_id, rng = JobId(f"gang-{clients.submitted}"), clients.rng
    # Those of the first and the last may ask others to leave.
    queue = rng.choice(("high", "low", "fair", "quota") if clients.theme != "gangs" else ("high", "quota"))
    share, priority = share_in(queue, rng) if queue != QUOTA_QUEUE.name else quota_share_in(queue, rng)
    command = events.SubmitJob(
        job_id,
        f"name-{clients.submitted}",
        QueueName(queue),
        rng.choice(("pair", "pair", "trio", "trio", "crowd") if rng.random() < 0.2 else ("pair", "trio")),
        retry=rng.choice((None, RetryStrategy(3))),
        timeout_s=rng.choice((None, None, 5)),
        tags=rng.choice(_TAGS),
        consumables=wanted_tokens(rng),
        share=share,
        priority=priority,
    )
    clients.submit(command, None)


def check_gangs(state: State) -> None:
    """All nodes of a gang have a place or none, they are of one generation, and no two gangs share addresses."""
    numbers: dict[int, JobId] = {}
    for gang in [job for job in state.jobs.values() if job.is_gang]:
        nodes = nodes_of(state, gang)
        live = [one for one in (gang, *nodes) if one.attempt is not None]
        if gang.state not in PLACED and live:
            raise BrokenPromise(f"{[one.id for one in live]} have a place and their gang is {gang.state}")
        if gang.state in PLACED and not live:
            raise BrokenPromise(f"nothing of it lives and nobody decides: {gang.story()}")
        if not live:
            continue
        if gang.gang_number is None or gang.gang_number in numbers:
            raise BrokenPromise(f"{gang.id} has the addresses of {numbers.get(gang.gang_number or 0)}")
        numbers[gang.gang_number] = gang.id
        if gang.attempt is not None:
            _check_whole(state, gang, nodes)
        wanted = gang.submission.nodes
        for node in nodes if wanted is not None and not wanted.peers else []:
            started = node.attempt is not None and node.attempt.started_at is not None
            if started and gang.attempts[-1].started_at is None:
                raise BrokenPromise(f"runs before its main node: {node.story()}")


def _check_whole(state: State, gang: Job, nodes: list[Job]) -> None:
    """While the main node has its place, every other one has had its own beside it."""
    wanted = gang.submission.nodes
    if wanted is None or len(nodes) != wanted.count - 1:
        raise BrokenPromise(f"{len(nodes)} nodes stand beside the main one of {gang.story()}")
    for node in nodes:
        newest = node.attempts[-1]
        if newest.placed_at < gang.attempts[-1].placed_at:
            raise BrokenPromise(f"is of another generation than {gang.story()}: {node.story()}")
        if node.state is RUNNABLE and may_wait_alone(state, node) and not node.submission.replaces_lost_nodes:
            raise BrokenPromise(f"waits alone though it is not to be replaced: {node.story()}")


def check_node_starts(world: World, token: AttemptToken) -> None:
    """No node's process begins before that of its main node has, in this generation."""
    gang_id, number = split_node(JobId(token.rpartition("#")[0]))
    if number is None:
        return
    gang = world.store.jobs[gang_id]
    nodes = gang.submission.nodes
    if nodes is not None and nodes.peers:
        return
    if not gang.attempts or gang.attempts[-1].token not in world.began:
        raise BrokenPromise(f"{token} begins before the main node of {gang.story()}")
