"""DescribeJobs: a job, its attempts and its container as AWS shows them.

Decides how the core's values read on the wire. The isolation that the agent reported is shown as the tag
`windfall:isolation`, because AWS has no field for it and every client can read tags; so are the
containerProperties that a process could not be given, and why an attempt failed. Must not know how jobs move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windfall.aws_api.batch.arns import TRAINING_DEFINITION, Arns, job_reference
from windfall.aws_api.batch.children import child_at_rest
from windfall.aws_api.batch.container_options import not_applied
from windfall.aws_api.batch.definitions import LISTS_ALWAYS_THERE
from windfall.aws_api.batch.desk import Desk
from windfall.aws_api.batch.documents import read_document
from windfall.aws_api.batch.job_fields import retry_detail
from windfall.aws_api.batch.rejections import client_exception
from windfall.aws_api.batch.tags import DIAGNOSIS, ISOLATION, NOT_APPLIED, VALUE_MAX
from windfall.aws_api.protocol.service import Call
from windfall.control.ports import Store
from windfall.jobs.attempts import Attempt
from windfall.jobs.definitions import JobDefinition, effective_container
from windfall.jobs.ids import DefinitionKey, JobId, split_child
from windfall.jobs.job import Job, JobKind
from windfall.jobs.resources import Resources
from windfall.jobs.states import JobState

JOBS_MAX = 100
REASON_MAX = 255

Definitions = Mapping[DefinitionKey, tuple[JobDefinition, Mapping[str, Any]]]


async def describe_jobs(desk: Desk, call: Call) -> dict[str, Any]:
    """DescribeJobs: in the order asked, unknown ones left out."""
    references = call.params["jobs"]
    if len(references) > JOBS_MAX:
        # The blanks are AWS's own; clients match on the text.
        raise client_exception(f"Maximum number of jobs supported is  {JOBS_MAX} .")
    wanted = list(dict.fromkeys(found for text in references if (found := job_reference(text)) is not None))
    if not wanted:
        return {"jobs": []}
    jobs, definitions = await desk.read(lambda store: _with_definitions(store, find_jobs(store, wanted)))
    arns = desk.arns(call)
    return {"jobs": [job_detail(job, _definition_of(job, definitions), arns) for job in jobs]}


def find_jobs(store: Store, wanted: Sequence[JobId]) -> list[Job]:
    """These jobs in the order asked, unknown ones left out; children at rest come from their parents."""
    found = {job.id: job for job in store.jobs(wanted)}
    missing = [job_id for job_id in wanted if job_id not in found and split_child(job_id)[1] is not None]
    if missing:
        parents = {job.id: job for job in store.jobs(list({split_child(job_id)[0] for job_id in missing}))}
        for job_id in missing:
            parent_id, index = split_child(job_id)
            parent = parents.get(parent_id)
            child = None if parent is None or index is None else child_at_rest(parent, index)
            if child is not None:
                found[job_id] = child
    return [found[job_id] for job_id in wanted if job_id in found]


def _with_definitions(store: Store, jobs: list[Job]) -> tuple[list[Job], Definitions]:
    definitions = {}
    for key in {job.submission.definition for job in jobs}:
        if (definition := store.definition(key)) is not None:
            definitions[key] = definition, read_document(definition.document)
    return jobs, definitions


def _definition_of(job: Job, definitions: Definitions) -> tuple[JobDefinition, Mapping[str, Any]] | None:
    """The job's definition; a training job has none registered, and what it runs stands in for one."""
    container = job.submission.container
    if container is None:
        return definitions.get(job.submission.definition)
    options = {"awslogs-group": container.log_group}
    shown = {"logConfiguration": {"logDriver": "awslogs", "options": options}}
    return JobDefinition(TRAINING_DEFINITION, 1, container), {"containerProperties": shown}


def job_detail(
    job: Job, definition: tuple[JobDefinition, Mapping[str, Any]] | None, arns: Arns
) -> dict[str, Any]:
    """A JobDetail; members that are None do not reach the wire."""
    submission = job.submission
    registered: Mapping[str, Any] = {} if definition is None else definition[1]
    defaults = {} if definition is None else definition[0].parameters
    return {
        "jobArn": arns.job(job.id),
        "jobName": submission.name,
        "jobId": job.id,
        "jobQueue": arns.queue(submission.queue),
        "status": job.state.value,
        "schedulingPriority": registered.get("schedulingPriority"),
        "attempts": [_attempt_detail(a, arns) for a in job.attempts if a.stopped_at is not None],
        "statusReason": job.status_reason,
        "createdAt": job.created_at,
        "retryStrategy": retry_detail(submission.retry),
        "startedAt": job.started_at,
        "stoppedAt": job.stopped_at,
        "dependsOn": [
            {"jobId": entry.job_id, "type": entry.type.value if entry.type else None}
            for entry in submission.depends_on
        ],
        "jobDefinition": arns.definition(submission.definition),
        "parameters": {**defaults, **submission.parameters},
        "container": {} if definition is None else _container_detail(job, *definition, arns),
        "arrayProperties": array_properties(job),
        "timeout": {"attemptDurationSeconds": submission.timeout_s} if submission.timeout_s else None,
        "tags": job_tags(job) if definition is None else job_tags(job) | _ignored(job, definition[0]),
        "propagateTags": submission.propagate_tags,
        "platformCapabilities": registered.get("platformCapabilities") or ["EC2"],
        "isCancelled": job.cancelled,
        "isTerminated": job.terminated,
    }


def job_tags(job: Job) -> dict[str, str]:
    """A job's tags, and what is known of its latest attempt: its isolation, and why it failed."""
    tags = dict(job.submission.tags)
    last = job.attempts[-1] if job.attempts else None
    if last is not None and last.isolation:
        tags[ISOLATION] = last.isolation
    if last is not None and last.diagnosis is not None:
        tags[DIAGNOSIS] = f"{last.diagnosis.cause}: {last.diagnosis.evidence}"[:VALUE_MAX]
    return tags


def _ignored(job: Job, definition: JobDefinition) -> dict[str, str]:
    """What its definition says about containers, if its latest attempt was none."""
    last = job.attempts[-1] if job.attempts else None
    if last is None or not last.isolation or last.was_container:
        return {}
    members = not_applied(definition.container.options)
    return {NOT_APPLIED: ", ".join(members)} if members else {}


def array_properties(job: Job) -> dict[str, Any] | None:
    """What an array, or the child of one, says about itself; None for a single job."""
    if job.index is not None:
        return {"index": job.index}
    size = job.submission.array_size
    if size is None:
        return None
    summary = job.summary
    if summary is None:
        # Nothing has happened to any child yet.
        summary = dict.fromkeys((state.value for state in JobState), 0)
        summary[(job.rest or job.state).value] = size
    return {
        "size": size,
        "statusSummary": summary,
        "statusSummaryLastUpdatedAt": job.summary_at or job.created_at,
    }


def exit_detail(attempt: Attempt) -> dict[str, Any]:
    """How an attempt's container ended."""
    reason = attempt.reason
    return {"exitCode": attempt.exit_code, "reason": None if reason is None else reason[:REASON_MAX]}


def _attempt_container(attempt: Attempt, arns: Arns) -> dict[str, Any]:
    return {
        **exit_detail(attempt),
        "containerInstanceArn": arns.container_instance(attempt.environment, attempt.instance),
        "taskArn": arns.task(attempt.environment, attempt.task_id),
        # There is no log before there is a process.
        "logStreamName": None if attempt.started_at is None else attempt.log_stream,
        "networkInterfaces": [],
    }


def _attempt_detail(attempt: Attempt, arns: Arns) -> dict[str, Any]:
    return {
        "container": _attempt_container(attempt, arns),
        "startedAt": attempt.started_at,
        "stoppedAt": attempt.stopped_at,
        "statusReason": attempt.status_reason,
    }


def _container_detail(
    job: Job, definition: JobDefinition, registered: Mapping[str, Any], arns: Arns
) -> dict[str, Any]:
    """The definition's container with the job's overrides, as its latest attempt ran or runs it."""
    submission = job.submission
    sent = registered.get("containerProperties", {})
    runs = effective_container(definition, submission.overrides, submission.parameters)
    detail = {
        **{member: [] for member in LISTS_ALWAYS_THERE},
        **sent,
        **({} if submission.kind is JobKind.TRAINING else read_document(submission.document)),
        **_amounts(sent, submission.resources),
        "image": runs.image,
        "command": [*(runs.entrypoint or ()), *runs.command],
        "environment": [{"name": name, "value": value} for name, value in runs.environment.items()],
        "networkInterfaces": [],
    }
    if job.attempts:
        detail |= _attempt_container(job.attempts[-1], arns)
    return detail


def _amounts(sent: Mapping[str, Any], resources: Resources) -> dict[str, Any]:
    """The job's amounts in the members that its definition used: `vcpus` and `memory`, or requirements."""
    detail: dict[str, Any] = {}
    requirements = {entry["type"]: entry["value"] for entry in sent.get("resourceRequirements", ())}
    vcpus = f"{resources.vcpus:.2f}".rstrip("0").rstrip(".")
    if "vcpus" in sent:
        detail["vcpus"] = int(resources.vcpus)
    else:
        requirements["VCPU"] = vcpus
    if "memory" in sent:
        detail["memory"] = resources.memory_mib
    else:
        requirements["MEMORY"] = str(resources.memory_mib)
    if resources.gpus:
        requirements["GPU"] = str(resources.gpus)
    detail["resourceRequirements"] = [{"type": kind, "value": value} for kind, value in requirements.items()]
    return detail
