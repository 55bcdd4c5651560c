"""`windfall describe`: one job for people: what it is, what it asks for, and what happened to it."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any

import click

from windfall.cli.attempts import print_capacity
from windfall.cli.client import Client, connect
from windfall.cli.containers import asked_for, container_of
from windfall.cli.errors import RequestRefused
from windfall.cli.expected_ends import LIVE, ends_of, sentence
from windfall.cli.listing import FINISHED, describe_job
from windfall.cli.options import data_option, job_argument, json_option, print_json
from windfall.cli.wording import ago, duration, gpu_name, moment
from windfall.views.plain_reasons import EXITED, plainly

ISOLATION_TAG, NOT_APPLIED_TAG = "windfall:isolation", "windfall:not-applied"
CHECKPOINT_TAG, DIAGNOSIS_TAG = "windfall:checkpoint", "windfall:diagnosis"

#: How long the first forecast of a job is waited for.
ENDS_WITHIN_S = 4.0

Job = dict[str, Any]


@click.command()
@job_argument
@data_option
@json_option
def describe(job: str, data: Path | None, as_json: bool) -> None:
    """Show everything about a job."""
    client = connect(data)
    detail = describe_job(client, job)
    if as_json:
        print_json(detail)
        return
    from windfall.cli.tables import print_fields

    now = time.time_ns() // 1_000_000
    print_fields(
        [
            *_what(detail),
            *_when(detail, now),
            *_end(client, detail, now),
            *_asks(client, detail),
            *_links(detail),
        ]
    )
    _print_array(detail)
    _print_attempts(detail)
    print_capacity(client, detail["jobId"], now)


def _what(job: Job) -> list[tuple[str, Any]]:
    from windfall.cli.tables import state

    container = container_of(job)
    return [
        ("job", job["jobId"]),
        ("name", job["jobName"]),
        ("state", state(job["status"])),
        ("reason", _reason(job)),
        ("cause", plainly((job.get("tags") or {}).get(DIAGNOSIS_TAG, ""))),
        ("exit code", "" if container.get("exitCode") is None else str(container["exitCode"])),
        ("nodes", _nodes(job)),
        ("queue", _last_part(job["jobQueue"])),
        ("definition", _last_part(job["jobDefinition"])),
        ("image", container.get("image", "")),
        ("command", shlex.join(container.get("command") or [])),
    ]


def _reason(job: Job) -> str:
    """Why it is in its state; how a job ended that simply ran to its end is in its exit code."""
    reason = str(job.get("statusReason") or "")
    ran = reason == EXITED and container_of(job).get("exitCode") is not None
    return "" if ran else plainly(reason)


def _attempts(job: Job) -> str:
    most = (job.get("retryStrategy") or {}).get("attempts", 1)
    free = len(job.get("attempts") or []) > most or CHECKPOINT_TAG in (job.get("tags") or {})
    return f"at most {most}" + (", interruptions not counted" if free else "")


def _nodes(job: Job) -> str:
    """How many nodes a multi-node job has and how one is named, or which node this is."""
    node, nodes = job.get("nodeDetails"), job.get("nodeProperties")
    if node:
        return f"node {node['nodeIndex']}{', the main one' if node['isMainNode'] else ''}"
    if not nodes:
        return ""
    last = f"{job['jobId']}#{nodes['numNodes'] - 1}"
    return f"{nodes['numNodes']:,}, the main one is {nodes['mainNode']}; the last one is {last}"


def _when(job: Job, now: int) -> list[tuple[str, str]]:
    started, stopped = job.get("startedAt"), job.get("stoppedAt")
    fields = [("created", f"{moment(job.get('createdAt'))} ({ago(job.get('createdAt'), now)})")]
    if started:
        fields.append(("started", f"{moment(started)}, {duration(started - job['createdAt'])} after"))
    if stopped:
        fields.append(("stopped", moment(stopped)))
    if started and job["status"] in {"RUNNING", *FINISHED}:
        fields.append(("ran", duration((stopped or now) - started)))
    return fields


def _end(client: Client, job: Job, now: int) -> list[tuple[str, str]]:
    if job["status"] not in LIVE or ":" in job["jobId"] or "#" in job["jobId"]:
        return []
    return [("ends", sentence(ends_of(client, [job["jobId"]], ENDS_WITHIN_S), job["jobId"], now))]


def _asks(client: Client, job: Job) -> list[tuple[str, str]]:
    container = container_of(job)
    has_gpus = any(entry["type"] == "GPU" for entry in container.get("resourceRequirements") or [])
    variables = container.get("environment") or []
    return [
        ("asks for", asked_for(job)),
        ("GPUs held", _gpus_held(client, job) if has_gpus else ""),
        ("isolation", (job.get("tags") or {}).get(ISOLATION_TAG, "")),
        ("not applied", (job.get("tags") or {}).get(NOT_APPLIED_TAG, "")),
        # Names only: values may be secrets, and --json shows them to who asks.
        ("environment", ", ".join(entry["name"] for entry in variables)),
        ("attempts", _attempts(job)),
        ("timeout", _timeout(job)),
    ]


def _links(job: Job) -> list[tuple[str, str]]:
    waits = [
        " ".join(part for part in (entry.get("jobId"), entry.get("type")) if part)
        for entry in job.get("dependsOn") or []
    ]
    shown = (ISOLATION_TAG, NOT_APPLIED_TAG, DIAGNOSIS_TAG)
    tags = {name: text for name, text in (job.get("tags") or {}).items() if name not in shown}
    return [
        ("depends on", ", ".join(waits)),
        ("tags", ", ".join(f"{name}={text}" for name, text in tags.items())),
        ("log stream", container_of(job).get("logStreamName") or ""),
    ]


def _gpus_held(client: Client, job: Job) -> str:
    if job["status"] not in {"STARTING", "RUNNING"}:
        return ""
    try:
        gpus = (client.own("Status").get("machine") or {}).get("gpus") or []
    except RequestRefused:
        return ""
    held_gpus = [gpu for gpu in gpus if gpu["heldBy"] == job["jobId"]]
    return ", ".join(
        f"{gpu['id']} ({gpu_name(gpu['name'], simulated=gpu['simulated'])})" for gpu in held_gpus
    )


def _timeout(job: Job) -> str:
    limit = (job.get("timeout") or {}).get("attemptDurationSeconds")
    return duration(limit * 1000) if limit else ""


def _print_array(job: Job) -> None:
    from windfall.cli.tables import bar, console, heading, state

    array = job.get("arrayProperties") or {}
    if "size" not in array:
        return
    counts = {name: count for name, count in (array.get("statusSummary") or {}).items() if count}
    heading(f"Array of {array['size']:,}")
    out = console()
    out.print(bar(counts))
    for name, count in counts.items():
        out.print(state(name), f"{count:,}")


def _print_attempts(job: Job) -> None:
    from windfall.cli.tables import Column, heading, print_table

    attempts = job.get("attempts") or []
    if not attempts:
        return
    heading("Attempts that ended")
    rows = []
    for number, attempt in enumerate(attempts, start=1):
        container = container_of(attempt)
        started, stopped = attempt.get("startedAt"), attempt.get("stoppedAt")
        code = container.get("exitCode")
        status = attempt.get("statusReason")
        reasons = [None if status == EXITED and code is not None else status, container.get("reason")]
        rows.append(
            [
                str(number),
                moment(started),
                duration(stopped - started) if started and stopped else "",
                "" if code is None else str(code),
                plainly("; ".join(reason for reason in reasons if reason)),
            ]
        )
    columns = [
        Column("#", right=True),
        Column("STARTED"),
        Column("RAN", right=True),
        Column("EXIT", right=True),
        Column("REASON", folds=True),
    ]
    print_table(columns, rows)


def _last_part(arn: str) -> str:
    return arn.rpartition("/")[2]
