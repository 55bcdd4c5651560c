"""The training creator: what it asks of the core, what it reports, and that it retries after an internal error."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from windfall.agent.attempt_files import AttemptDirectory
from windfall.aws_api.sagemaker.context import TrainingSettings
from windfall.control.commands.service_jobs import TrainingRefused
from windfall.control.events import SubmitTraining
from windfall.control.instructions import CreateTraining
from windfall.daemon.acting import OwnCalls, TrainingCreator
from windfall.jobs.errors import Conflict
from windfall.jobs.ids import JobId
from windfall.jobs.resources import Resources
from windfall.jobs.submitters import Submitter

PAYLOAD = {
    "TrainingJobName": "weekly",
    "RoleArn": "arn:aws:iam::123456789012:role/Training",
    "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
    "StoppingCondition": {"MaxRuntimeInSeconds": 600},
}


class EmptyStore:
    """Knows no image and no training job."""

    def images(self) -> list[Any]:
        return []

    def jobs(self, ids: list[str]) -> list[Any]:
        return []


class FakeGate:
    """Remembers what it is asked to do, and fails as it is told to."""

    def __init__(self, *faults: Exception) -> None:
        self.done: list[Any] = []
        self.asked = asyncio.Event()
        self.faults = list(faults)

    async def execute(self, command: Any, tenant: str | None = None) -> None:
        if isinstance(command, SubmitTraining) and self.faults:
            raise self.faults.pop(0)
        self.done.append(command)
        self.asked.set()

    async def read(self, question: Any) -> Any:
        return question(EmptyStore())


def created(payload: str, gate: FakeGate) -> list[Any]:
    """What the core was asked to do for a payload."""

    async def create() -> None:
        host_known = asyncio.Event()
        settings = TrainingSettings(machines=lambda: (Resources(4, 4096),) if host_known.is_set() else ())
        services = OwnCalls(
            gate, "123456789012", lambda: 0, AttemptDirectory(Path("/nowhere")), settings, host_known.wait
        )
        creator = TrainingCreator(services, again_s=0)
        creator.carry_out(
            CreateTraining(JobId("j"), "AWSBatchweekly0", payload, "eu-west-1", Submitter("team"))
        )
        await asyncio.sleep(0)
        assert gate.done == []
        host_known.set()
        async with asyncio.timeout(120):
            await gate.asked.wait()

    asyncio.run(create())
    return gate.done


def test_a_payload_becomes_a_training_job_of_the_service_job():
    (command,) = created(json.dumps(PAYLOAD), FakeGate())
    assert isinstance(command, SubmitTraining)
    assert (command.name, command.service_job, command.submitter.tenant) == ("AWSBatchweekly0", "j", "team")
    assert command.container.environment["AWS_REGION"] == "eu-west-1"
    # Bounded by the host, which was not known when it was asked for.
    assert command.container.resources == Resources(2, 4096)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ("no JSON", "ValidationException: serviceRequestPayload is not valid JSON"),
        ("[]", "ValidationException: serviceRequestPayload is not a JSON object"),
        ("[" * 100_000, "ValidationException: serviceRequestPayload is not valid JSON"),
        ("{}", "ValidationException: "),
        (json.dumps({**PAYLOAD, "RoleArn": 5}), "Serialization"),
    ],
)
def test_what_is_wrong_with_a_payload_is_reported(payload, words):
    (refused,) = created(payload, FakeGate())
    assert isinstance(refused, TrainingRefused)
    assert (refused.job_id, refused.training_job) == ("j", "AWSBatchweekly0")
    assert refused.reason.startswith(words)


def test_one_that_exists_already_is_the_cores_to_judge():
    (refused,) = created(json.dumps(PAYLOAD), FakeGate(Conflict("exists")))
    assert refused == TrainingRefused(JobId("j"), "AWSBatchweekly0", "ResourceInUse: exists")


def test_a_fault_of_our_own_is_tried_again(caplog):
    (command,) = created(json.dumps(PAYLOAD), FakeGate(RuntimeError("broken")))
    assert isinstance(command, SubmitTraining)
    assert "AWSBatchweekly0 could not be created" in caplog.text
