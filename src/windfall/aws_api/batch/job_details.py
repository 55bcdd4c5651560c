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
from windfall.aws_api.batch.consumable_resources import token_properties
from windfall.aws_api.batch.container_options import not_applied
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.definitions import LISTS_ALWAYS_THERE
from windfall.aws_api.batch.documents import read_document
from windfall.aws_api.batch.ecs_properties import (
    attempt_tasks,
    containers_not_run,
    main_of,
    only_container,
    task_detail,
)
from windfall.aws_api.batch.job_fields import amounts_detail, retry_detail
from windfall.aws_api.batch.nodes import (
    as_shown,
    node_at_rest,
    node_details,
    node_properties,
    registered_range,
)
from windfall.aws_api.batch.rejections import client_exception
from windfall.aws_api.batch.tags import DIAGNOSIS, ISOLATION, NOT_APPLIED, VALUE_MAX
from windfall.aws_api.protocol.service import Call
from windfall.control.ports import Store
from windfall.jobs.attempts import Attempt
from windfall.jobs.definitions import JobDefinition, effective_container
from windfall.jobs.ids import DefinitionKey, JobId, split_child, split_node
from windfall.jobs.job import Job, JobKind
from windfall.jobs.states import JobState
from windfall.jobs.storage import StorageLayout

JOBS_MAX = 100
REASON_MAX = 255

Definitions = Mapping[DefinitionKey, tuple[JobDefinition, Mapping[str, Any]]]


async def describe_jobs(context: BatchContext, call: Call) -> dict[str, Any]:
    """DescribeJobs: in the order asked, unknown ones left out."""
    references = call.params["jobs"]
    if len(references) > JOBS_MAX:
        # The blanks are AWS's own; clients match on the text.
        raise client_exception(f"Maximum number of jobs supported is  {JOBS_MAX} .")
    wanted = list(dict.fromkeys(job_id for text in references if (job_id := job_reference(text)) is not None))
    if not wanted:
        return {"jobs": []}
    jobs, definitions = await context.read(lambda store: _with_definitions(store, find_jobs(store, wanted)))
    arns = context.arns(call)
    details = [job_detail(job, _definition_of(job, definitions), arns) for job in jobs]
    for job, detail in zip(jobs, details, strict=True):
        _name_unused_role(detail, job, _definition_of(job, definitions), context.storage)
    return {"jobs": details}


def detail_of(store: Store, job: Job, arns: Arns) -> dict[str, Any]:
    """The JobDetail of a job that is at hand, which need not be the one that the store has by now."""
    _, definitions = _with_definitions(store, [job])
    return job_detail(job, _definition_of(job, definitions), arns)


def find_jobs(store: Store, wanted: Sequence[JobId]) -> list[Job]:
    """These jobs in the order asked, unknown ones left out; children at rest come from their parents."""
    jobs_by_id = {job.id: job for job in store.jobs(wanted)}
    missing = [job_id for job_id in wanted if job_id not in jobs_by_id and split_child(job_id)[1] is not None]
    if missing:
        parents = {job.id: job for job in store.jobs(list({split_child(job_id)[0] for job_id in missing}))}
        for job_id in missing:
            parent_id, index = split_child(job_id)
            parent = parents.get(parent_id)
            child = None if parent is None or index is None else child_at_rest(parent, index)
            if child is not None:
                jobs_by_id[job_id] = child
    unmade = [job_id for job_id in wanted if job_id not in jobs_by_id and split_node(job_id)[1] is not None]
    if unmade:
        gangs = {job.id: job for job in store.jobs(list({split_node(job_id)[0] for job_id in unmade}))}
        for job_id in unmade:
            gang_id, number = split_node(job_id)
            node = None if gang_id not in gangs or number is None else node_at_rest(gangs[gang_id], number)
            if node is not None:
                jobs_by_id[job_id] = node
    return [jobs_by_id[job_id] for job_id in wanted if job_id in jobs_by_id]


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
    submission, job = job.submission, as_shown(job)
    registered: Mapping[str, Any] = {} if definition is None else definition[1]
    defaults = {} if definition is None else definition[0].parameters
    sent, task = _sent(job, registered)
    return {
        "jobArn": arns.job(job.id),
        "jobName": submission.name,
        "jobId": job.id,
        "jobQueue": arns.queue(submission.queue),
        "status": job.state.value,
        "shareIdentifier": submission.share,
        "schedulingPriority": _priority(job, registered),
        "attempts": [
            _attempt_detail(a, arns, sent, task) for a in job.begun_attempts if a.stopped_at is not None
        ],
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
        # As on AWS it is empty for a task of several containers.
        "container": {}
        if definition is None or sent is None
        else _container_detail(job, definition[0], sent, arns),
        "ecsProperties": _task_detail(job, definition[0], task, arns) if definition and task else None,
        "nodeDetails": node_details(job),
        "nodeProperties": node_properties(job, registered),
        "arrayProperties": array_properties(job),
        "timeout": {"attemptDurationSeconds": submission.timeout_s} if submission.timeout_s else None,
        "tags": job_tags(job) if definition is None else job_tags(job) | _ignored(job, definition[0], task),
        "propagateTags": submission.propagate_tags,
        "platformCapabilities": registered.get("platformCapabilities") or ["EC2"],
        "isCancelled": job.cancelled,
        "isTerminated": job.terminated,
        "consumableResourceProperties": token_properties(submission.consumables, arns),
    }


def _priority(job: Job, registered: Mapping[str, Any]) -> int | None:
    """What it goes by in its share; elsewhere what its definition says, which means nothing there."""
    sent: int | None = registered.get("schedulingPriority")
    return sent if job.submission.share is None else job.submission.priority


def job_tags(job: Job) -> dict[str, str]:
    """A job's tags, and what is known of its latest attempt: its isolation, and why it failed."""
    tags = dict(job.submission.tags)
    last = job.attempts[-1] if job.attempts else None
    if last is not None and last.isolation:
        tags[ISOLATION] = last.isolation
    if last is not None and last.diagnosis is not None:
        tags[DIAGNOSIS] = f"{last.diagnosis.cause}: {last.diagnosis.evidence}"[:VALUE_MAX]
    return tags


def _ignored(job: Job, definition: JobDefinition, task: Mapping[str, Any] | None) -> dict[str, str]:
    """The containers of its task that do not run, and what its definition says about them if it was a process."""
    members = [f"container {name}" for name in containers_not_run(task)] if task else []
    last = job.attempts[-1] if job.attempts else None
    if last is not None and last.isolation and not last.was_container:
        members += not_applied(definition.container.options)
        if last.was_plain and definition.container.shared_memory_mib is not None:
            members.append("linuxParameters.sharedMemorySize")
    return {NOT_APPLIED: ", ".join(members)[:VALUE_MAX]} if members else {}


def _name_unused_role(
    detail: dict[str, Any],
    job: Job,
    definition: tuple[JobDefinition, Mapping[str, Any]] | None,
    storage: StorageLayout,
) -> None:
    """Add the role to what is not applied if the job's programs get no credentials by it, with the reason."""
    if definition is None or not definition[0].container.has_role:
        return
    why = storage.why_no_credentials(is_admin=job.submission.submitter.is_admin)
    if job.submission.worker is not None:
        why = "children of warm workers get no credentials"
    if why is not None:
        before = detail["tags"].get(NOT_APPLIED)
        members = [f"jobRoleArn ({why})", *([before] if before else [])]
        detail["tags"][NOT_APPLIED] = ", ".join(members)[:VALUE_MAX]


def array_properties(job: Job) -> dict[str, Any] | None:
    """What an array, or the child of one, says about itself; None for a single job."""
    if job.submission.nodes is not None:
        return None
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


def _attempt_detail(
    attempt: Attempt, arns: Arns, sent: Mapping[str, Any] | None, task: Mapping[str, Any] | None
) -> dict[str, Any]:
    container = _attempt_container(attempt, arns)
    return {
        "container": {} if sent is None else container,
        "taskProperties": attempt_tasks(task, container) if task else None,
        "startedAt": attempt.started_at,
        "stoppedAt": attempt.stopped_at,
        "statusReason": attempt.status_reason,
    }


def _sent(
    job: Job, registered: Mapping[str, Any]
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """The containerProperties of a job or node, None for several containers, and its ecsProperties."""
    nodes, entry, member = job.submission.nodes, registered, "containerProperties"
    if nodes is not None and job.node is not None:
        entry, member = registered_range(registered, nodes, nodes.group(job.node)), "container"
    task: Mapping[str, Any] | None = entry.get("ecsProperties") or None
    return entry.get(member, {}) if task is None else only_container(task), task


def _runs(job: Job, definition: JobDefinition, sent: Mapping[str, Any]) -> dict[str, Any]:
    """What the job makes of its definition's container: overrides and parameters applied."""
    submission, nodes = job.submission, job.submission.nodes
    if nodes is not None and job.node is not None:
        runs = nodes.group(job.node).container
    else:
        runs = effective_container(definition, submission.overrides, submission.parameters)
    return {
        **amounts_detail(sent, job.resources),
        "image": runs.image,
        "command": [*(runs.entrypoint or ()), *runs.command],
        "environment": [{"name": name, "value": value} for name, value in runs.environment.items()],
        "networkInterfaces": [],
    }


def _container_detail(
    job: Job, definition: JobDefinition, sent: Mapping[str, Any], arns: Arns
) -> dict[str, Any]:
    """The definition's container with the job's overrides, as its latest attempt ran or runs it."""
    detail = {
        **{member: [] for member in LISTS_ALWAYS_THERE},
        **sent,
        **({} if job.submission.kind is JobKind.TRAINING else read_document(job.submission.document)),
        **_runs(job, definition, sent),
    }
    if job.attempts:
        detail |= _attempt_container(job.attempts[-1], arns)
    return detail


def _task_detail(job: Job, definition: JobDefinition, task: Mapping[str, Any], arns: Arns) -> dict[str, Any]:
    """The same for a definition with ecsProperties."""
    latest = _attempt_container(job.attempts[-1], arns) if job.attempts else None
    return task_detail(task, _runs(job, definition, main_of(task["taskProperties"][0])), latest)
