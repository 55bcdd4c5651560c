"""Retry: submits a finished job again, with everything it was submitted with except its dependencies.

Decides what is run again: of an array, the children that failed, each with its old index. The new job continues from
the old one's checkpoints. Must not know how anything runs.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from windfall.aws_api.batch.children import final_states
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.control.events import SubmitJob
from windfall.control.job_options import CHECKPOINT
from windfall.control.ports import CorePort, Store
from windfall.daemon.interruptions import shown_mark
from windfall.daemon.stored_files import found_job
from windfall.jobs.arrays import ArrayPart, state_of_code
from windfall.jobs.errors import Rejected
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job, JobKind
from windfall.jobs.states import FAILED, SUCCEEDED
from windfall.jobs.submitters import Submitter

#: Names the job that a job runs again.
RETRY_OF = "windfall:retry-of"


class Retrying:
    """The operation, as one caller has it."""

    def __init__(self, gate: CorePort) -> None:
        self._gate = gate

    async def retry(self, call: Call) -> dict[str, Any]:
        """Submit a job again; with `all`, also one that succeeded, or all children of an array."""
        job_id, everything = call.params.get("jobId"), call.params.get("all") is True
        if not isinstance(job_id, str) or not job_id:
            raise ApiError("Invalid", "jobId is required (a non-empty string).")
        job, failed = await self._gate.read(lambda store: _looked_up(store, JobId(job_id)))
        if job is None:
            raise ApiError("NotFound", f"There is no job {job_id}; `windfall jobs --all` lists them.", 404)
        _check_rights(job, call.caller.submitter)
        _check(job, failed, everything=everything)
        command = _command(job, None if everything else failed, call)
        try:
            submitted: Job = await self._gate.execute(command)
        except Rejected as rejected:
            raise ApiError("Rejected", f"{job_id} cannot be run again: {rejected}") from None
        part = submitted.submission.array_part
        marks = [attempt.checkpoint for attempt in job.attempts if attempt.checkpoint is not None]
        staging = submitted.submission.staging
        return {
            "jobId": submitted.id,
            "jobName": submitted.submission.name,
            "jobQueue": submitted.submission.queue,
            "retryOf": job.id,
            "indexes": None if part is None else list(part.indexes),
            "arraySize": submitted.submission.array_size,
            "checkpointUri": staging.checkpoints.uri if staging and staging.checkpoints else None,
            "beginsWith": shown_mark(max(marks, key=lambda mark: mark.at, default=None)),
        }


def _looked_up(store: Store, job_id: JobId) -> tuple[Job | None, list[int]]:
    """A job, and the numbers of an array's children that failed."""
    job = found_job(store, job_id)
    if job is None or not job.is_array or not job.finished:
        return job, []
    states = final_states(job, store.ended_children(job_id)) or b""
    return job, [number for number, code in enumerate(states) if state_of_code(code) is FAILED]


def _check_rights(job: Job, caller: Submitter) -> None:
    """Refuse a key that may not run the job as the user that it ran as; its command would run as another one."""
    owner = job.submission.submitter
    if owner.tenant != caller.tenant:
        raise ApiError(
            "Invalid",
            f"{job.id} belongs to the tenant {owner.tenant}: run it again with a key of that tenant.",
        )
    if owner.user != caller.user and not caller.is_admin:
        raise ApiError(
            "Invalid",
            f"{job.id} ran as another user than jobs of this key do: run it again with a key of that user or an admin"
            " key, or submit a job of your own.",
        )


def _check(job: Job, failed: list[int], *, everything: bool) -> None:
    """Refuse what cannot be run again, with what to do instead."""
    if job.submission.kind is not JobKind.BATCH:
        raise ApiError(
            "Invalid",
            f"{job.id} is a training job: create it again under another name; with the same CheckpointConfig it resumes"
            " from its checkpoints.",
        )
    if job.submission.nodes is not None:
        raise ApiError("Invalid", f"{job.id} is a multi-node job, which cannot be retried; submit it again.")
    if not job.finished:
        raise ApiError(
            "Invalid",
            f"{job.id} is {job.state}: wait until it ends, or stop it first with `windfall terminate {job.id}`.",
        )
    if job.state is SUCCEEDED and not everything:
        raise ApiError("Invalid", f"{job.id} succeeded; `windfall retry --all {job.id}` runs it again.")
    if job.is_array and not failed and not everything:
        raise ApiError(
            "Invalid",
            f"the records of the children of {job.id} are being removed, so it is unknown which of them failed;"
            f" `windfall retry --all {job.id}` runs all of them.",
        )


def _command(job: Job, failed: list[int] | None, call: Call) -> SubmitJob:
    """The job as it was submitted, or those of its children that failed."""
    submission = job.submission
    part = _part(job, failed)
    size = submission.array_size if job.is_array and failed is None else None
    if part is not None and (len(part.indexes) > 1 or submission.worker is not None):
        size = len(part.indexes)
    tags = {**submission.tags, RETRY_OF: job.id}
    if submission.staging is not None and submission.staging.checkpoints is not None:
        tags[CHECKPOINT] = submission.staging.checkpoints.uri
    caller = call.caller.submitter
    return SubmitJob(
        JobId(str(uuid.uuid4())),
        submission.name,
        submission.queue,
        submission.definition,
        size,
        overrides=submission.overrides,
        parameters=submission.parameters,
        retry=submission.retry,
        timeout_s=submission.timeout_s,
        tags=tags,
        propagate_tags=submission.propagate_tags,
        # A retry gets no more rights than the job was submitted with.
        submitter=replace(
            caller, is_admin=caller.is_admin and submission.submitter.is_admin, user=submission.submitter.user
        ),
        document=submission.document,
        share=submission.share,
        priority=None if submission.share is None else submission.priority,
        consumables=submission.consumables or None,
        retry_of=job.id,
        array_part=part,
    )


def _part(job: Job, failed: list[int] | None) -> ArrayPart | None:
    """Which children of an array are run again; None for a whole array, and for any other job."""
    old_part = job.submission.array_part
    if job.array_place is not None:
        return ArrayPart(job.array_place[1], (job.array_place[0],))
    if not job.is_array or failed is None:
        return old_part
    if old_part is not None:
        return ArrayPart(old_part.size, tuple(old_part.indexes[number] for number in failed))
    return ArrayPart(job.submission.array_size or 0, tuple(failed))
