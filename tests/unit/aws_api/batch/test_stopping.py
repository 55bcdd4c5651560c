"""Cancel and terminate: how jobs may be called, and one answer for each of many."""

from __future__ import annotations

import pytest

from tests.unit.aws_api.batch.fakes import ARN, JOB_ID
from windfall.control.events import CancelJob, TerminateJob
from windfall.jobs.errors import Conflict

BOTH = pytest.mark.parametrize(
    ("operation", "command"), [("CancelJob", CancelJob), ("TerminateJob", TerminateJob)]
)


@BOTH
@pytest.mark.parametrize(
    ("reference", "job_id"),
    [
        (JOB_ID, JOB_ID),
        (f"{JOB_ID}:17", f"{JOB_ID}:17"),
        (f"{ARN}:job/{JOB_ID}:0", f"{JOB_ID}:0"),
        ("nope", "nope"),
    ],
)
def test_a_job_is_stopped_by_id_or_arn(world, operation, command, reference, job_id):
    assert world.call(operation, jobId=reference, reason="enough") == {}
    assert world.last == command(job_id, "enough")


@BOTH
def test_what_cannot_be_a_job_is_no_error_and_reaches_nobody(world, operation, command):
    assert world.call(operation, jobId=f"{JOB_ID}:²", reason="enough") == {}
    assert world.gate.commands == []


@BOTH
def test_bad_requests_are_refused(world, operation, command):
    assert "'jobId' is a required field" in world.refused(operation, jobId="", reason="r")
    assert "Invalid ARN" in world.refused(operation, jobId=f"{ARN}:job-queue/q", reason="r")
    assert "at most 1024 characters, got 1025" in world.refused(operation, jobId=JOB_ID, reason="r" * 1025)
    assert "reason" in world.refused(operation, jobId=JOB_ID)
    assert "'reason' is a required field" in world.refused(operation, jobId=JOB_ID, reason="")
    assert "'reason' is a required field" in world.refused(f"{operation}s", jobs=[JOB_ID], reason="")


@BOTH
def test_many_jobs_are_stopped_at_once(world, operation, command):
    answer = world.call(
        f"{operation}s", jobs=[JOB_ID, "unknown", "", "a b", f"{ARN}:job/{JOB_ID}:1"], reason="enough"
    )
    assert answer == {
        "successful": [JOB_ID, "unknown", f"{ARN}:job/{JOB_ID}:1"],
        "errors": [
            {"job": "", "code": "ValidationException", "message": "'' is not the id of a job"},
            {"job": "a b", "code": "ValidationException", "message": "'a b' is not the id of a job"},
        ],
    }
    assert world.gate.commands == [command(job_id, "enough") for job_id in (JOB_ID, "unknown", f"{JOB_ID}:1")]


@BOTH
def test_a_refusal_of_one_is_in_the_answer(world, operation, command):
    world.gate.refusal = Conflict("no")
    answer = world.call(f"{operation}s", jobs=[JOB_ID], reason="enough")
    assert answer == {
        "successful": [],
        "errors": [{"job": JOB_ID, "code": "ClientException", "message": "no"}],
    }


@BOTH
def test_at_most_fifty_jobs_are_stopped_at_once(world, operation, command):
    assert "1 to 50 jobs, got 51" in world.refused(f"{operation}s", jobs=[JOB_ID] * 51, reason="r")
    assert "1 to 50 jobs, got 0" in world.refused(f"{operation}s", jobs=[], reason="r")
    assert len(world.call(f"{operation}s", jobs=[JOB_ID] * 50, reason="r")["successful"]) == 50


def test_boto3_can_stop_jobs(world):
    client = world.client()
    assert client.terminate_jobs(jobs=[JOB_ID], reason="r")["successful"] == [JOB_ID]
    assert "ResponseMetadata" in client.cancel_job(jobId=JOB_ID, reason="r")
