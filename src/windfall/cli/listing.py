"""Asks for jobs by queue and state, as AWS Batch lists them, and finds the one that a name means.

Must not print.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from windfall.cli.client import Client
from windfall.cli.errors import RequestRefused, UnknownJob

LIVE = ("RUNNING", "STARTING", "RUNNABLE", "PENDING", "SUBMITTED")
FINISHED = ("SUCCEEDED", "FAILED")
#: A state that service jobs alone have, and one that they have not.
SCHEDULED, PENDING = "SCHEDULED", "PENDING"
ALL_STATES = (*LIVE, SCHEDULED, *FINISHED)

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:[:#][0-9]+)?")
_JOB_ARN = re.compile(r"arn:[a-z-]+:batch:[^:]*:[^:]*:(?:service-)?job/(.+)")

Job = dict[str, Any]


def newest_jobs(
    client: Client, queues: Iterable[str], states: Sequence[str] = ALL_STATES, limit: int = 50
) -> list[Job]:
    """The newest jobs and service jobs of these queues and states, each with its queue's name as `jobQueue`."""
    jobs: list[Job] = []
    services = client.service_queue_names()
    for queue in queues:
        operation, foreign = ("ListServiceJobs", PENDING) if queue in services else ("ListJobs", SCHEDULED)
        for status in (state for state in states if state != foreign):
            page = client.pages(operation, "jobSummaryList", limit, jobQueue=queue, jobStatus=status)
            jobs += [{**job, "jobQueue": queue} for job in page]
    # A job that moved on between two questions was listed twice; the later answer is the newer one.
    latest = {job["jobId"]: job for job in jobs}
    return sorted(latest.values(), key=lambda job: -int(job.get("createdAt", 0)))[:limit]


def children(client: Client, array_id: str, states: Sequence[str], limit: int) -> list[Job]:
    """The children of an array in these states, by index."""
    jobs: list[Job] = []
    for status in (state for state in states if state != SCHEDULED):
        jobs += client.pages("ListJobs", "jobSummaryList", limit, arrayJobId=array_id, jobStatus=status)
    latest = {job["jobId"]: job for job in jobs}
    return sorted(latest.values(), key=lambda job: int(job.get("arrayProperties", {}).get("index", 0)))[
        :limit
    ]


def job_id(client: Client, text: str) -> str:
    """The id that an id, its unique beginning, `id:index`, `id#node`, an ARN or a name (its newest job) means."""
    arn = _JOB_ARN.fullmatch(text)
    wanted = arn[1] if arn else text
    if _ID.fullmatch(wanted):
        return wanted
    parent, colon, index = wanted.partition("#" if "#" in wanted else ":")
    candidates: list[str] = client.own("FindJobs", text=parent)["jobIds"] if parent else []
    named = [candidate for candidate in candidates if not candidate.startswith(parent)]
    begun = [candidate for candidate in candidates if candidate.startswith(parent)]
    if not named and len(begun) > 1:
        raise UnknownJob(
            f"{len(begun)} jobs or more begin with {parent!r}, such as {begun[0]} and {begun[1]}; "
            "give more of the id"
        )
    if not candidates:
        raise UnknownJob(f"there is no job {text!r}; {_suggestion(client, parent)}")
    return (named or begun)[0] + colon + index


def describe_job(client: Client, text: str) -> Job:
    """The JobDetail of the job that a text means."""
    job = describe_any_job(client, text)
    if "serviceJobType" not in job:
        return job
    latest = job.get("latestAttempt", {}).get("serviceResourceId", {}).get("value", "")
    training = f"; its training job is training-{latest.rpartition('/')[2]}" if latest else ""
    raise UnknownJob(f"{text} is a service job; see `windfall why {job['jobId']}`{training}")


def describe_any_job(client: Client, text: str) -> Job:
    """The JobDetail of a job, or what DescribeServiceJob says of a service job, which has a `serviceJobType`."""
    wanted = job_id(client, text)
    jobs: list[Job] = client.batch("DescribeJobs", jobs=[wanted])["jobs"]
    if jobs:
        return jobs[0]
    try:
        return client.batch("DescribeServiceJob", jobId=wanted)
    except RequestRefused as refused:
        if refused.code != "ClientException":
            raise
    raise UnknownJob(f"there is no job {text!r}; {_suggestion(client, text)}")


def _suggestion(client: Client, text: str) -> str:
    from difflib import get_close_matches

    recent = newest_jobs(client, client.queue_names())
    close = get_close_matches(text, [job["jobName"] for job in recent], n=1)
    if close:
        job = next(job for job in recent if job["jobName"] == close[0])
        return f"did you mean {close[0]!r} ({job['jobId']})?"
    return "`windfall jobs --all` lists the jobs there are"
