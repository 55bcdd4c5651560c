"""EventBridge Scheduler over the real reactor and a real store, spoken to by a boto3 client without a network."""

from __future__ import annotations

import asyncio
import functools
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from botocore.awsrequest import AWSResponse

from tests.unit.aws_api.core_gate import CoreGate
from tests.unit.aws_api.service_client import client_of
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.request import HttpRequest, Response
from windfall.aws_api.protocol.service import Caller, ModelledService, Role
from windfall.aws_api.scheduler.service import scheduler_service
from windfall.control.state import Rules
from windfall.daemon.time_zones import zone_named
from windfall.store.opening import open_store

NOW = 1_800_000_000_000
REGION, ACCOUNT = "eu-west-1", "123456789012"
ARN = f"arn:aws:scheduler:{REGION}:{ACCOUNT}"
SUBMIT_JOB = "arn:aws:scheduler:::aws-sdk:batch:submitJob"
CREATE_TRAINING = "arn:aws:scheduler:::aws-sdk:sagemaker:createTrainingJob"
QUEUE = f"arn:aws:batch:{REGION}:{ACCOUNT}:job-queue/spot"
ROLE = "arn:aws:iam::123456789012:role/Anybody"
INPUT = json.dumps({"JobName": "train", "JobQueue": "spot", "JobDefinition": "train:1"})
TARGET = {"Arn": SUBMIT_JOB, "RoleArn": ROLE, "Input": INPUT}


def a_request(name: str = "nightly", **changes: Any) -> dict[str, Any]:
    """What CreateSchedule takes; None leaves a member out."""
    request: dict[str, Any] = {
        "Name": name,
        "ScheduleExpression": "cron(0 2 ? * MON-FRI *)",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": TARGET,
        **changes,
    }
    return {member: value for member, value in request.items() if value is not None}


#: The world of the test that runs now: loading AWS's models takes longer than a test, so that all share them.
_PRESENT: list[World] = []


class _PresentGate:
    def __getattr__(self, name: str) -> Any:
        return getattr(_PRESENT[0].gate, name)


@functools.cache
def the_service() -> ModelledService:
    return scheduler_service(_PresentGate(), ACCOUNT, zone_named)


@functools.cache
def the_client() -> Any:
    return client_of("scheduler", REGION, lambda: _PRESENT[0])


class World:
    """A core, and the service over it."""

    def __init__(self, root: Path) -> None:
        self.store = open_store(str(root / "windfall.db"))
        self.gate = CoreGate(self.store, NOW, Rules(zones=zone_named), step_ms=0)
        self.role = Role.SUBMIT
        self.tenant = "default"
        _PRESENT[:] = [self]

    def send(self, request: Any) -> AWSResponse:
        """The answer to what a client sends, as its HTTP library would give it."""
        place = urlsplit(request.url)
        body = request.body if isinstance(request.body, bytes) else (request.body or "").encode()
        response = self._answer(HttpRequest(request.method, place.path, place.query, {}, body))
        names = {name.decode(): value.decode() for name, value in response.headers}
        names["content-type"] = response.content_type.decode()
        return AWSResponse(request.url, response.status, names, _Raw(response.body))

    def _answer(self, request: HttpRequest) -> Response:
        service = the_service()
        caller = Caller("AKIDEXAMPLE", self.role, self.tenant)
        try:
            return asyncio.run(
                service.answer(request, caller, REGION, "11111111-2222-4333-8444-555555555555")
            )
        except ApiError as error:
            return service.refuse_to(request)(error, "request-1")


class _Raw:
    """A body as urllib3 would hold it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: Any):
        yield self._content
