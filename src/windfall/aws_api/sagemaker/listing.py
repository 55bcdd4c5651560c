"""DescribeTrainingJob and ListTrainingJobs: gathers what the view of a job needs; finds the jobs that a filter means.

By creation time a page is read as the store has it. By name or status all jobs that the filter leaves are put in order
first. As on AWS, StatusEquals together with MaxResults filters the page after it was cut. Must not know how the store
finds jobs, nor how a job is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from windfall.aws_api.batch.paging import position_in, token_of
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.service import Call
from windfall.aws_api.sagemaker import names
from windfall.aws_api.sagemaker.changing import invalid_token
from windfall.aws_api.sagemaker.context import TrainingContext
from windfall.aws_api.sagemaker.documents import Document, read_document
from windfall.aws_api.sagemaker.timeline import WaitingReason, stages
from windfall.aws_api.sagemaker.view import description, last_modified, status_of, summary
from windfall.control.ports import JobFilter, JobPage, Store
from windfall.jobs.attempts import Attempt
from windfall.jobs.ids import node_id
from windfall.jobs.job import Job, JobKind
from windfall.jobs.states import RUNNABLE

PAGE_MAX = 100
_STORE_PAGE = 500
#: The least number of jobs that are read at a time; a filter may accept none of them.
_LOOK = 100

Params = Mapping[str, Any]
Summary = dict[str, Any]


async def list_training_jobs(context: TrainingContext, call: Call) -> dict[str, Any]:
    """ListTrainingJobs."""
    params = call.params
    size = params.get("MaxResults", PAGE_MAX)
    by_time = params.get("SortBy", "CreationTime") == "CreationTime"
    cuts_first = "MaxResults" in params

    def arn(name: str) -> str:
        return context.arn(call, name)

    def look(store: Store) -> tuple[list[Summary], str | None]:
        if by_time:
            return _page_by_time(store, params, arn, size, cuts_first=cuts_first)
        return _page_in_order(store, params, arn, size, cuts_first=cuts_first)

    summaries, token = await context.read(look)
    return {"TrainingJobSummaries": [it for it in summaries if _has_status(it, params)], "NextToken": token}


def _page_by_time(
    store: Store, params: Params, arn: Callable[[str], str], size: int, *, cuts_first: bool
) -> tuple[list[Summary], str | None]:
    """A page in the store's own order; the token is the store's position behind the last job of the page."""
    wanted, after = _filter(params), _token(params, "time")
    summaries: list[Summary] = []
    while True:
        page = _store_page(store, wanted, max(size - len(summaries), _LOOK), after)
        for looked, job in enumerate(page.jobs, start=1):
            if _is_wanted(job, params):
                shown = _summary(job, arn)
                if cuts_first or _has_status(shown, params):
                    summaries.append(shown)
            if len(summaries) == size:
                # The store knows the position behind a page's last job only, so this page is asked for once more.
                page = page if looked == len(page.jobs) else _store_page(store, wanted, looked, after)
                break
        after = page.next_after
        if after is None or len(summaries) == size:
            return summaries, None if after is None else token_of(f"time/{after}")


def _page_in_order(
    store: Store, params: Params, arn: Callable[[str], str], size: int, *, cuts_first: bool
) -> tuple[list[Summary], str | None]:
    """A page of all that is wanted, sorted by name or by status and name; the token holds the last one's key."""
    by_name = params["SortBy"] == "Name"
    jobs = [job for job in _walk(store, _filter(params)) if _is_wanted(job, params)]
    if not cuts_first and "StatusEquals" in params:
        jobs = [job for job in jobs if _status(job) == params["StatusEquals"]]
    keyed = [([] if by_name else [_status(job)]) + [job.submission.name] for job in jobs]
    descending = params.get("SortOrder") == "Descending"
    ordered = sorted(zip(keyed, jobs, strict=True), key=lambda pair: pair[0], reverse=descending)
    if (position := _token(params, "key")) is not None:
        last = _decoded(position)
        ordered = [(key, job) for key, job in ordered if (key < last if descending else key > last)]
    chosen = [_summary(job, arn) for _, job in ordered[:size]]
    if len(ordered) <= size:
        return chosen, None
    return chosen, token_of(f"key/{msgspec.json.encode(ordered[size - 1][0]).decode()}")


def _walk(store: Store, wanted: JobFilter) -> Iterator[Job]:
    after: str | None = None
    while True:
        page = store.list_jobs(wanted, _STORE_PAGE, after)
        yield from page.jobs
        after = page.next_after
        if after is None:
            return


def _store_page(store: Store, wanted: JobFilter, limit: int, after: str | None) -> JobPage:
    try:
        return store.list_jobs(wanted, limit, after)
    except ValueError:
        # The store's own word for a position that no page has given.
        raise invalid_token() from None


def _filter(params: Params) -> JobFilter:
    before, after = params.get("CreationTimeBefore"), params.get("CreationTimeAfter")
    return JobFilter(
        queues=names.QUEUES,
        created_before=None if before is None else int(before * 1000),
        created_after=None if after is None else int(after * 1000),
        oldest_first=params.get("SortOrder", "Ascending") == "Ascending",
    )


def _is_wanted(job: Job, params: Params) -> bool:
    """Whether a job passes the filters that the store does not know; letters' case counts, as on AWS."""
    modified = last_modified(job) / 1000
    return (
        # Batch jobs may wait in these queues too.
        job.submission.kind is JobKind.TRAINING
        and params.get("NameContains", "") in job.submission.name
        and modified > params.get("LastModifiedTimeAfter", 0)
        and modified < params.get("LastModifiedTimeBefore", float("inf"))
        and _matches_request(job, params)
    )


def _matches_request(job: Job, params: Params) -> bool:
    if "TrainingPlanArnEquals" in params:
        resources = read_document(job.submission.document).request.get("ResourceConfig", {})
        return bool(resources.get("TrainingPlanArn") == params["TrainingPlanArnEquals"])
    if "WarmPoolStatusEquals" in params:
        shown = _summary(job, str)["WarmPoolStatus"] or {}
        return bool(shown.get("Status") == params["WarmPoolStatusEquals"])
    return True


def _has_status(shown: Summary, params: Params) -> bool:
    return "StatusEquals" not in params or shown["TrainingJobStatus"] == params["StatusEquals"]


def _status(job: Job) -> str:
    return status_of(job, stages(job, read_document(job.submission.document)))[0]


def _summary(job: Job, arn: Callable[[str], str]) -> Summary:
    return summary(job, read_document(job.submission.document), arn(job.submission.name))


def _token(params: Params, kind: str) -> str | None:
    """What follows `kind/` in the token, if there is one."""
    token = params.get("NextToken")
    if not token:
        return None
    try:
        found_kind, slash, position = position_in(token).partition("/")
    except ApiError:
        raise invalid_token() from None
    if found_kind != kind or not slash:
        raise invalid_token()
    return position


def _decoded(position: str) -> list[str]:
    try:
        return msgspec.json.decode(position, type=list[str])
    except msgspec.DecodeError:
        raise invalid_token() from None


_CAPACITY = "CAPACITY:"


async def describe_training_job(context: TrainingContext, call: Call) -> dict[str, Any]:
    """DescribeTrainingJob."""
    job = await context.require(call.params["TrainingJobName"])
    document = read_document(job.submission.document)
    now = context.clock_ms()
    return description(
        job,
        document,
        context.arn(call, job.submission.name),
        now=now,
        spot_factor=context.settings.spot_factor,
        waiting=await _waiting(context, job),
        metrics=await context.metrics.of(await _attempts(context, job), _patterns(document), now),
    )


async def _attempts(context: TrainingContext, job: Job) -> list[Attempt]:
    """The attempts of all hosts."""
    nodes = job.submission.nodes
    if nodes is None:
        return job.attempts
    others = await context.read(
        lambda store: store.jobs([node_id(job.id, number) for number in nodes.others])
    )
    return [attempt for host_job in (job, *others) for attempt in host_job.attempts]


async def _waiting(context: TrainingContext, job: Job) -> WaitingReason | None:
    if job.state is not RUNNABLE:
        return None
    why = await context.gate.why(job.id)
    if why is None or why.state is not RUNNABLE:
        return None
    text = why.reasons[0][1] if why.reasons else None
    return WaitingReason((why.aws_reason or "").startswith(_CAPACITY), text)


def _patterns(document: Document) -> list[tuple[str, str]]:
    metrics = document.request["AlgorithmSpecification"].get("MetricDefinitions", ())
    return [(metric["Name"], metric["Regex"]) for metric in metrics]
