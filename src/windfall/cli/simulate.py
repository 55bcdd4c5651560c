"""`windfall simulate`: replays a trace of jobs through Windfall's own scheduler, and compares policies.

Needs no daemon. Reads the CSV form of traces and lays out what came of them. Must not know how anything is scheduled.
"""

from __future__ import annotations

import csv
import random
import time
from functools import partial
from pathlib import Path
from typing import Any

import click

from windfall.capacity.catalog.lookup import CATALOG
from windfall.cli.errors import BadUsage
from windfall.cli.notes import note
from windfall.cli.options import json_option, print_json
from windfall.forecast.playing import Bounds
from windfall.forecast.replaying import Cluster, Outcome, ReplayPolicy, TracedJob, replay

NEEDED, OPTIONAL = ("submit_s", "length_s"), ("cpus", "gpus", "memory_mib", "user", "priority")
JOBS_MAX, MACHINES_MAX = 200_000, 10_000
_ROUNDS = 5_000_000


@click.command()
@click.argument("trace", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--machines",
    type=click.IntRange(1, MACHINES_MAX),
    default=10,
    show_default=True,
    help="How many machines.",
)
@click.option(
    "--type",
    "type_name",
    default="g5.12xlarge",
    show_default=True,
    help="Their instance type; see `windfall catalog`.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice([policy.value for policy in ReplayPolicy]),
    help="Only this policy; may be repeated.",
)
@click.option(
    "--every",
    type=click.FloatRange(0.1, 3600),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks of the scheduler.",
)
@click.option(
    "--deadline-factor",
    type=click.FloatRange(1.1, 100),
    default=2.0,
    show_default=True,
    help="With spot-deadline: time until a job's deadline, in lengths of the job.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the losses of spot capacity.")
@click.option(
    "--within",
    type=click.FloatRange(1, 86_400),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Time to compute for each policy, at most.",
)
@json_option
def simulate(
    trace: Path,
    machines: int,
    type_name: str,
    policies: tuple[str, ...],
    every: float,
    deadline_factor: float,
    seed: int,
    within: float,
    as_json: bool,
) -> None:
    """Replay a trace of jobs by several policies.

    TRACE is a CSV file with a header: submit_s and length_s in seconds, and if wanted cpus, gpus, memory_mib,
    user and priority. Waiting times, use and cost are compared. No daemon is needed, and nothing runs.
    """
    type_ = CATALOG.find(type_name)
    if type_ is None:
        raise BadUsage(f"there is no instance type {type_name!r}; `windfall catalog` lists them")
    jobs = read_trace(trace)
    if large := next((job for job in jobs if job.cpus > type_.vcpus or job.gpus > type_.gpus), None):
        raise BadUsage(
            f"a job asks for {large.cpus:g} vCPUs and {large.gpus} GPUs, and one {type_.name} has {type_.vcpus} and"
            f" {type_.gpus}; name a larger --type"
        )
    cluster = Cluster(type=type_, machines=machines, every_s=every, deadline_factor=deadline_factor)
    outcomes = []
    for policy in [ReplayPolicy(name) for name in policies] or list(ReplayPolicy):
        bounds = Bounds(_ROUNDS, partial(_is_before, time.monotonic() + within))
        outcomes.append(replay(jobs, cluster, policy, random.Random(seed).random, bounds))
    if as_json:
        print_json({"outcomes": [_spelled(outcome) for outcome in outcomes]})
        return
    _print(outcomes)


def _is_before(until: float) -> bool:
    return time.monotonic() < until


def read_trace(file: Path) -> list[TracedJob]:
    """The jobs of a trace; refuses a line that makes no sense, with its number."""
    with file.open(newline="", encoding="utf-8", errors="replace") as lines:
        rows = csv.DictReader(lines)
        columns = [name.strip() for name in rows.fieldnames or ()]
        rows.fieldnames = columns
        if missing := [name for name in NEEDED if name not in columns]:
            raise BadUsage(f"{file}: the column {missing[0]} is missing; the first line names the columns")
        if unknown := [name for name in columns if name not in (*NEEDED, *OPTIONAL)]:
            note(f"columns that are not used: {', '.join(unknown[:5])}")
        jobs: list[TracedJob] = []
        for row in rows:
            if len(jobs) >= JOBS_MAX:
                raise BadUsage(f"{file} has more than {JOBS_MAX:,} jobs; cut it into parts")
            jobs.append(_job(file, rows.line_num, row))
    if not jobs:
        raise BadUsage(f"{file} has no jobs")
    return jobs


def _job(file: Path, line: int, row: dict[str, Any]) -> TracedJob:
    def number(name: str, default: float, least: float, most: float) -> float:
        text = (row.get(name) or "").strip()
        try:
            value = float(text) if text else default
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise BadUsage(
                f"{file}, line {line}: {name} must be a number from {least:g} to {most:g}, not {text!r}"
            )
        return value

    if not (row.get("submit_s") or "").strip() or not (row.get("length_s") or "").strip():
        raise BadUsage(f"{file}, line {line}: submit_s and length_s are needed")
    return TracedJob(
        submit_s=number("submit_s", 0, 0, 1e9),
        length_s=number("length_s", 0, 0.001, 1e8),
        cpus=number("cpus", 1, 0.25, 10_000),
        gpus=int(number("gpus", 0, 0, 1_000)),
        memory_mib=int(number("memory_mib", 1024, 4, 1e9)),
        user=_share(row.get("user")),
        priority=int(number("priority", 0, 0, 9999)),
    )


def _share(user: str | None) -> str:
    """A user as the name of a share, which has letters and digits alone."""
    return (
        "".join(character for character in user or "" if character.isascii() and character.isalnum())[:255]
        or "anybody"
    )


def _waits(outcome: Outcome) -> tuple[float, float, float] | None:
    """The mean, the median and the 95th percentile of the waits."""
    waits = outcome.waits_s
    if not waits:
        return None
    return sum(waits) / len(waits), waits[len(waits) // 2], waits[int(len(waits) * 0.95)]


def _spelled(outcome: Outcome) -> dict[str, Any]:
    mean, median, high = _waits(outcome) or (None, None, None)
    return {
        "policy": outcome.policy,
        "jobs": outcome.jobs,
        "done": outcome.done,
        "waitMeanS": mean,
        "waitMedianS": median,
        "waitP95S": high,
        "spanS": outcome.span_s,
        "gpuUse": outcome.gpu_use,
        "cpuUse": outcome.cpu_use,
        "usd": outcome.usd,
        "interruptions": outcome.interruptions,
        "late": outcome.late,
        "complete": outcome.complete,
    }


def _print(outcomes: list[Outcome]) -> None:
    from windfall.cli.tables import Column, print_table

    names = ("DONE", "WAIT MEAN", "MEDIAN", "P95", "SPAN", "GPU", "CPU", "COST", "LOST", "LATE")
    columns = [Column("POLICY"), *(Column(name, right=True) for name in names)]
    rows = []
    for outcome in outcomes:
        waits = _waits(outcome)
        rows.append(
            [
                str(outcome.policy),
                f"{outcome.done:,}/{outcome.jobs:,}",
                *(("", "", "") if waits is None else (_short(each) for each in waits)),
                _short(outcome.span_s),
                "" if outcome.gpu_use is None else f"{outcome.gpu_use:.0%}",
                f"{outcome.cpu_use:.0%}",
                "?" if outcome.usd is None else f"${outcome.usd:,.0f}",
                f"{outcome.interruptions:,}",
                f"{outcome.late:,}" if outcome.policy is ReplayPolicy.SPOT_DEADLINE else "",
            ]
        )
    print_table(columns, rows)
    if not all(outcome.complete for outcome in outcomes):
        note("not all was played to its end within the time to compute; see --within and --every")


def _short(seconds: float) -> str:
    """A span in few characters."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
