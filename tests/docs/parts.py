"""Turns tables of the code into Markdown for the generated parts of the pages."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

from windfall.agent import stages
from windfall.aws_api.batch.lint.checking import RULES
from windfall.capacity.machines import INSTANCE_MOVES
from windfall.daemon.settings import Settings
from windfall.hosting.endpoint import ENDPOINT_MOVES, REPLICA_MOVES
from windfall.jobs.arrays import REST_MOVES
from windfall.jobs.service_jobs import SERVICE_MOVES
from windfall.jobs.states import JOB_MOVES, MoveTable
from windfall.schedules.schedule import TICK_MOVES


def job_states() -> str:
    """The table of a job's moves as a diagram that GitHub draws."""
    return _drawn(JOB_MOVES)


def array_rest() -> str:
    """The moves of an array's children that have no record of their own."""
    return _drawn(REST_MOVES)


def service_job_states() -> str:
    """The moves of a service job."""
    return _drawn(SERVICE_MOVES)


def instance_states() -> str:
    """The moves of an instance."""
    return _drawn(INSTANCE_MOVES)


def tick_outcomes() -> str:
    """The moves of one due time of a schedule."""
    return _drawn(TICK_MOVES)


def endpoint_states() -> str:
    """The moves of an endpoint."""
    return _drawn(ENDPOINT_MOVES)


def replica_states() -> str:
    """The moves of a replica."""
    return _drawn(REPLICA_MOVES)


def _drawn(table: MoveTable[Any]) -> str:
    return f"```mermaid\n{table.diagram()}\n```"


def attempt_stages() -> str:
    """The agent's table of moves as a diagram, each with the record that makes it."""
    lines = ["stateDiagram-v2", "    [*] --> ACCEPTED: Intended"]
    for stage, moves in stages.MOVES.items():
        kinds: dict[stages.Stage, list[str]] = {}
        for kind, leads_to in moves.items():
            kinds.setdefault(leads_to, []).append(kind.__name__)
        lines += [
            f"    {stage.name} --> {leads_to.name}: {' or '.join(names)}" for leads_to, names in kinds.items()
        ]
    lines.append("    ENDED --> [*]: Forgotten")
    return "```mermaid\n" + "\n".join(lines) + "\n```"


def settings() -> str:
    """Every setting with its default and the comment that stands above it in the code."""
    source = inspect.getsource(Settings)
    comments = {
        name: " ".join(line.strip().removeprefix("#: ") for line in text.strip().splitlines())
        for text, name in re.findall(r"((?:    #: .*\n)+)    (\w+):", source)
    }
    rows = ["| setting | default | what it is |", "|---|---|---|"]
    for field in dataclasses.fields(Settings):
        default = {dataclasses.MISSING: "see below", None: "-"}.get(field.default, field.default)
        rows.append(f"| `{field.name}` | {default} | {comments[field.name]} |")
    return "\n".join(rows)


def lint_rules() -> str:
    """Every rule of `windfall lint`."""
    rows = ["| code | severity | what it finds | why it matters |", "|---|---|---|---|"]
    rows += [f"| {rule.code} | {rule.severity} | {rule.title} | {rule.why} |" for rule in RULES]
    return "\n".join(rows)
