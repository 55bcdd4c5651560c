"""`windfall cancel` and `windfall terminate`: stop jobs, one by one, and say what became of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from windfall.cli.client import Client, connect
from windfall.cli.errors import CliError
from windfall.cli.listing import FINISHED, SCHEDULED, describe_any_job
from windfall.cli.notes import note
from windfall.cli.options import data_option, jobs_argument, json_option, print_json

F = TypeVar("F", bound=Callable[..., Any])

_STARTED = (SCHEDULED, "STARTING", "RUNNING")


def _reason_option(default: str) -> Callable[[F], F]:
    return click.option(
        "--reason", default=default, show_default=True, help="Kept as the job's statusReason."
    )


@click.command()
@jobs_argument
@_reason_option("Canceled by the user")
@data_option
@json_option
def cancel(jobs: tuple[str, ...], reason: str, data: Path | None, as_json: bool) -> int:
    """Cancel jobs that have not started.

    A job that has started is left alone, as AWS does; use `windfall terminate` for it.
    """
    return _stop(jobs, "CancelJob", reason, data, as_json=as_json)


@click.command()
@jobs_argument
@_reason_option("Terminated by the user")
@data_option
@json_option
def terminate(jobs: tuple[str, ...], reason: str, data: Path | None, as_json: bool) -> int:
    """Stop jobs, running or not.

    A running job gets SIGTERM, and SIGKILL after the daemon's grace period.
    """
    return _stop(jobs, "TerminateJob", reason, data, as_json=as_json)


def _stop(jobs: tuple[str, ...], operation: str, reason: str, data: Path | None, *, as_json: bool) -> int:
    client = connect(data)
    word = "canceled" if operation == "CancelJob" else "terminated"
    outcomes: list[dict[str, str]] = []
    for text in jobs:
        try:
            job = describe_any_job(client, text)
        except CliError as error:
            note(str(error))
            outcomes.append({"job": text, "outcome": "unknown"})
            continue
        outcome = _left_alone(job["status"], operation)
        if outcome is None:
            is_service = "serviceJobType" in job
            client.batch(
                "TerminateServiceJob" if is_service else operation, jobId=job["jobId"], reason=reason
            )
            outcome = word
        outcomes.append({"job": text, "jobId": job["jobId"], "outcome": outcome})
        if not as_json:
            click.echo(f"{job['jobId']} {_sentence(outcome, job['status'])}")
        if text == job.get("jobName") and (others := _live_namesakes(client, text, job["jobId"])):
            note(
                f"{text} means the newest job of that name; others go on, stop them by id: {' '.join(others)}"
            )
    if as_json:
        print_json({"jobs": outcomes})
    return 0 if all(outcome["outcome"] == word for outcome in outcomes) else 1


def _live_namesakes(client: Client, name: str, stopped: str) -> list[str]:
    """The other jobs of that name that have not ended, as far as one answer tells them."""
    matches: list[str] = client.own("FindJobs", text=name)["jobIds"]
    ids = [job_id for job_id in matches if job_id != stopped and not job_id.startswith(name)]
    jobs = client.batch("DescribeJobs", jobs=ids[:100])["jobs"] if ids else []
    return [job["jobId"] for job in jobs if job["status"] not in FINISHED and job["jobName"] == name]


def _left_alone(status: str, operation: str) -> str | None:
    if status in FINISHED:
        return "finished"
    return "started" if operation == "CancelJob" and status in _STARTED else None


def _sentence(outcome: str, status: str) -> str:
    if outcome == "finished":
        return f"is {status} already"
    if outcome == "started":
        return f"is {status} and was left alone; stop it with `windfall terminate`"
    return f"is being {outcome}"
