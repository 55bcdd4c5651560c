"""Events in the simulated world: what was told of each job is the path that it took, whole and in order."""

from __future__ import annotations

from tests.simulation.store import BrokenPromise, FakeStore
from windfall.control.outbox import EventKind
from windfall.jobs.states import MOVES, SUBMITTED, TERMINAL, JobState


def check_told(store: FakeStore) -> None:
    """Every move that was committed was told, once and in its place; nothing else was."""
    paths: dict[str, list[JobState]] = {}
    for told in store.outbox.values():
        if told.kind is not EventKind.JOB or told.job is None:
            continue
        path, new = paths.setdefault(told.subject, []), told.job.state
        # A training job's name can be used again.
        begins_again = bool(path) and path[-1] in TERMINAL and new is SUBMITTED
        if path and not begins_again and (path[-1], new) not in MOVES:
            raise BrokenPromise(f"{told.subject} was told to be {', '.join(path)} and then {new}")
        path.append(new)
    for job in store.jobs.values():
        told_of = paths.get(job.id)
        if told_of is None or told_of[-1] is not job.state:
            raise BrokenPromise(f"told was {told_of}: {job.story()}")
