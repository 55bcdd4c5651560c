"""A gate that remembers commands and keeps jobs in a real store, and a boto3 client for the service over it."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from botocore.awsrequest import AWSResponse

from tests.unit.aws_api.service_client import client_of
from windfall.agent.attempt_files import AttemptDirectory
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.request import HttpRequest, Response
from windfall.aws_api.protocol.service import Caller, ModelledService, Role
from windfall.aws_api.sagemaker.context import TrainingSettings
from windfall.aws_api.sagemaker.documents import Document, write_document
from windfall.aws_api.sagemaker.service import training_service
from windfall.control import events
from windfall.control.changes import Changes
from windfall.control.why import Why
from windfall.jobs.attempts import Attempt, Market
from windfall.jobs.errors import NotFound, Rejected
from windfall.jobs.ids import (
    DefinitionKey,
    EnvironmentName,
    InstanceId,
    JobId,
    QueueName,
    attempt_token,
    task_id,
)
from windfall.jobs.images import ImageMapping
from windfall.jobs.job import Job, JobKind, Submission
from windfall.jobs.resources import Resources
from windfall.jobs.retry import ONCE
from windfall.jobs.states import RUNNABLE, JobState
from windfall.store.opening import open_store

NOW = 1_700_000_000_000
REGION, ACCOUNT = "eu-west-1", "123456789012"
ARN = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job"
ROLE = "arn:aws:iam::123456789012:role/Training"
REQUEST_ID = "11111111-2222-4333-8444-555555555555"
IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/train:1"


def a_request(name: str = "first", **changes: Any) -> dict[str, Any]:
    """What CreateTrainingJob takes; None leaves a member out."""
    request: dict[str, Any] = {
        "TrainingJobName": name,
        "RoleArn": ROLE,
        "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 10},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    }
    request.update(changes)
    return {member: value for member, value in request.items() if value is not None}


def a_channel(name: str = "training", **changes: Any) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://bucket/{name}"}
    source.update(changes.pop("source", {}))
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, **changes}


def a_group(name: str, kind: str = "ml.m5.large", count: int = 1) -> dict[str, Any]:
    """One of a request's instance groups."""
    return {"InstanceGroupName": name, "InstanceType": kind, "InstanceCount": count}


SPOT = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
    "CheckpointConfig": {"S3Uri": "s3://bucket/checkpoints/first/"},
}
SCRIPT = {
    "HyperParameters": {
        "sagemaker_program": '"train.py"',
        "sagemaker_submit_directory": '"s3://bucket/code/sourcedir.tar.gz"',
        "sagemaker_job_name": '"first"',
        "sagemaker_region": '"eu-west-1"',
        "sagemaker_container_log_level": "20",
        "epochs": "3",
        "learning-rate": "0.1",
        "b": '"text"',
    }
}


def a_training_job(
    name: str = "first", state: JobState = RUNNABLE, document: Document | None = None, **fields: Any
) -> Job:
    """A job as the core keeps one."""
    submission = Submission(
        name,
        QueueName(fields.pop("queue", "windfall-training-spot")),
        DefinitionKey(""),
        Resources(2, 8192),
        ONCE,
        tags=fields.pop("tags", {}),
        kind=JobKind.TRAINING,
        document=write_document(document or Document(a_request(name, **fields.pop("request", {})))),
    )
    return Job(JobId(f"training-{name}"), submission, state, fields.pop("created_at", NOW), **fields)


def an_attempt(number: int = 1, name: str = "first", **changes: Any) -> Attempt:
    """One try; times are in seconds after NOW."""
    token = attempt_token(JobId(f"training-{name}"), number)
    seconds = ("placed", "prepared", "started", "stop", "exited", "stopped", "deadline")
    for word in seconds:
        if word in changes:
            changes[f"{word}_at"] = NOW + int(changes.pop(word) * 1000)
    placed = changes.pop("placed_at", NOW + 1000)
    attempt = Attempt(
        number,
        token,
        task_id(token, placed),
        EnvironmentName("windfall-training-spot"),
        InstanceId("i-1"),
        (),
        f"{name}/algo-1-{placed}",
        placed,
        market=changes.pop("market", Market.SPOT),
    )
    for member, value in changes.items():
        setattr(attempt, member, value)
    return attempt


class FakeGate:
    """Remembers commands, refuses when told to, and lets what is declared take effect in its store."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.commands: list[Any] = []
        self.refusal: Rejected | None = None
        self.reason: Why | None = None

    def keep(self, *jobs: Job) -> None:
        self.store.commit(Changes(jobs={job.id: job for job in jobs}))

    async def execute(self, command: Any, tenant: str | None = None) -> Any:
        if self.refusal is not None:
            raise self.refusal
        self.commands.append(command)
        match command:
            case events.SubmitTraining():
                submission = Submission(
                    command.name,
                    QueueName(command.environment.name),
                    DefinitionKey(""),
                    command.container.resources,
                    ONCE,
                    tags=command.tags,
                    submitter=command.submitter,
                    document=command.document,
                    kind=JobKind.TRAINING,
                )
                self.keep(Job(command.job_id, submission, RUNNABLE, NOW))
            case events.DeleteTraining(job_id):
                self.store.commit(Changes(removed_jobs={job_id}))
            case events.TagResource("job", name):
                (job,) = self.store.jobs([name])
                kept = {**job.submission.tags, **command.add}
                kept = {key: value for key, value in kept.items() if key not in command.remove}
                job.submission = replace(job.submission, tags=kept)
                self.keep(job)
            case events.UpdateTraining(job_id, document):
                found = self.store.jobs([job_id])
                if not found:
                    raise NotFound("gone")
                found[0].submission = replace(found[0].submission, document=document)
                self.keep(found[0])

    async def read(self, question: Any) -> Any:
        return question(self.store)

    async def why(self, job_id: JobId) -> Why | None:
        return self.reason


#: The world of the test that runs now. Loading AWS's model takes longer than most tests, so all worlds of a
#: process share one service and one client, which look up here whose they are.
_PRESENT: list[World] = []


class _PresentGate:
    def __getattr__(self, name: str) -> Any:
        return getattr(_PRESENT[0].gate, name)


class _PresentFiles:
    """The files of the present world."""

    def __getattr__(self, name: str) -> Any:
        return getattr(AttemptDirectory(_PRESENT[0].logs), name)


@functools.cache
def the_service() -> ModelledService:
    return training_service(
        _PresentGate(), ACCOUNT, lambda: _PRESENT[0].now, _PresentFiles(), TrainingSettings()
    )


@functools.cache
def the_client() -> Any:
    return client_of("sagemaker", REGION, lambda: _PRESENT[0])


@dataclass
class World:
    """A gate and the service over it, called as the protocol calls it or by a real boto3 client."""

    root: Path
    gate: Any = None
    now: int = NOW + 3_600_000
    role: Role = Role.SUBMIT
    tenant: str = "default"
    settings: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        self.logs = self.root / "logs"
        self.logs.mkdir(exist_ok=True)
        self.store = open_store(str(self.root / "windfall.db"))
        self.gate = FakeGate(self.store) if self.gate is None else self.gate
        _PRESENT[:] = [self]

    def close(self) -> None:
        self.store.close()

    @property
    def last(self) -> Any:
        """The last command."""
        return self.gate.commands[-1]

    def has_settings(self, **settings: Any) -> None:
        """The daemon is configured otherwise for this test."""
        self.service = training_service(
            self.gate, ACCOUNT, lambda: self.now, AttemptDirectory(self.logs), TrainingSettings(**settings)
        )

    def answer(self, request: HttpRequest) -> Response:
        caller = Caller("AKIDEXAMPLE", self.role, self.tenant)
        service = getattr(self, "service", None) or the_service()
        return asyncio.run(service.answer(request, caller, REGION, REQUEST_ID))

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """The answer to a request that no client has looked at first."""
        headers = {b"x-amz-target": f"SageMaker.{operation}".encode()}
        response = self.answer(HttpRequest("POST", "/", "", headers, msgspec.json.encode(params)))
        return msgspec.json.decode(response.body)

    def refused(self, operation: str, code: str = "ValidationException", **params: Any) -> str:
        """The text of the error that a request must get."""
        before = len(self.gate.commands)
        with pytest.raises(ApiError) as caught:
            self.call(operation, **params)
        assert (caught.value.code, caught.value.status) == (code, 400)
        assert len(self.gate.commands) == before
        return caught.value.message

    def submitted(self, **changes: Any) -> events.SubmitTraining:
        """What CreateTrainingJob makes of a request."""
        self.call("CreateTrainingJob", **a_request(**changes))
        assert isinstance(self.last, events.SubmitTraining)
        return self.last

    def maps(self, pattern: str, *entrypoint: str) -> None:
        """Somebody has said `windfall image add`."""
        mapping = ImageMapping(pattern, "/srv/image", entrypoint)
        self.store.commit(Changes(images={pattern: mapping}))

    def client(self) -> Any:
        """A boto3 client whose requests end here instead of on a network."""
        return the_client()

    def send(self, request: Any) -> AWSResponse:
        """The answer to what a client sends, as its HTTP library would give it."""
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else bytes(body)
        target = request.headers["X-Amz-Target"]
        headers = {b"x-amz-target": target if isinstance(target, bytes) else target.encode()}
        answered: dict[str, str] = {"content-type": "application/x-amz-json-1.1"}
        try:
            response = self.answer(HttpRequest(request.method, "/", "", headers, body))
            status, content = response.status, response.body
        except ApiError as error:
            status, content = (
                error.status,
                msgspec.json.encode({"__type": error.code, "message": error.message}),
            )
        return AWSResponse(request.url, status, answered, _Raw(content))


class _Raw:
    """A body as urllib3 would hold it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: Any):
        yield self._content
