"""The names of things, as distinct types, and the one place where ids are put together and taken apart."""

from __future__ import annotations

import hashlib
from typing import NewType

#: A job's id: a UUID, `<uuid>:<index>` for the child of an array, or `<uuid>#<number>` for a node of a multi-node job.
JobId = NewType("JobId", str)
#: One attempt of one job: `<job id>#<number>`, with `.<birth>` where ids are used again. It is the fencing token: a
#: newer attempt has another one.
AttemptToken = NewType("AttemptToken", str)
#: Thirty-two hex digits that stand for an attempt where AWS shows an ECS task id.
TaskId = NewType("TaskId", str)
InstanceId = NewType("InstanceId", str)
MachineId = NewType("MachineId", str)
QueueName = NewType("QueueName", str)
EnvironmentName = NewType("EnvironmentName", str)
#: `<name>:<revision>`
DefinitionKey = NewType("DefinitionKey", str)


def child_id(parent: JobId, index: int) -> JobId:
    """The id of an array's child."""
    return JobId(f"{parent}:{index}")


def split_child(job_id: JobId) -> tuple[JobId, int | None]:
    """The parent's id and the index, or the id itself and None when it is not a child's.

    An index has one spelling: `id:07` is nobody's child, or one child would have two ids.
    """
    parent, colon, index = job_id.partition(":")
    if colon and index.isascii() and index.isdecimal() and (index == "0" or index[0] != "0"):
        return JobId(parent), int(index)
    return job_id, None


def node_id(gang: JobId, number: int) -> JobId:
    """The id of a multi-node job's node."""
    return JobId(f"{gang}#{number}")


def split_node(job_id: JobId) -> tuple[JobId, int | None]:
    """The multi-node job's id and the node's number, or the id itself and None when it is not a node's."""
    gang, sign, number = job_id.partition("#")
    if sign and number.isascii() and number.isdecimal() and (number == "0" or number[0] != "0"):
        return JobId(gang), int(number)
    return job_id, None


def attempt_token(job_id: JobId, number: int, born_at: int | None = None) -> AttemptToken:
    """The fencing token of a job's attempt; attempts are counted from 1.

    `born_at` tells jobs apart that had the same id one after the other.
    """
    return AttemptToken(f"{job_id}#{number}" if born_at is None else f"{job_id}#{number}.{born_at}")


def task_id(token: AttemptToken, placed_at: int) -> TaskId:
    """The task id of an attempt: its time first, so that ids of one time are neighbours in every index, then a hash."""
    return TaskId(f"{placed_at:012x}{hashlib.md5(token.encode(), usedforsecurity=False).hexdigest()[:20]}")
