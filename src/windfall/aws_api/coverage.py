"""Writes docs/aws-coverage.md: which operations and members of AWS's APIs have behaviour here.

Taken from botocore's models and from the tables that the handlers themselves go by, so that the page cannot
promise what the code refuses. `make docs` writes it down. Must not know how anything is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from windfall.aws_api.batch.members import KEPT, REFUSED, REFUSED_PARTS
from windfall.aws_api.batch.service import DEFAULT_ACCOUNT_ID, batch_service
from windfall.aws_api.cloudwatch.service import cloudwatch_service
from windfall.aws_api.iam.service import iam_service
from windfall.aws_api.logs.service import logs_service
from windfall.aws_api.protocol.operations import load_service_model
from windfall.aws_api.protocol.service import Role
from windfall.aws_api.sagemaker import hosting_rules
from windfall.aws_api.sagemaker import members as training
from windfall.aws_api.sagemaker.service import TrainingSettings, training_service
from windfall.aws_api.scheduler import members as scheduled
from windfall.aws_api.scheduler.service import scheduler_service
from windfall.aws_api.sts.service import sts_service
from windfall.control.ports import AttemptFiles, CorePort
from windfall.schedules.zones import utc_only

_OPENING = """\
# AWS API coverage

Which operations of AWS's APIs Windfall answers, who may call them, and which members of their requests do not
do what they do on AWS. A member that is not listed has its meaning.

- **Role** is the least role that a key needs: `read`, `submit` or `admin`.
- **Kept** members are stored and returned as they were sent, and change nothing here (subnets, security groups).
- **Refused** members are answered with an error that names them; nothing is changed.
- The tag `windfall:engine` of a compute environment names the engine that serves it. The tag
  `windfall:isolation` of a job, which only Windfall writes, says what kept its latest attempt apart from the
  host, `windfall:diagnosis` why it failed, and `windfall:not-applied` what of its containerProperties a process
  could not be given, and which containers of its task do not run.
- Operations that are *not supported yet* are answered with an error that names them.

This page is written by `make docs`; a test compares it with the code.
"""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What one service has of AWS's."""

    title: str
    service: str
    roles: Mapping[str, Role]
    kept: Mapping[str, Sequence[str]] = field(default_factory=dict)
    refused: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: What of a large service is meant at all; None means all of it, and what is missing is named.
    scope: str | None = None


def coverages() -> tuple[Coverage, ...]:
    """Every service that a daemon serves, as its own tables describe it."""
    refused = {name: tuple(members) for name, members in REFUSED.items()}
    for name, parts in REFUSED_PARTS.items():
        refused[name] = (*refused.get(name, ()), *parts)
    # Nothing is asked of the gate: the services are put together only to be looked at.
    gate, files = cast(CorePort, None), cast(AttemptFiles, None)
    batch = batch_service(gate, DEFAULT_ACCOUNT_ID, str, int)
    logs = logs_service(gate, files, DEFAULT_ACCOUNT_ID, int)
    sagemaker = training_service(gate, DEFAULT_ACCOUNT_ID, int, files, TrainingSettings())
    refused_sagemaker = {
        "CreateTrainingJob": tuple(training.REFUSED),
        **{name: tuple(members) for name, members in hosting_rules.REFUSED.items()},
    }
    return (
        Coverage("AWS Batch", "batch", batch.operations, KEPT, refused),
        Coverage(
            "Amazon SageMaker",
            "sagemaker",
            sagemaker.operations,
            {**training.KEPT, **hosting_rules.KEPT},
            refused_sagemaker,
            scope="training jobs, models and endpoints",
        ),
        Coverage("Amazon CloudWatch Logs", "logs", logs.operations),
        Coverage(
            "Amazon CloudWatch",
            "cloudwatch",
            cloudwatch_service(cast(CorePort, None), lambda _: None).operations,
            scope="the reading of metrics",
        ),
        Coverage(
            "Amazon EventBridge Scheduler",
            "scheduler",
            scheduler_service(gate, DEFAULT_ACCOUNT_ID, utc_only).operations,
            scheduled.KEPT,
            scheduled.REFUSED,
        ),
        Coverage("AWS STS", "sts", sts_service(DEFAULT_ACCOUNT_ID).operations),
        Coverage(
            "AWS IAM", "iam", iam_service(DEFAULT_ACCOUNT_ID).operations, scope="questions about a role"
        ),
    )


def coverage_page() -> str:
    """The whole page as Markdown."""
    return "\n".join([_OPENING, *(line for coverage in coverages() for line in _section(coverage))])


def _section(coverage: Coverage) -> Iterator[str]:
    operations = load_service_model(coverage.service).operation_names
    answered = [name for name in operations if name in coverage.roles]
    missing = [name for name in operations if name not in coverage.roles]
    yield f"## {coverage.title}: {len(answered)} of {len(operations)} operations"
    yield ""
    yield "| Operation | Role | Kept | Refused |"
    yield "|---|---|---|---|"
    for name in answered:
        recorded, refused = coverage.kept.get(name, ()), coverage.refused.get(name, ())
        yield f"| {name} | {coverage.roles[name].name.lower()} | {_members(recorded)} | {_members(refused)} |"
    yield ""
    if not missing:
        yield "All of them."
    elif coverage.scope is None:
        yield f"Not supported yet: {', '.join(missing)}."
    else:
        yield f"Served are {coverage.scope}; the other {len(missing)} operations are not supported yet."
    yield ""


def _members(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "-"


def unknown_members(coverage: Coverage) -> list[str]:
    """Names in the tables that AWS's model does not have; there must be none."""
    model = load_service_model(coverage.service)
    return [
        f"{operation}.{path}"
        for table in (coverage.kept, coverage.refused)
        for operation, paths in table.items()
        for path in paths
        if not _has(model.operation_model(operation).input_shape, path.split("."))
    ]


def _has(shape: Any, path: Sequence[str]) -> bool:
    if not path:
        return True
    # A list has the members of what it is a list of.
    members = getattr(getattr(shape, "member", shape), "members", {})
    return path[0] in members and _has(members[path[0]], path[1:])
