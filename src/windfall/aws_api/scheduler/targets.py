"""Which targets a schedule can have here, and what their Input must hold.

Refuses at creation what would otherwise fail at every tick: an unsupported target, or an Input that is not a JSON
object, lacks a required member or has an unknown one, by botocore's own model. Must not know how a target is invoked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

import msgspec

from windfall.aws_api.protocol.operations import load_service_model
from windfall.aws_api.scheduler.errors import InvalidRequest, shown
from windfall.schedules.schedule import Retry, Target

_UNIVERSAL = re.compile(r"arn:aws(?:-[a-z]+)*:scheduler:::aws-sdk:([A-Za-z0-9]+):([A-Za-z0-9]+)", re.ASCII)
_QUEUE = re.compile(r"arn:aws(?:-[a-z]+)*:batch:[a-z0-9-]*:[0-9]*:job-queue/[A-Za-z0-9_-]{1,128}", re.ASCII)
_ARN = re.compile(r"arn:aws(?:-[a-z]+)*:([a-z0-9-]+):", re.ASCII)
#: (service, operation) of universal targets -> how the operation is called in botocore's model.
UNIVERSAL = {("batch", "submitJob"): "SubmitJob", ("sagemaker", "createTrainingJob"): "CreateTrainingJob"}
#: Parameters of templated targets that nothing here serves.
FOREIGN = (
    "EcsParameters",
    "EventBridgeParameters",
    "KinesisParameters",
    "SageMakerPipelineParameters",
    "SqsParameters",
)
_POSSIBLE = (
    "Possible here are arn:aws:scheduler:::aws-sdk:batch:submitJob, the ARN of a job queue, and "
    "arn:aws:scheduler:::aws-sdk:sagemaker:createTrainingJob"
)


def read_target(params: Mapping[str, Any]) -> Target:
    """The target of a request; raises InvalidRequest for one that could never be invoked."""
    arn = params["Arn"]
    for member in FOREIGN:
        if params.get(member):
            raise InvalidRequest(
                f"Windfall does not support Target.{member}, which belongs to another service. {_POSSIBLE}."
            )
    _check_input(arn, params.get("Input"))
    retry = params.get("RetryPolicy") or {}
    default = Retry()
    return Target(
        arn=arn,
        role_arn=params["RoleArn"],
        input=params.get("Input"),
        retry=Retry(
            retry.get("MaximumEventAgeInSeconds", default.max_age_s),
            retry.get("MaximumRetryAttempts", default.attempts),
        ),
        dead_letter=(params.get("DeadLetterConfig") or {}).get("Arn"),
    )


def _check_input(arn: str, text: str | None) -> None:
    if _QUEUE.fullmatch(arn):
        service, operation, given = "batch", "SubmitJob", {"JobQueue"}
    else:
        service, operation = _universal(arn)
        given = set()
    if text is None:
        raise InvalidRequest(f"Target.Input is missing: a JSON object with the parameters of {operation}")
    try:
        sent = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"Target.Input is not valid JSON: {error}") from None
    if not isinstance(sent, dict):
        raise InvalidRequest(f"Target.Input must be a JSON object with the parameters of {operation}")
    missing = [name for name in required_members(service, operation) if name not in sent.keys() | given]
    for name in missing:
        if _camel(name) in sent:
            raise InvalidRequest(
                f"Target.Input has {_camel(name)}; the parameters of a target are written with a capital: {name}"
            )
    if missing:
        raise InvalidRequest(f"Target.Input lacks {', '.join(missing)}, which {operation} requires")
    _check_members(input_shape(service, operation), sent, "Target.Input")
    queue = next((value for name, value in sent.items() if name.lower() == "jobqueue"), None)
    if given and queue is not None and queue not in {arn, arn.rpartition("/")[2]}:
        raise InvalidRequest(
            f"Target.Input names the job queue {shown(str(queue))!r}, and Target.Arn another one; leave JobQueue out"
        )


def _check_members(shape: Any, value: Any, where: str) -> None:
    """Refuse unknown members: a tick would silently drop them."""
    if shape.type_name == "structure" and isinstance(value, dict):
        members = {name.lower(): name for name in shape.members}
        for sent, inner in value.items():
            if sent.lower() not in members:
                close = get_close_matches(sent.lower(), members, n=1)
                hint = f"did you mean {_pascal(members[close[0]])}?" if close else "leave it out"
                raise InvalidRequest(f"{where} has no parameter {shown(sent)!r}; {hint}")
            name = members[sent.lower()]
            _check_members(shape.members[name], inner, f"{where}.{_pascal(name)}")
    elif shape.type_name == "list" and isinstance(value, list):
        for inner in value:
            _check_members(shape.member, inner, f"{where}[]")
    elif shape.type_name == "map" and isinstance(value, dict):
        for key, inner in value.items():
            _check_members(shape.value, inner, f"{where}.{shown(key)}")


def _universal(arn: str) -> tuple[str, str]:
    match = _UNIVERSAL.fullmatch(arn)
    if match is None:
        of = _ARN.match(arn)
        what = f"a target of {of[1]}" if of else f"the target {shown(arn)!r}"
        raise InvalidRequest(f"Windfall does not support {what}. {_POSSIBLE}.")
    operation = UNIVERSAL.get((match[1], match[2]))
    if operation is None:
        raise InvalidRequest(
            f"Windfall does not support the target {shown(match[1])}:{shown(match[2])}. {_POSSIBLE}."
        )
    return match[1], operation


@cache
def required_members(service: str, operation: str) -> tuple[str, ...]:
    """What an operation requires, as a target's Input spells it: with a capital."""
    return tuple(_pascal(name) for name in input_shape(service, operation).required_members)


@cache
def input_shape(service: str, operation: str) -> Any:
    """What an operation takes, by botocore's model of it."""
    return load_service_model(service, [operation]).operation_model(operation).input_shape


def _pascal(name: str) -> str:
    return name[0].upper() + name[1:]


def _camel(name: str) -> str:
    return name[0].lower() + name[1:]
