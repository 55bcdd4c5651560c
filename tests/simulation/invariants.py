"""What must hold after every step, each as a function that raises BrokenPromise and says what it saw."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.gpus import check_holds, check_wish
from tests.simulation.store import BrokenPromise, FakeStore
from windfall.capacity.machines import Hold
from windfall.control.changes import Changes
from windfall.control.gangs import may_wait_alone
from windfall.control.holding import held_by
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.control.why import why
from windfall.jobs.arrays import ChildTable
from windfall.jobs.aws_texts import DEPENDENCY_FAILED
from windfall.jobs.dependencies import DependencyType
from windfall.jobs.ids import JobId, child_id
from windfall.jobs.job import Job
from windfall.jobs.resources import NOTHING
from windfall.jobs.states import FAILED, PENDING, PLACED, RUNNABLE, RUNNING, SUCCEEDED, TERMINAL, JobState

#: What the store must have of a live job as memory has it.
WRITTEN = (
    "state",
    "order",
    "attempts",
    "cancelled",
    "terminated",
    "stop_reason",
    "started_at",
    "rest",
    "summary",
    "gang_number",
    "gang_ends",
)
#: Reasons that no passing of time will remove.
FOR_EVER = {
    "ASKS_TOO_MUCH",
    "NO_SINGLE_INSTANCE",
    "MAX_VCPUS_TOO_SMALL",
    "NOTHING_OFFERED",
    "GPUS_ON_FARGATE",
    "NO_SUCH_GPU",
    "GANG_TOO_LARGE",
    "GANG_ABOVE_MAX_VCPUS",
    "QUOTA_SHARE",
}


def check_occupancy(state: State) -> None:
    """Nothing is given out twice, and what is held is held by attempts that live."""
    by_machine: dict[str, list[Hold]] = {}
    held = 0
    for instance_id, use in state.occupancy.instances.items():
        instance = state.instances.get(instance_id)
        if instance is None:
            raise BrokenPromise(f"{instance_id} is gone and still has holds {sorted(use.holds)}")
        used = NOTHING
        for token, hold in use.holds.items():
            held += 1
            used = used + hold.resources
            if token not in state.attempts:
                raise BrokenPromise(f"{token} holds {hold} and is no live attempt")
            if instance.machine is not None:
                by_machine.setdefault(instance.machine, []).append(hold)
                check_wish(state, state.attempts[token], state.machines[instance.machine], hold)
        # A bound that was lowered makes a share smaller than what it holds; nothing that runs is touched.
        bound = (
            replace(instance.total, vcpus=max(instance.total.vcpus, used.vcpus))
            if instance.is_share
            else instance.total
        )
        if used != use.used or not used.fits_in(bound):
            raise BrokenPromise(f"{instance_id} of {instance.total} counts {use.used} and holds {used}")
    if held != len(state.attempts):
        raise BrokenPromise(f"{len(state.attempts)} attempts live and {held} hold a place")
    for machine_id, use_of_machine in state.occupancy.machines.items():
        machine = state.machines[machine_id]
        holds = by_machine.get(machine_id, [])
        check_holds(machine, holds)
        gpus = {one for hold in holds for one in hold.gpu_ids}
        counted = use_of_machine.held_gpus | use_of_machine.shared_gpus.keys()
        if gpus != counted:
            raise BrokenPromise(f"devices of {machine_id}: {gpus} are held, {counted} counted")
        if not use_of_machine.used.fits_in(machine.total):
            raise BrokenPromise(f"{machine_id} of {machine.total} is used to {use_of_machine.used}")


def check_arrays(state: State) -> None:
    """Every child table agrees with a recount and with the records of its children."""
    for array_id, table in state.children.items():
        array = state.jobs[array_id]
        check_table(table)
        if array.rest is not table.rest:
            raise BrokenPromise(f"{array_id} says its rest is {array.rest}, its table {table.rest}")
        if array.summary != table.summary():
            raise BrokenPromise(f"readers of {array_id} see {array.summary}, it has {table.summary()}")
        if table.finished:
            raise BrokenPromise(f"every child of {array_id} has finished and the array has not")
        for index in range(table.size):
            child = state.jobs.get(child_id(array_id, index))
            if child is not None and (not table.recorded[index] or child.state is not table.state(index)):
                raise BrokenPromise(f"the table of {array_id} has {table.state(index)} for {child.story()}")
            if child is None and table.recorded[index] and table.state(index) not in TERMINAL:
                raise BrokenPromise(f"{array_id}:{index} is {table.state(index)} and has no record in memory")


def check_table(table: ChildTable) -> None:
    """The counts of a table are those of its bytes."""
    counts = {state.value: 0 for state in JobState}
    for index in range(table.size):
        counts[table.state(index).value] += 1
        if not table.recorded[index] and table.state(index) is not table.rest:
            raise BrokenPromise(f"child {index} is at rest and {table.state(index)}, not {table.rest}")
    if counts != table.summary():
        raise BrokenPromise(f"a table counts {table.summary()} and has {counts}")


def check_backlog(state: State) -> None:
    """Exactly the RUNNABLE jobs and resting children that are not held wait for a place."""
    waiting: dict[JobId, int] = {}
    for queue, groups in state.backlog.queues.items():
        for shape, group in groups.items():
            if not group.count:
                raise BrokenPromise(f"an empty group of {shape} in {queue}")
            entries = list(group)
            if sum(entry.count for entry in entries) != group.count:
                raise BrokenPromise(f"a group counts {group.count} and has {entries}")
            orders = [entry.order for entry in entries]
            if orders != sorted(orders):
                raise BrokenPromise(f"out of order in {queue}: {orders}")
            waiting.update((entry.job_id, entry.count) for entry in entries)
    wanted: dict[JobId, int] = {}
    for job in state.jobs.values():
        if job.is_array:
            if state.children[job.id].waiting:
                wanted[job.id] = state.children[job.id].waiting
        elif job.state is RUNNABLE and (not job.is_node or may_wait_alone(state, job)):
            wanted[job.id] = 1
        elif (
            job.state in PLACED
            and job.submission.nodes is None
            and (job.attempt is None or job.attempt.token not in state.attempts)
        ):
            raise BrokenPromise(f"has a place and no attempt: {job.story()}")
    wanted = {job_id: count for job_id, count in wanted.items() if held_by(state, state.jobs[job_id]) is None}
    if waiting != wanted:
        raise BrokenPromise(f"the backlog has {waiting}, RUNNABLE are {wanted}")


def check_deadlines(state: State) -> None:
    """Every attempt with a time limit is watched, unless it is being stopped already, and so is every deadline."""
    watched = {token for _, token in state.deadlines}
    for token, job in state.attempts.items():
        attempt = job.attempt
        limited = job.submission.timeout_s is not None and job.state is RUNNING and not job.is_node
        if attempt is not None and limited and attempt.stop_cause is None and token not in watched:
            raise BrokenPromise(f"nobody watches the time of {job.story()}")
    for job in state.jobs.values():
        if job.submission.deadline is not None and job.id not in state.deadline_looks:
            raise BrokenPromise(f"nobody watches the deadline of {job.story()}")


def _awaited(store: FakeStore, job: Job, index: int | None) -> list[JobState]:
    """The states of all that a job, or a child of an array, had to wait for."""
    array = JobId(job.id.partition(":")[0])
    states = []
    for dependency in job.submission.depends_on:
        if dependency.job_id is None:
            if index:
                states.append(_stored_state(store, child_id(array, index - 1)))
        elif dependency.type is DependencyType.N_TO_N and index is not None:
            states.append(_stored_state(store, child_id(dependency.job_id, index)))
        else:
            states.append(_stored_state(store, dependency.job_id))
    return states


def _stored_state(store: FakeStore, job_id: JobId) -> JobState:
    if job_id in store.jobs:
        return store.jobs[job_id].state
    rest = store.jobs[JobId(job_id.partition(":")[0])].rest
    assert rest is not None
    return rest


def check_dependencies(store: FakeStore, job_id: JobId) -> None:
    """A job that starts waits for nothing any more."""
    job = store.jobs[job_id]
    for awaited in _awaited(store, job, job.index):
        if awaited is not SUCCEEDED:
            raise BrokenPromise(f"starts although a dependency is {awaited}: {job.story()}")


def check_dependency_failures(store: FakeStore) -> None:
    """What failed because of a dependency had one that failed."""
    for job in store.jobs.values():
        if job.is_array and job.rest is FAILED and job.rest_reason == DEPENDENCY_FAILED:
            indices = range(job.submission.array_size or 0)
            failed: list[int | None] = [n for n in indices if child_id(job.id, n) not in store.jobs]
        elif not job.is_array and job.status_reason == DEPENDENCY_FAILED:
            failed = [job.index]
        else:
            continue
        for index in failed:
            if FAILED not in _awaited(store, job, index):
                raise BrokenPromise(f"child {index} failed for a dependency that did not: {job.story()}")


def check_stored_jobs(state: State, store: FakeStore, changes: Changes) -> None:
    """What memory and store say of the jobs of a round is the same; finished ones have left the memory."""
    if state.last_order < store.last_order:
        raise BrokenPromise(f"order {store.last_order} was given and memory is at {state.last_order}")
    for job_id, written in changes.jobs.items():
        job = state.jobs.get(job_id)
        if (job is None) is not written.finished:
            raise BrokenPromise(f"memory has {job and job.state}, the store {written.story()}")
        if written.is_array and written.summary is None:
            raise BrokenPromise(f"an array was written without its summary: {written.story()}")
    for job in state.jobs.values():
        stored = store.jobs.get(job.id)
        if stored is None or any(as_written(job, name) != as_written(stored, name) for name in WRITTEN):
            raise BrokenPromise(f"memory has {job}, the store {stored}")
    if changes.jobs and store.commits % 8 == 0:
        live = {job.id for job in store.jobs.values() if not job.finished}
        if live != set(state.jobs):
            raise BrokenPromise(f"live in memory or in the store alone: {live ^ set(state.jobs)}")


def as_written(job: Job, name: str) -> object:
    """A field of a job as far as it must be written at once: what an attempt just does may be written later."""
    if name != "attempts":
        return getattr(job, name)
    return [replace(attempt, doing=None, progress=None) for attempt in job.attempts]


def check_explained(state: State, changes: Changes, offers: Offers, now: int) -> None:
    """Every job of the round that lives can say why it is where it is."""
    for job_id in changes.jobs:
        job = state.jobs.get(job_id)
        if job is None:
            continue
        resting = state.children[job_id].next_at_rest() if job.is_array else None
        if resting is not None and job.rest is not FAILED:
            job_id = child_id(job_id, resting)
        answer = why(state, job_id, offers, now)
        if answer is None or not answer.reasons or not all(code and text for code, text in answer.reasons):
            raise BrokenPromise(f"cannot say why: {job.story()}")


def check_settled(state: State, offers: Offers, now: int) -> bool:
    """Whether all has ended that can end; what waits for ever must say so, or wait for one that does."""
    stuck = {job.id for job in state.jobs.values() if _waits_for_ever(state, job, offers, now)}
    return all(job.id in stuck or _waits_for(state, job, stuck) for job in state.jobs.values())


def _waits_for_ever(state: State, job: Job, offers: Offers, now: int) -> bool:
    if not job.is_array and job.state is not RUNNABLE:
        return False
    if job.is_array and not _only_rest_is_left(state, job):
        return False
    answer = why(state, job.id, offers, now)
    if answer is None:
        return False
    codes = {code for code, _ in answer.reasons}
    return bool(codes & FOR_EVER) and answer.aws_reason is not None


def _only_rest_is_left(state: State, array: Job) -> bool:
    table = state.children[array.id]
    return table.rest is RUNNABLE and all(
        table.state(index) in TERMINAL for index in range(table.size) if table.recorded[index]
    )


def _waits_for(state: State, job: Job, stuck: set[JobId]) -> bool:
    """Whether it can only wait for jobs that wait for ever, however many are between."""
    seen: set[JobId] = set()
    todo = [job.id]
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        if one in stuck:
            return True
        waits = state.waits.get(one)
        parent = one.partition(":")[0].partition("#")[0]
        if waits is not None and (job.state is PENDING or job.is_array):
            todo += sorted(waits.whole | waits.n_to_n)
        if parent != one:
            todo.append(JobId(parent))
        todo += [child_id(JobId(one), index) for index in _stuck_children(state, JobId(one), stuck)]
    return False


def _stuck_children(state: State, array: JobId, stuck: set[JobId]) -> list[int]:
    table = state.children.get(array)
    if table is None:
        return []
    return [index for index in range(table.size) if child_id(array, index) in stuck]
