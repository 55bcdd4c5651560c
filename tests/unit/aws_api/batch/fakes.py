"""A gate that remembers commands and serves jobs from memory, and a boto3 client for the service over it."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from botocore.awsrequest import AWSResponse

from tests.unit.aws_api.service_client import client_of
from windfall.aws_api.batch.service import batch_service
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.request import HttpRequest, Response
from windfall.aws_api.protocol.service import Caller, ModelledService, Role
from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning
from windfall.control import events
from windfall.control.ports import JobFilter, JobPage
from windfall.control.queue_shares import QueueShares
from windfall.jobs.attempts import Attempt
from windfall.jobs.definitions import ContainerSpec, JobDefinition
from windfall.jobs.errors import Rejected
from windfall.jobs.ids import EnvironmentName, InstanceId, JobId, QueueName, attempt_token, task_id
from windfall.jobs.job import Job, Submission
from windfall.jobs.resources import Resources
from windfall.jobs.retry import ONCE
from windfall.jobs.states import JobState

NOW = 1_700_000_000_000
REGION, ACCOUNT = "eu-west-1", "123456789012"
ARN = f"arn:aws:batch:{REGION}:{ACCOUNT}"
REQUEST_ID = "11111111-2222-4333-8444-555555555555"
JOB_ID = JobId("aaaaaaaa-0000-4000-8000-000000000001")


class FakeStore:
    """As much of the Store port as the API asks for."""

    def __init__(self) -> None:
        self.all_environments: dict[str, ComputeEnvironment] = {}
        self.all_queues: dict[str, JobQueue] = {}
        self.all_definitions: dict[str, JobDefinition] = {}
        self.all_jobs: dict[str, Job] = {}
        self.asked: list[Any] = []

    def environments(self):
        return list(self.all_environments.values())

    def queues(self):
        return list(self.all_queues.values())

    def definitions(self, name=None, active_only=False):
        found = self.all_definitions.values()
        return [d for d in found if name in (None, d.name) and (d.active or not active_only)]

    def definition(self, key):
        return self.all_definitions.get(key)

    def jobs(self, ids):
        self.asked.append(list(ids))
        return [self.all_jobs[job_id] for job_id in ids if job_id in self.all_jobs]

    def ended_children(self, array):
        found = (job for job in self.all_jobs.values() if job.parent == array and job.finished)
        return [(job.index, job.state) for job in found]

    def list_jobs(self, wanted: JobFilter, limit: int, after: str | None) -> JobPage:
        self.asked.append(wanted)
        found = [job for job in self.all_jobs.values() if job.parent == wanted.parent]
        if wanted.states is not None:
            found = [job for job in found if job.state in wanted.states]
        if wanted.parent is None:
            found = [job for job in found if job.submission.queue == wanted.queue]
            found.sort(key=lambda job: job.created_at, reverse=True)
        else:
            found.sort(key=lambda job: job.index)
        start = int(after or 0)
        more = start + limit < len(found)
        return JobPage(found[start : start + limit], str(start + limit) if more else None)


class FakeGate:
    """Remembers commands, refuses when told to, and lets declarations take effect in its store."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.commands: list[Any] = []
        self.refusal: Rejected | None = None
        self.front: list[tuple[JobId, int]] = []
        self.queue_shares: QueueShares | None = None

    async def execute(self, command: Any, tenant: str | None = None) -> Any:
        if self.refusal is not None:
            raise self.refusal
        self.commands.append(command)
        match command:
            case events.CreateComputeEnvironment(environment):
                self.store.all_environments[environment.name] = environment
            case events.UpdateComputeEnvironment(name):
                old = self.store.all_environments[name]
                changes = {
                    field: value
                    for field in ("switch", "min_vcpus", "max_vcpus", "document")
                    if (value := getattr(command, field)) is not None
                }
                self.store.all_environments[name] = replace(old, **changes)
            case events.CreateJobQueue(queue):
                self.store.all_queues[queue.name] = queue
            case events.UpdateJobQueue(name):
                old = self.store.all_queues[name]
                changes = {
                    field: value
                    for field in ("switch", "priority", "environments", "document")
                    if (value := getattr(command, field)) is not None
                }
                self.store.all_queues[name] = replace(old, **changes)
            case events.RegisterJobDefinition(definition):
                revision = 1 + len(self.store.definitions(definition.name))
                registered = replace(definition, revision=revision)
                self.store.all_definitions[registered.key] = registered
                return registered
        return None

    async def read(self, question: Any) -> Any:
        return question(self.store)

    async def queue_snapshot(self, queue: QueueName) -> list[tuple[JobId, int]]:
        return self.front

    async def shares(self, queue: QueueName) -> QueueShares | None:
        return self.queue_shares


#: The world of the test that runs now. Loading AWS's model takes longer than most tests, so all worlds of
#: a process share one service and one client, which look up here whose they are.
_PRESENT: list[World] = []


class _PresentGate:
    def __getattr__(self, name: str) -> Any:
        return getattr(_PRESENT[0].gate, name)


@functools.cache
def the_service() -> ModelledService:
    return batch_service(
        _PresentGate(),
        ACCOUNT,
        new_id=lambda: f"aaaaaaaa-0000-4000-8000-{next(_PRESENT[0].numbers):012d}",
        clock_ms=lambda: NOW,
    )


@functools.cache
def the_client() -> Any:
    return client_of("batch", REGION, lambda: _PRESENT[0])


@dataclass
class World:
    """A gate and the service over it, called as the protocol calls it or by a real boto3 client."""

    gate: Any = field(default_factory=FakeGate)

    def __post_init__(self) -> None:
        self.numbers = itertools.count(1)
        self.role = Role.ADMIN
        self.tenant = "default"
        _PRESENT[:] = [self]

    @property
    def store(self) -> FakeStore:
        return self.gate.store

    @property
    def last(self) -> Any:
        """The last command."""
        return self.gate.commands[-1]

    def answer(self, request: HttpRequest) -> Response:
        caller = Caller("AKIDEXAMPLE", self.role, self.tenant)
        return asyncio.run(the_service().answer(request, caller, REGION, REQUEST_ID))

    def call(self, operation: str, /, **params: Any) -> dict[str, Any]:
        """The answer to a request that no client has looked at first."""
        body = msgspec.json.encode(params)
        response = self.answer(HttpRequest("POST", f"/v1/{operation.lower()}", "", {}, body))
        return msgspec.json.decode(response.body)

    def refused(self, operation: str, /, **params: Any) -> str:
        """The text of the ClientException that a request must get, without the sentence around it."""
        before = len(getattr(self.gate, "commands", ()))
        with pytest.raises(ApiError) as caught:
            self.call(operation, **params)
        error = caught.value
        assert (error.code, error.status) == ("ClientException", 400)
        assert len(getattr(self.gate, "commands", ())) == before
        start, end = "Error executing request, Exception : ", f", RequestId: {REQUEST_ID}"
        assert error.message.startswith(start)
        assert error.message.endswith(end)
        return error.message[len(start) : -len(end)]

    def client(self) -> Any:
        """A boto3 client whose requests end here instead of on a network."""
        return the_client()

    def send(self, request: Any) -> AWSResponse:
        """The answer to what a client sends, as its HTTP library would give it."""
        url = urlsplit(request.url)
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else bytes(body)
        try:
            response = self.answer(HttpRequest(request.method, url.path, url.query, {}, body))
            status, headers, content = response.status, {}, response.body
        except ApiError as error:
            status, headers = error.status, {"x-amzn-errortype": error.code}
            content = msgspec.json.encode({"message": error.message})
        headers["content-type"] = "application/json"
        return AWSResponse(request.url, status, headers, _Raw(content))


class _Raw:
    """A body as urllib3 would hold it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: Any):
        yield self._content


def an_environment(name: str = "env", **changes: Any) -> ComputeEnvironment:
    environment = ComputeEnvironment(EnvironmentName(name), Provisioning.EC2, 0, 16, uuid="u-1")
    return replace(environment, **changes)


def a_queue(name: str = "queue", **changes: Any) -> JobQueue:
    return replace(JobQueue(QueueName(name), 1, (EnvironmentName("env"),)), **changes)


def a_definition(name: str = "train", revision: int = 1, **changes: Any) -> JobDefinition:
    container = ContainerSpec("img", Resources(1, 128), command=("run", "Ref::what"), environment={"A": "1"})
    document = {
        "type": "container",
        "containerProperties": {
            "image": "img",
            "command": ["run", "Ref::what"],
            "environment": [{"name": "A", "value": "1"}],
            "resourceRequirements": [{"type": "MEMORY", "value": "128"}, {"type": "VCPU", "value": "1"}],
            "mountPoints": [],
            "privileged": False,
            "linuxParameters": {"sharedMemorySize": 64},
        },
    }
    definition = JobDefinition(
        name, revision, container, parameters={"what": "all"}, document=msgspec.json.encode(document).decode()
    )
    return replace(definition, **changes)


def a_submission(**changes: Any) -> Submission:
    submission = Submission("night", QueueName("queue"), a_definition().key, Resources(1, 128), ONCE)
    return replace(submission, **changes)


def a_job(job_id: str = JOB_ID, state: JobState = JobState.RUNNABLE, **fields: Any) -> Job:
    submission: Mapping[str, Any] = fields.pop("submission", {})
    return Job(JobId(job_id), a_submission(**submission), state, fields.pop("created_at", NOW), **fields)


def an_attempt(number: int = 1, job_id: str = JOB_ID, **changes: Any) -> Attempt:
    token = attempt_token(JobId(job_id), number)
    task = task_id(token, 0)
    attempt = Attempt(
        number,
        token,
        task,
        EnvironmentName("env"),
        InstanceId("i-1"),
        (),
        f"train/default/{task}",
        NOW + 10,
    )
    for name, value in changes.items():
        setattr(attempt, name, value)
    return attempt
