"""The tick invoker: what it hands to the core with which tick, and which errors are worth asking again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from windfall.agent.attempt_files import AttemptDirectory
from windfall.aws_api.protocol.keys import Key, Role
from windfall.aws_api.sagemaker.context import TrainingSettings
from windfall.control.commands.calendar import StartRun, TargetFailed
from windfall.control.events import SubmitJob, SubmitTraining
from windfall.control.instructions import InvokeTarget
from windfall.daemon.acting import OwnCalls, TickInvoker
from windfall.daemon.target_requests import run_id
from windfall.jobs.errors import Invalid
from windfall.jobs.job import JobKind
from windfall.jobs.submitters import Submitter
from windfall.schedules.schedule import Schedule, Target
from windfall.store.errors import Superseded

DUE = 1_794_794_400_000
SUBMIT = "arn:aws:scheduler:::aws-sdk:batch:submitJob"
TRAIN = "arn:aws:scheduler:::aws-sdk:sagemaker:createTrainingJob"
JOB = {"JobName": "n", "JobQueue": "q", "JobDefinition": "d"}
TRAINING = {
    "TrainingJobName": "weekly",
    "RoleArn": "arn:aws:iam::123456789012:role/any-role-of-yours",
    "AlgorithmSpecification": {
        "TrainingImage": "i",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["true"],
    },
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
}


def _known(job_id: str) -> Any:
    asked = SimpleNamespace(submitter=Submitter("t"), definition="", kind=JobKind.TRAINING, name=job_id)
    return SimpleNamespace(id=job_id, submission=asked)


class FakeGate:
    """A core that answers as told, over a store that knows some jobs."""

    def __init__(self, refusal: Exception | None, known: tuple[str, ...]) -> None:
        self.refusal = refusal
        self.heard: list[Any] = []
        self.store = SimpleNamespace(
            jobs=lambda ids: [_known(one) for one in ids if one in known], images=list
        )

    async def execute(self, command: Any, tenant: str | None = None) -> Any:
        if isinstance(command, StartRun) and self.refusal is not None:
            raise self.refusal
        self.heard.append(command)

    async def read(self, question: Callable[[Any], Any]) -> Any:
        return question(self.store)


def invoked(
    tmp_path: Path,
    sent: Any,
    arn: str = SUBMIT,
    refusal: Exception | None = None,
    known: tuple[str, ...] = (),
    submitter: Submitter = Submitter("t"),  # noqa: B008 - it is frozen
    keys: tuple[Key, ...] = (),
) -> list[Any]:
    """What the core hears when a target is asked."""

    async def ask() -> list[Any]:
        gate = FakeGate(refusal, known)
        services = OwnCalls(
            gate,  # type: ignore[arg-type]  # what a core answers, without one
            "123456789012",
            lambda: DUE,
            AttemptDirectory(tmp_path),
            TrainingSettings(),
            lambda: asyncio.sleep(0),
        )
        invoker = TickInvoker(services, "us-east-1", {key.access_key_id: key for key in keys}.get)
        schedule = Schedule(
            "default",
            "nightly",
            "rate(1 day)",
            Target(arn, "role", json.dumps(sent)),
            submitter=submitter,
        )
        invoker.carry_out(InvokeTarget(schedule, DUE, 1))
        await asyncio.wait_for(asyncio.gather(*invoker._tasks), 120)
        return gate.heard

    return asyncio.run(ask())


def test_a_job_goes_to_the_core_with_its_tick_under_the_id_of_its_due_time(tmp_path):
    (heard,) = invoked(tmp_path, JOB)
    assert isinstance(heard, StartRun)
    assert (heard.schedule, heard.due_at) == ("default/nightly", DUE)
    job = heard.command
    assert isinstance(job, SubmitJob)
    schedule = Schedule("default", "nightly", "rate(1 day)", Target(SUBMIT, "role"))
    assert (job.job_id, job.submitter.tenant) == (run_id(schedule, DUE), "t")
    assert job.tags["windfall:schedule"] == "default/nightly"


def test_a_schedule_acts_with_the_key_that_made_it_as_that_is_now(tmp_path):
    key = Key("WNDFONE", "secret", Role.SUBMIT, "t", None, 1)
    (heard,) = invoked(tmp_path, JOB, submitter=Submitter("t", "WNDFONE", is_admin=True), keys=(key,))
    assert heard.command.submitter == Submitter("t", "WNDFONE", is_admin=False)


def test_a_schedule_of_a_revoked_key_starts_nothing(tmp_path):
    (heard,) = invoked(tmp_path, JOB, submitter=Submitter("t", "WNDFONE"))
    assert isinstance(heard, TargetFailed)
    assert (heard.again, "WNDFONE that made this schedule is revoked" in heard.error) == (False, True)


def test_a_training_job_takes_its_name_or_one_with_the_due_time_if_that_was_used(tmp_path):
    (first,) = invoked(tmp_path, TRAINING, TRAIN)
    assert isinstance(first.command, SubmitTraining)
    assert (first.command.name, first.command.job_id) == ("weekly", "training-t.weekly")
    (second,) = invoked(tmp_path, TRAINING, TRAIN, known=("training-t.weekly",))
    assert second.command.name == "weekly-20261116-020000"
    names = ("training-t.weekly", "training-t.weekly-20261116-020000")
    (none,) = invoked(tmp_path, TRAINING, TRAIN, known=names)
    assert isinstance(none, TargetFailed)
    assert "ResourceInUse" in none.error


@pytest.mark.parametrize(
    ("sent", "refusal", "again", "told"),
    [
        (JOB, Invalid("JobQueue q does not exist"), False, "JobQueue q does not exist"),
        ({**JOB, "Timeout": {"AttemptDurationSeconds": "long"}}, None, False, "attemptDurationSeconds"),
        ({"JobName": "n"}, None, False, "ClientException"),
        ([], None, False, "not a JSON object"),
        (JOB, RuntimeError("boom"), True, "boom"),
    ],
)
def test_a_wrong_request_fails_at_once_and_a_fault_of_ours_is_asked_again(
    tmp_path, sent, refusal, again, told
):
    (failed,) = invoked(tmp_path, sent, refusal=refusal)
    assert isinstance(failed, TargetFailed)
    assert (failed.schedule, failed.due_at, failed.again) == ("default/nightly", DUE, again)
    assert told in failed.error


def test_a_daemon_that_leads_no_more_says_nothing(tmp_path):
    assert invoked(tmp_path, JOB, refusal=Superseded(committed=False)) == []


@pytest.mark.parametrize(("tenant", "definition"), [("t", "t/d"), ("default", "d")])
def test_names_in_a_tick_s_job_are_those_of_the_tenant_that_made_the_schedule(tmp_path, tenant, definition):
    (heard,) = invoked(tmp_path, JOB, submitter=Submitter(tenant))
    assert (heard.command.definition, heard.command.submitter.tenant) == (definition, tenant)
