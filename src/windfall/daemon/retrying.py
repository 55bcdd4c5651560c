"""Retry: submits a finished job again, with everything it was submitted with except its dependencies.

Decides what is run again: of an array, the children that failed, each with its old index; of a multi-node job all
nodes; of a training job its request, under a name that is free. The new job continues from the old one's checkpoints
and gets no rights that the old one did not have. Must not know how anything runs.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from typing import Any

from windfall.aws_api.batch.children import final_states
from windfall.aws_api.batch.tags import RETRY_OF
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.serialization import encode_json
from windfall.aws_api.protocol.service import Call, Caller, ModelledService, OnBehalfOf
from windfall.aws_api.sagemaker import names
from windfall.aws_api.sagemaker.changing import tag_list
from windfall.aws_api.sagemaker.documents import read_document
from windfall.control.events import SubmitJob
from windfall.control.job_options import CHECKPOINT
from windfall.control.ports import CorePort, Store
from windfall.daemon.request_fields import needed_text, no_such_job
from windfall.daemon.stored_files import found_job
from windfall.jobs.arrays import ArrayPart, state_of_code
from windfall.jobs.errors import Rejected
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job, JobKind
from windfall.jobs.states import FAILED, SUCCEEDED
from windfall.jobs.submitters import Submitter
from windfall.jobs.tenants import View
from windfall.views.jobs import checkpoint

#: What the name of a training job ends with that runs another one again.
_AGAIN = re.compile(r"-retry-[0-9]+\Z", re.ASCII)


class Retrying:
    """The operation, as one caller has it."""

    def __init__(self, gate: CorePort, trainings: ModelledService) -> None:
        """`trainings` creates training jobs as it does for any client."""
        self._gate = gate
        self._trainings = trainings

    async def retry(self, call: Call) -> dict[str, Any]:
        """Submit a job again; with `all`, also one that succeeded, or all children of an array."""
        job_id, everything = needed_text(call, "jobId"), call.params.get("all") is True
        job, failed = await self._gate.read(lambda store: _looked_up(store, JobId(job_id)))
        if job is None:
            raise no_such_job(job_id)
        _check_rights(job, call.caller.submitter)
        _check(job, failed, everything=everything)
        if job.submission.kind is JobKind.TRAINING:
            submitted = await self._created(job, call)
        else:
            submitted = await self._submitted(job, None if everything else failed, call)
        part, nodes = submitted.submission.array_part, submitted.submission.nodes
        marks = [attempt.checkpoint for attempt in job.attempts if attempt.checkpoint is not None]
        staging = submitted.submission.staging
        return {
            "jobId": submitted.id,
            "jobName": submitted.submission.name,
            "jobQueue": submitted.submission.queue,
            "retryOf": job.id,
            "indexes": None if part is None else list(part.indexes),
            "arraySize": submitted.submission.array_size,
            "nodes": None if nodes is None else nodes.count,
            "checkpointUri": staging.checkpoints.uri if staging and staging.checkpoints else None,
            "beginsWith": checkpoint(max(marks, key=lambda mark: mark.at, default=None)),
        }

    async def _submitted(self, job: Job, failed: list[int] | None, call: Call) -> Job:
        try:
            submitted: Job = await self._gate.execute(_command(job, failed, call))
        except Rejected as rejected:
            raise _refusal(job, str(rejected)) from None
        return submitted

    async def _created(self, job: Job, call: Call) -> Job:
        """A training job with the request of this one, created through the handler that serves every client."""
        request, view = read_document(job.submission.document).request, View(call.caller.tenant)
        name, live = await self._gate.read(lambda store: _free_name(store, view, request["TrainingJobName"]))
        if live is not None and "CheckpointConfig" in request:
            raise _refusal(
                job,
                f"{live.id} is {live.state} and continues the same checkpoints: wait for its end, or stop it first",
            )
        tags = tag_list({**job.submission.tags, RETRY_OF: job.id})
        body = encode_json({**request, "TrainingJobName": name, "Tags": tags})
        on_behalf_of = OnBehalfOf(Caller.of_submitter(_submitter(job, call)))
        try:
            await self._trainings.perform(
                "CreateTrainingJob", body, on_behalf_of, call.region, call.request_id
            )
        except ApiError as error:
            raise _refusal(job, error.message) from None
        created: list[Job] = await self._gate.read(lambda store: store.jobs([names.job_id(view, name)]))
        return created[0]


def _free_name(store: Store, view: View, name: str) -> tuple[str, Job | None]:
    """`NAME-retry-2`, or the first number after it that is free; and a live training job among those before it."""
    first, number, live = _AGAIN.sub("", name), 1, None
    name = first
    while jobs := store.jobs(names.job_ids(view, name)):
        live = next((job for job in jobs if not job.finished), live)
        number += 1
        ending = f"-retry-{number}"
        name = first[: names.NAME_MAX - len(ending)].rstrip("-") + ending
    return name, live


def _refusal(job: Job, why: str) -> ApiError:
    return ApiError("Rejected", f"{job.id} cannot be run again: {why}")


def _submitter(job: Job, call: Call) -> Submitter:
    """The caller as the submitter of the new job, which gets no more rights than the old one was submitted with."""
    caller, owner = call.caller.submitter, job.submission.submitter
    return replace(caller, is_admin=caller.is_admin and owner.is_admin, user=owner.user)


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
    if job.submission.service_job is not None:
        raise ApiError(
            "Invalid",
            f"{job.id} was created by the service job {job.submission.service_job}: submit that one again.",
        )
    if job.submission.kind is JobKind.REPLICA:
        raise ApiError("Invalid", f"{job.id} is a replica of an endpoint, which is replaced by itself.")
    if job.is_node:
        raise ApiError("Invalid", f"{job.id} is a node: `windfall retry {job.parent}` runs all nodes again.")
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
        submitter=_submitter(job, call),
        document=submission.document,
        share=submission.share,
        priority=None if submission.share is None else submission.priority,
        consumables=submission.consumables or None,
        nodes=submission.nodes,
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
