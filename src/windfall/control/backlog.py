"""The jobs that wait for a place, grouped by shape so that the scheduler never walks them one by one.

Within a group jobs are in FIFO order. A job that comes back for another attempt goes to a small "returned" part, which
is merged with the others when somebody looks: mostly it comes before them, but one that waits for a place that is being
left to it may have been passed by a later one. Everything else is appended. Knows nothing of capacity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from operator import attrgetter

from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.job import Job
from windfall.jobs.nodes import Nodes
from windfall.jobs.storage import storage_needs
from windfall.scheduling.snapshot import ORDINARY, Gang, SchedulingClass, Shape, Waiting, WaitingGroup

_by_order = attrgetter("order")


@dataclass(slots=True)
class Group:
    """The waiting jobs of one queue with one shape. Iterating gives them first come first."""

    fifo: dict[JobId, Waiting] = field(default_factory=dict)
    returned: dict[JobId, Waiting] = field(default_factory=dict)
    count: int = 0

    def __iter__(self) -> Iterator[Waiting]:
        if self.returned:
            returned = sorted(self.returned.values(), key=_by_order)
            return merge(returned, self.fifo.values(), key=_by_order)
        return iter(self.fifo.values())


def shape_of(job: Job) -> Shape:
    """What the scheduler needs to know of a job's needs."""
    submission = job.submission
    if submission.nodes is not None and job.node is not None:
        return _node_shape(job, submission.nodes, job.node)
    needs = storage_needs(submission.staging, submission.directory)
    if submission.gpu_wish is None and job.gpu_memory_floor_mib is None and job.market is None:  # as most are
        return Shape(submission.resources, submission.timeout_s, submission.instance_type, needs=needs)
    return Shape(job.needs, submission.timeout_s, submission.instance_type, job.wish, needs, job.market)


def scheduling_class_of(job: Job) -> SchedulingClass:
    """What else decides when a job has its turn, and whether it may start then."""
    submission = job.submission
    if (
        submission.share is None
        and not submission.priority
        and not submission.consumables
        and submission.nodes is None
    ):
        return ORDINARY  # as most are
    # A node's tokens are its gang's to hold.
    is_node = submission.nodes is not None and job.index is not None
    tokens = () if job.holds_consumables or is_node else submission.consumables
    gang = gang_of(job, submission.nodes) if submission.nodes is not None and not is_node else None
    return SchedulingClass(submission.share, submission.priority, tokens, gang)


def gang_of(job: Job, nodes: Nodes) -> Gang:
    """The nodes of a job as the scheduler sees them: the main one's shape first, equal ones together."""
    by_shape: dict[Shape, list[int]] = {}
    for number in (nodes.main, *nodes.others):
        by_shape.setdefault(_node_shape(job, nodes, number), []).append(number)
    parts = tuple((shape, len(numbers)) for shape, numbers in by_shape.items())
    return Gang(parts, tuple(number for numbers in by_shape.values() for number in numbers))


def _node_shape(job: Job, nodes: Nodes, number: int) -> Shape:
    group = nodes.group(number)
    resources = group.container.resources
    wish = job.wish if resources.gpus else None
    needs = storage_needs(group.staging or job.submission.staging, job.submission.directory)
    return Shape(resources, job.submission.timeout_s, group.instance_type, wish, needs)


#: What makes waiting jobs of one queue interchangeable except for their order.
KeyInQueue = tuple[Shape, SchedulingClass]


def key_in_queue(job: Job) -> KeyInQueue:
    """The group that a job waits in."""
    return shape_of(job), scheduling_class_of(job)


def same_group(jobs: Mapping[JobId, Job], job: Job, other_id: JobId) -> Job | None:
    """Another live job, if it belongs to the same group."""
    other = jobs.get(other_id)
    if other is None or other.submission.queue != job.submission.queue:
        return None
    return other if key_in_queue(other) == key_in_queue(job) else None


@dataclass(slots=True)
class Backlog:
    """All waiting jobs, by queue, shape and scheduling class."""

    queues: dict[QueueName, dict[KeyInQueue, Group]] = field(default_factory=dict)

    def add(self, job: Job, count: int = 1, *, returns: bool = False) -> None:
        """Let a job wait (or `count` children of an array); one that returns may come before others in the order."""
        waiting = Waiting(job.order, job.id, job.runnable_at or job.created_at, count)
        group = self.queues.setdefault(job.submission.queue, {}).setdefault(key_in_queue(job), Group())
        (group.returned if job.attempts or returns else group.fifo)[job.id] = waiting
        group.count += count

    def take(self, job: Job) -> None:
        """One place for it was found."""
        group = self.queues[job.submission.queue][key_in_queue(job)]
        waiting = group.fifo.get(job.id) or group.returned[job.id]
        if waiting.count > 1:
            waiting.count -= 1
            group.count -= 1
        else:
            self.remove(job)

    def remove(self, job: Job) -> None:
        """It does not wait any longer; one that does not wait is not an error."""
        groups = self.queues.get(job.submission.queue, {})
        key = key_in_queue(job)
        group = groups.get(key)
        if group is None:
            return
        waiting = group.fifo.pop(job.id, None) or group.returned.pop(job.id, None)
        if waiting is not None:
            group.count -= waiting.count
        if not group.count:
            del groups[key]

    def find(self, job: Job) -> Waiting | None:
        """Its entry, if it waits."""
        group = self.queues.get(job.submission.queue, {}).get(key_in_queue(job))
        return None if group is None else group.fifo.get(job.id) or group.returned.get(job.id)

    def groups(self, queue: QueueName) -> list[WaitingGroup]:
        """A queue's groups, as the scheduler sees them."""
        return [
            WaitingGroup(shape, group, group.count, scheduling_class)
            for (shape, scheduling_class), group in self.queues.get(queue, {}).items()
        ]

    @property
    def count(self) -> int:
        """How many jobs wait, children counted one by one."""
        return sum(group.count for groups in self.queues.values() for group in groups.values())
