"""Jobs and rounds for the store suite, and strategies for all values that a store must give back as given."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import types
import typing
import uuid
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from windfall.control.changes import Changes, LogStream
from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import JobId, attempt_token, child_id, task_id
from windfall.jobs.job import Job, Submission
from windfall.jobs.resources import Resources
from windfall.jobs.retry import RetryStrategy
from windfall.jobs.states import JobState
from windfall.jobs.submitters import Submitter

NOW = 1_800_000_000_000
_arrivals = itertools.count()


def a_submission(name: str = "train", queue: str = "q", definition: str = "def:1", **more: Any) -> Submission:
    return Submission(name, queue, definition, Resources(1.0, 2048), RetryStrategy(), **more)


def a_job(state: JobState = JobState.RUNNABLE, *, at: int | None = None, **more: Any) -> Job:
    """A top-level job; each is a millisecond younger than the one before."""
    own = {field.name for field in dataclasses.fields(Job)}
    fields = {name: value for name, value in more.items() if name in own}
    submission = a_submission(**{name: value for name, value in more.items() if name not in own})
    fields.setdefault("id", JobId(str(uuid.uuid4())))
    return Job(
        submission=submission, state=state, created_at=NOW + next(_arrivals) if at is None else at, **fields
    )


def an_array(size: int, state: JobState = JobState.PENDING, **more: Any) -> Job:
    return a_job(state, array_size=size, **more)


def a_child(parent: Job, index: int, state: JobState = JobState.RUNNING, **more: Any) -> Job:
    """A child that shares its parent's submission, as the reactor makes them."""
    return Job(
        child_id(parent.id, index),
        parent.submission,
        state,
        parent.created_at,
        parent=parent.id,
        index=index,
        **more,
    )


def an_attempt(job: Job, number: int = 1, **more: Any) -> Attempt:
    token = attempt_token(job.id, number)
    return Attempt(
        number,
        token,
        task_id(token, NOW),
        "ce",
        "i-1",
        ("GPU-0",),
        f"def/default/{task_id(token, NOW)}",
        NOW,
        **more,
    )


def a_stream(job: Job, number: int = 1, group: str = "/aws/batch/job") -> LogStream:
    task = task_id(attempt_token(job.id, number), NOW)
    return LogStream(group, f"def/default/{task}", task, job.id, NOW)


def a_round(*jobs: Job, streams: tuple[LogStream, ...] = (), **more: Any) -> Changes:
    return Changes(jobs={job.id: job for job in jobs}, log_streams={it.task_id: it for it in streams}, **more)


# Values of any type, made from its annotations: a field that the domain adds is tried without a change here -

#: Where NUL would be refused, tests say so; inside a record it is a character like others.
TEXTS = st.text(max_size=8)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=8)
#: The wire lets no name of a queue have a slash: it stands between a tenant and a name.
_QUEUES = NAMES.map(lambda name: name.replace("/", "-"))
NUMBERS = st.integers(0, 2**53)
_PLAIN = {
    str: TEXTS,
    int: NUMBERS,
    bool: st.booleans(),
    float: st.integers(0, 4000).map(lambda quarters: quarters / 4),
    type(None): st.none(),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of an annotated type that the domain uses."""
    if hasattr(kind, "__supertype__"):
        return values(kind.__supertype__)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return st.sampled_from(list(kind))
    if dataclasses.is_dataclass(kind):
        return any_of(kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values, inner))
    if origin is tuple and Ellipsis not in inner:
        return st.tuples(*map(values, inner))
    if origin is tuple:
        return st.lists(values(inner[0]), max_size=3).map(tuple)
    if origin is list:
        return st.lists(values(inner[0]), max_size=3)
    if origin in (dict, Mapping):
        return st.dictionaries(values(inner[0]), values(inner[1]), max_size=3)
    raise AssertionError(f"no strategy for {kind}")


def any_of(kind: type, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Any value of a dataclass; fields that become columns are given."""
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    return st.builds(kind, **{name: given[name] if name in given else values(hints[name]) for name in names})


def any_submission(**given: st.SearchStrategy[Any]) -> st.SearchStrategy[Submission]:
    named = {
        "name": NAMES,
        "queue": _QUEUES,
        "definition": NAMES,
        "share": st.none() | NAMES,
        "submitter": any_of(Submitter, tenant=st.sampled_from(["default", "vision", "lab.2"])),
        "consumables": st.lists(st.tuples(NAMES, st.integers(0, 9)), max_size=3).map(tuple),
    }
    return any_of(Submission, **{**named, **given})


def any_job() -> st.SearchStrategy[Job]:
    """Any top-level job. Its id is new, not drawn: the same id in another example would be the same job."""
    ids = st.builds(lambda: str(uuid.uuid4()))
    return any_of(Job, id=ids, submission=any_submission(), parent=st.none(), index=st.none())
