"""ListJobs: which jobs a filter means, and pages of an array's children in index order.

Most children of a large array have no record of their own; they fill the gaps between those that have. Must
not know how the store finds jobs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windfall.aws_api.batch.arns import DEFINITION, Arns, definition_reference, job_reference, queue_name
from windfall.aws_api.batch.children import child_at_rest
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.job_details import array_properties, exit_detail
from windfall.aws_api.batch.nodes import as_shown, node_at_rest, node_summary
from windfall.aws_api.batch.paging import invalid_token, page_size, position_in, token_of
from windfall.aws_api.batch.queues import queue_named
from windfall.aws_api.batch.rejections import (
    client_exception,
    does_not_exist,
    refuse_unsupported,
    shown,
)
from windfall.aws_api.protocol.service import Call
from windfall.control.ports import JobFilter, Store
from windfall.jobs.ids import QueueName
from windfall.jobs.job import Job
from windfall.jobs.states import RUNNING, JobState

PAGE_MAX = 1000
FILTERED_PAGE_MAX = 100

_MILLISECONDS = re.compile(r"[0-9]{1,15}")
#: Where a page of children begins: an index, and how far the store has been read.
_CHILD_POSITION = re.compile(r"([0-9]{1,5})/(.*)")

Page = tuple[list[Job], str | None]


async def list_jobs(context: BatchContext, call: Call) -> dict[str, Any]:
    """ListJobs."""
    params = call.params
    refuse_unsupported(call.operation, params)
    queue, array, gang = params.get("jobQueue"), params.get("arrayJobId"), params.get("multiNodeJobId")
    if sum(map(bool, (queue, array, gang))) != 1:
        raise client_exception("Exactly one of jobQueue, arrayJobId and multiNodeJobId must be specified")
    arns = context.arns(call)
    if array:
        jobs, token = await _children(context, array, params)
    elif gang:
        jobs, token = await _nodes(context, gang, params)
    else:
        jobs, token = await _jobs_in(context, queue_name(params["jobQueue"]), params, arns)
    return {"jobSummaryList": [_summary(job, arns) for job in jobs], "nextToken": token}


async def _jobs_in(context: BatchContext, queue: QueueName, params: Mapping[str, Any], arns: Arns) -> Page:
    filters = params.get("filters")
    # Most filters look at jobs of every status, whatever status is asked for.
    if filters:
        wanted = _filtered(queue, filters, params.get("jobStatus"))
    else:
        wanted = JobFilter(queue=queue, states=(_status(params),))
    limit = page_size(params, FILTERED_PAGE_MAX if filters else PAGE_MAX)
    after = _after(params, "queue")

    def look(store: Store) -> Page:
        try:
            page = store.list_jobs(wanted, limit, after)
        except ValueError:
            # The store's own word for a position that no page has given.
            raise invalid_token() from None
        if not page.jobs and queue_named(store, queue) is None:
            raise does_not_exist(arns.queue(queue))
        return page.jobs, None if page.next_after is None else token_of(f"queue/{page.next_after}")

    return await context.read(look)


def _status(params: Mapping[str, Any]) -> JobState:
    return JobState(params.get("jobStatus", RUNNING))


def _after(params: Mapping[str, Any], kind: str) -> str | None:
    """What follows `kind/` in the token, if there is one."""
    token = params.get("nextToken")
    if not token:
        return None
    found_kind, slash, position = position_in(token).partition("/")
    if found_kind != kind or not slash:
        raise invalid_token()
    return position


def _filtered(queue: QueueName, filters: list[Mapping[str, Any]], status: str | None) -> JobFilter:
    if len(filters) > 1:
        raise client_exception("Only one filter can be used at a time")
    name, values = filters[0].get("name", ""), filters[0].get("values", [])
    if len(values) != 1:
        raise client_exception(f"Filter {shown(name)} must have exactly one value, got {len(values)}")
    value: str = values[0]
    prefix = value.endswith("*")
    if name == "JOB_NAME":
        return JobFilter(queue=queue, name=value.removesuffix("*"), name_is_prefix=prefix)
    if name == "JOB_DEFINITION":
        return _by_definition(queue, value)
    if name == "BEFORE_CREATED_AT":
        return JobFilter(queue=queue, created_before=milliseconds(name, value))
    if name == "AFTER_CREATED_AT":
        return JobFilter(queue=queue, created_after=milliseconds(name, value))
    if name == "SHARE_IDENTIFIER":
        # The one filter that a status goes with.
        return JobFilter(queue=queue, share=value, states=(JobState(status),) if status else None)
    raise client_exception(
        f"Filter {shown(name)!r} is not valid;"
        " use JOB_NAME, JOB_DEFINITION, BEFORE_CREATED_AT, AFTER_CREATED_AT or SHARE_IDENTIFIER"
    )


def _by_definition(queue: QueueName, value: str) -> JobFilter:
    """Jobs of one revision (ARN or name:revision), of all revisions of a name, or of similar names."""
    if value.endswith("*") and not value.startswith("arn:"):
        return JobFilter(queue=queue, definition=value.removesuffix("*"), definition_is_prefix=True)
    if value.endswith("*"):
        raise client_exception(f"An asterisk is not supported with the ARN of a {DEFINITION}")
    return JobFilter(queue=queue, definition=definition_reference(value))


def milliseconds(name: str, value: str) -> int:
    """The time that a filter names."""
    if _MILLISECONDS.fullmatch(value) is None:
        raise client_exception(
            f"Filter {name} must be a number of milliseconds since 1970, got {shown(value)!r}"
        )
    return int(value)


async def _children(context: BatchContext, array: str, params: Mapping[str, Any]) -> Page:
    """A page of an array's children; filters do not apply to them, as on AWS."""
    array_id = job_reference(array)
    if array_id is None:
        return [], None
    status, limit = _status(params), page_size(params, PAGE_MAX)
    position = _after(params, "children")

    def look(store: Store) -> Page:
        parents = store.jobs([array_id])
        if not parents or not parents[0].is_array:
            return [], None
        return _page_of_children(store, parents[0], status, limit, position)

    return await context.read(look)


async def _nodes(context: BatchContext, gang: str, params: Mapping[str, Any]) -> Page:
    """A page of a multi-node job's nodes by number; there are few enough to look at all of them."""
    gang_id = job_reference(gang)
    status, limit = _status(params), page_size(params, PAGE_MAX)
    first, _ = _child_position(_after(params, "children"))
    if gang_id is None:
        return [], None

    def look(store: Store) -> Page:
        parents = store.jobs([gang_id])
        if not parents or not parents[0].is_gang:
            return [], None
        recorded = {job.index: job for job in store.list_jobs(JobFilter(parent=gang_id), PAGE_MAX, None).jobs}
        nodes = parents[0].submission.nodes
        numbers = range(first, nodes.count if nodes is not None else 0)
        node_jobs = [recorded.get(number) or node_at_rest(parents[0], number) for number in numbers]
        shown_nodes = [
            as_shown(job) for job in node_jobs if job is not None and as_shown(job).state is status
        ]
        if len(shown_nodes) <= limit:
            return shown_nodes, None
        return shown_nodes[:limit], token_of(f"children/{shown_nodes[limit].index}/")

    return await context.read(look)


def _page_of_children(store: Store, parent: Job, status: JobState, limit: int, position: str | None) -> Page:
    index, after = _child_position(position)
    if parent.summary is not None and not parent.summary.get(status.value):
        return [], None
    if parent.rest is not status:
        page = store.list_jobs(JobFilter(parent=parent.id, states=(status,)), limit, after)
        # The rest may have changed its state since the last page: what that page gave is not given again.
        children = [job for job in page.jobs if (job.index or 0) >= index]
        if page.next_after is None:
            return children, None
        return children, token_of(f"children/{(page.jobs[-1].index or 0) + 1}/{page.next_after}")
    return _page_with_gaps(store, parent, limit, index, after)


def _child_position(position: str | None) -> tuple[int, str | None]:
    if position is None:
        return 0, None
    match = _CHILD_POSITION.fullmatch(position)
    if match is None:
        raise invalid_token()
    return int(match[1]), match[2] or None


def _page_with_gaps(store: Store, parent: Job, limit: int, index: int, after: str | None) -> Page:
    """Children in the state of the rest: those at rest, and those of that state that have a record, by index.

    All recorded children are read, a page at a time and whatever their state: where there is no record, there
    is a child at rest.
    """
    size = parent.submission.array_size or 0
    jobs: list[Job] = []
    while index < size:
        page = store.list_jobs(JobFilter(parent=parent.id), PAGE_MAX, after)
        recorded = {job.index: job for job in page.jobs}
        end = size if page.next_after is None else (page.jobs[-1].index or 0) + 1
        for place in range(index, end):
            child = recorded.get(place) or child_at_rest(parent, place)
            if child is None or child.state is not parent.rest:
                continue
            if len(jobs) == limit:
                return jobs, token_of(f"children/{place}/{after or ''}")
            jobs.append(child)
        index, after = max(index, end), page.next_after
    return jobs, None


def _summary(job: Job, arns: Arns) -> dict[str, Any]:
    """A JobSummary; members that are None do not reach the wire."""
    last = job.attempts[-1] if job.attempts else None
    ended = last is not None and last.stopped_at is not None
    return {
        "jobArn": arns.job(job.id),
        "jobId": job.id,
        "jobName": job.submission.name,
        "createdAt": job.created_at,
        "shareIdentifier": job.submission.share,
        "status": job.state.value,
        "statusReason": job.status_reason,
        "startedAt": job.started_at,
        "stoppedAt": job.stopped_at,
        "container": exit_detail(last) if last is not None and ended else None,
        "arrayProperties": array_properties(job),
        "nodeProperties": node_summary(job),
        "jobDefinition": arns.definition(job.submission.definition),
        "isCancelled": job.cancelled or None,
        "isTerminated": job.terminated or None,
    }
