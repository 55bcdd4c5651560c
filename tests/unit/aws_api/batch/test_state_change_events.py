"""Events in EventBridge's envelope, with the job as it was."""

from __future__ import annotations

import msgspec

from tests.unit.aws_api.batch.fakes import (
    ACCOUNT,
    ARN,
    JOB_ID,
    NOW,
    REGION,
    FakeStore,
    a_definition,
    a_job,
    an_attempt,
)
from windfall.aws_api.batch.arns import Arns
from windfall.aws_api.batch.state_change_events import event_line
from windfall.control.outbox import EventKind, OutboxEvent
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.service_jobs import ServiceJob, ServiceState
from windfall.jobs.states import RUNNABLE, RUNNING

ARNS = Arns(REGION, ACCOUNT)


def a_store() -> FakeStore:
    store = FakeStore()
    store.all_definitions[a_definition().key] = a_definition()
    return store


def sent(told: OutboxEvent) -> dict:
    line = event_line(told, a_store(), ARNS)
    assert b"\n" not in line
    return msgspec.json.decode(line)


def test_the_envelope_is_that_of_eventbridge():
    job = a_job(state=RUNNING, attempts=[an_attempt(started_at=NOW + 20)], started_at=NOW + 20)
    event = sent(OutboxEvent("an-id", EventKind.JOB, NOW + 21, JOB_ID, job=job))
    detail = event.pop("detail")
    assert event == {
        "version": "0",
        "id": "an-id",
        "detail-type": "Batch Job State Change",
        "source": "aws.batch",
        "account": ACCOUNT,
        "time": "2023-11-14T22:13:20Z",
        "region": REGION,
        "resources": [f"{ARN}:job/{JOB_ID}"],
    }
    assert (detail["jobId"], detail["status"], detail["startedAt"]) == (JOB_ID, "RUNNING", NOW + 20)
    assert detail["jobQueue"] == f"{ARN}:job-queue/queue"
    assert detail["container"]["image"] == "img"
    assert "stoppedAt" not in detail
    assert "exitCode" not in detail["container"]


def test_a_blocked_queue_names_the_job_and_the_queue():
    job = a_job(state=RUNNABLE, status_reason="CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - none")
    event = sent(OutboxEvent("an-id", EventKind.QUEUE_BLOCKED, NOW, JOB_ID, job=job))
    assert event["detail-type"] == "Batch Job Queue Blocked"
    assert event["resources"] == [f"{ARN}:job/{JOB_ID}", f"{ARN}:job-queue/queue"]
    assert event["detail"]["statusReason"].startswith("CAPACITY:")


def test_a_service_job_is_told_as_it_is_described():
    job = ServiceJob(JobId(JOB_ID), "night", QueueName("trainings"), "{}", state=ServiceState.SCHEDULED)
    event = sent(OutboxEvent("an-id", EventKind.SERVICE_JOB, NOW, JobId(JOB_ID), service_job=job))
    assert event["detail-type"] == "Batch Service Job State Change"
    assert event["resources"] == [f"{ARN}:service-job/{JOB_ID}"]
    assert (event["detail"]["jobName"], event["detail"]["status"]) == ("night", "SCHEDULED")
