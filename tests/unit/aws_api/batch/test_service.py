"""The service as a whole: roles, what it does not have, and answers that fit AWS's model to the letter."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from tests.unit.aws_api.batch.fakes import (
    JOB_ID,
    NOW,
    REGION,
    REQUEST_ID,
    World,
    a_definition,
    a_job,
    a_queue,
    an_attempt,
    an_environment,
)
from windfall.aws_api.batch.context import BatchContext
from windfall.aws_api.batch.service import OPERATIONS
from windfall.aws_api.protocol.errors import AccessDeniedError
from windfall.aws_api.protocol.service import Call, Caller, Role
from windfall.jobs.states import JobState

MODEL = botocore.session.get_session().get_service_model("batch")


def test_every_operation_of_aws_is_there():
    assert set(OPERATIONS) == set(MODEL.operation_names)


def test_reading_needs_read_submitting_submit_and_the_rest_admin():
    roles = {name: role for name, (role, _) in OPERATIONS.items()}
    for name, role in roles.items():
        if name.startswith(("Describe", "List", "Get")):
            assert role is Role.READ, name
        elif name.startswith(
            ("Submit", "Cancel", "Terminate", "Tag", "Untag", "Register", "Deregister", "UpdateServiceJob")
        ):
            assert role is Role.SUBMIT, name
        else:
            assert role is Role.ADMIN, name


def test_a_key_that_may_only_read_changes_nothing(world):
    world.role = Role.READ
    with pytest.raises(AccessDeniedError):
        world.call("SubmitJob", jobName="a", jobQueue="q", jobDefinition="d")
    assert world.call("DescribeJobs", jobs=["x"]) == {"jobs": []}
    assert world.gate.commands == []


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_none(item) for name, item in value.items() if item is not None}
    return [without_none(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("DescribeComputeEnvironments", {"maxResults": 1}),
        ("DescribeJobQueues", {"maxResults": 1}),
        ("DescribeJobDefinitions", {"maxResults": 1}),
        ("DescribeJobs", {"jobs": ["done", "array", "array:1", "array:2"]}),
        ("ListJobs", {"jobQueue": "queue", "jobStatus": "FAILED"}),
        ("ListJobs", {"arrayJobId": "array", "jobStatus": "RUNNABLE", "maxResults": 1}),
        ("GetJobQueueSnapshot", {"jobQueue": "queue"}),
        ("SubmitJob", {"jobName": "a", "jobQueue": "queue", "jobDefinition": "d"}),
        ("CancelJobs", {"jobs": ["a", "b c"], "reason": "r"}),
    ],
)
def test_no_answer_has_a_member_that_the_model_has_not(operation, params):
    """The protocol leaves out what the model does not know; nothing may be lost that way."""
    world = World()
    world.call(
        "CreateComputeEnvironment",
        computeEnvironmentName="full",
        type="MANAGED",
        computeResources={"type": "EC2", "maxvCpus": 4, "launchTemplate": {"launchTemplateName": "x"}},
    )
    world.store.all_environments["env"] = an_environment()
    world.call(
        "CreateJobQueue",
        jobQueueName="queue",
        priority=1,
        computeEnvironmentOrder=[{"order": 1, "computeEnvironment": "env"}],
    )
    world.store.all_queues["queue-2"] = a_queue("queue-2")
    for revision in (1, 2):
        definition = a_definition(revision=revision)
        world.store.all_definitions[definition.key] = definition
    attempt = an_attempt(started_at=NOW, stopped_at=NOW, exit_code=1, reason="r", isolation="none")
    child = a_job("array:1", JobState.RUNNABLE, parent="array", index=1, submission={"array_size": 3})
    world.store.all_jobs = {
        "done": a_job("done", JobState.FAILED, started_at=NOW, stopped_at=NOW, attempts=[attempt]),
        "array": a_job("array", JobState.PENDING, rest=JobState.RUNNABLE, submission={"array_size": 3}),
        "array:1": child,
    }
    world.gate.front = [(JOB_ID, NOW)]
    context = BatchContext(world.gate, "123456789012", lambda: JOB_ID, lambda: NOW)
    call = Call("batch", operation, params, Caller("k", Role.ADMIN, "t"), REGION, REQUEST_ID, 10)
    answer = without_none(asyncio.run(partial(OPERATIONS[operation][1], context)(call)))
    assert answer
    for job in answer.get("jobs", []):
        if operation == "DescribeJobs":
            # The model requires it, and AWS leaves it out until the job has started.
            job.setdefault("startedAt", NOW)
    errors = ParamValidator().validate(answer, MODEL.operation_model(operation).output_shape)
    assert not errors.has_errors(), errors.generate_report()
