"""What a tick sends to its target: the operation, the request in the service's spelling, and the id of the run.

Scheduler's Input is written in PascalCase down to nested lists, whatever the service's own spelling; keys of maps stay
as written. botocore's model says which is which. Pure except for reading that model. Must not know who answers.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from windfall.aws_api.batch.tags import DUE_AT, SCHEDULE
from windfall.aws_api.scheduler.targets import UNIVERSAL, input_shape
from windfall.daemon.errors import BadTarget
from windfall.jobs.tenants import given_schedule
from windfall.schedules.schedule import Schedule

#: Ids of runs are derived from it, the schedule and the due time, so that a due time always has the same id.
_NAMESPACE = uuid.UUID("6f1c5f0e-6f0e-5d1c-9a57-51d6b1f0c0de")
_UNIVERSAL = re.compile(r"arn:aws(?:-[a-z]+)*:scheduler:::aws-sdk:([A-Za-z0-9]+):([A-Za-z0-9]+)", re.ASCII)
_NAME_MAX = 63


@dataclass(frozen=True, slots=True)
class TargetRequest:
    """One call of a service."""

    service: str
    operation: str
    params: dict[str, Any]

    def renamed(self, due_at: int) -> TargetRequest:
        """The same training job under a unique name: the requested one with the due time."""
        stamp = f"{_utc(due_at):%Y%m%d-%H%M%S}"
        name = self.params["TrainingJobName"][: _NAME_MAX - len(stamp) - 1].rstrip("-")
        return TargetRequest(
            self.service, self.operation, {**self.params, "TrainingJobName": f"{name}-{stamp}"}
        )


def run_id(schedule: Schedule, due_at: int) -> str:
    """The id of a due time's run; also Scheduler's execution id. A recreated schedule has other ids."""
    return str(uuid.uuid5(_NAMESPACE, f"{schedule.key}@{schedule.created_at}@{due_at}"))


def request_of(schedule: Schedule, due_at: int, attempt: int, schedule_arn: str) -> TargetRequest:
    """The request of a tick; raises BadTarget when none could succeed."""
    text = _filled_in(schedule, due_at, attempt, schedule_arn)
    try:
        sent = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadTarget(f"Target.Input is not valid JSON: {error}; correct it with update-schedule") from None
    if not isinstance(sent, dict):
        raise BadTarget("Target.Input is not a JSON object; correct it with update-schedule")
    match = _UNIVERSAL.fullmatch(schedule.target.arn)
    service = match[1] if match else "batch"
    operation = UNIVERSAL.get((match[1], match[2])) if match else "SubmitJob"
    if operation is None:
        raise BadTarget(
            f"Windfall does not support the target {schedule.target.arn}; correct it with update-schedule"
        )
    params: dict[str, Any] = _respelled(input_shape(service, operation), sent)
    tags = {SCHEDULE: given_schedule(schedule.key), DUE_AT: _iso(due_at)}
    if service == "batch":
        if match is None:
            params.setdefault("jobQueue", schedule.target.arn)
        params["tags"] = {**params.get("tags", {}), **tags}
    else:
        own = [tag for tag in params.get("Tags", []) if tag.get("Key") not in tags]
        params["Tags"] = own + [{"Key": key, "Value": value} for key, value in tags.items()]
    return TargetRequest(service, operation, params)


def _filled_in(schedule: Schedule, due_at: int, attempt: int, schedule_arn: str) -> str:
    """The Input with Scheduler's context attributes filled in; none of them needs escaping in JSON."""
    text = schedule.target.input or "{}"
    attributes = {
        "schedule-arn": schedule_arn,
        "scheduled-time": _iso(due_at),
        "execution-id": run_id(schedule, due_at),
        "attempt-number": str(attempt),
    }
    for name, value in attributes.items():
        text = text.replace(f"<aws.scheduler.{name}>", value)
    return text


def _respelled(shape: Any, value: Any) -> Any:
    """A value with member names in the service's spelling. Unknown ones were refused before."""
    if shape.type_name == "structure" and isinstance(value, dict):
        names = {name.lower(): name for name in shape.members}
        respelled = {}
        for sent, inner in value.items():
            name = names.get(sent.lower())
            respelled[name or sent] = inner if name is None else _respelled(shape.members[name], inner)
        return respelled
    if shape.type_name == "list" and isinstance(value, list):
        return [_respelled(shape.member, inner) for inner in value]
    if shape.type_name == "map" and isinstance(value, dict):
        return {key: _respelled(shape.value, inner) for key, inner in value.items()}
    return value


def _utc(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1000, UTC)


def _iso(at: int) -> str:
    return f"{_utc(at):%Y-%m-%dT%H:%M:%SZ}"
