"""Real jobs with deadlines on a simulated market: they wait for spot capacity, pay when they must, and lose nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.acceptance.daemon import RunningWindfall, a_definition
from tests.acceptance.test_simulated_market import (
    COUNT,
    a_queue_of,
    an_environment,
    kill,
    said,
    simulated_pids,
)
from tests.waiting import wait_until


@pytest.fixture
def market() -> Iterator[RunningWindfall]:
    """A daemon whose instances boot in a moment, and that expects so."""
    running = RunningWindfall("--vcpus", "4", "--memory-mib", "8192", "--gpus", "none")
    running.extra_environment = {
        "WINDFALL_SIMULATED_BOOT_S": "0.2",
        "WINDFALL_SIMULATED_NOTICE_S": "3",
        "WINDFALL_CHANGEOVER_S": "1",
    }
    try:
        yield running.up()
    finally:
        running.close()
        kill(simulated_pids(running))


def a_mixed_queue(batch: Any, **spot: str) -> None:
    an_environment(batch, "spot", **spot)
    an_environment(batch, "steady", "EC2")
    a_queue_of(batch, "spot", "steady")
    a_definition(batch, "count", "sh", "-c", COUNT)


def submit(batch: Any, deadline: str, work: str) -> str:
    tags = {"windfall:checkpoint": "true", "windfall:deadline": deadline, "windfall:work": work}
    job = batch.submit_job(jobName="count", jobQueue="q", jobDefinition="count", tags=tags)
    return str(job["jobId"])


def counted(running: RunningWindfall, job_id: str) -> list[int]:
    return [int(line) for line in said(running, job_id) if line.isdecimal()]


def test_without_spot_capacity_a_job_waits_and_then_pays(market):
    batch = market.client("batch")
    a_mixed_queue(batch, capacity="0")
    job_id = submit(batch, "20s", "5s")
    wait_until(lambda: "slack" in market.windfall("why", job_id).stdout, "why speaks of the deadline")
    market.wait_for([job_id], "RUNNING")
    assert "of steady" in market.windfall("why", job_id).stdout
    [job] = market.wait_for([job_id])
    assert job["status"] == "SUCCEEDED"
    assert counted(market, job_id) == list(range(1, 41))


def test_an_interruption_costs_a_job_with_a_deadline_no_work(market):
    batch = market.client("batch")
    a_mixed_queue(batch, **{"interrupt-at": "2"})
    job_id = submit(batch, "10m", "5s")
    market.wait_for([job_id], "RUNNING")
    assert "of spot" in market.windfall("why", job_id).stdout
    [job] = market.wait_for([job_id])
    assert job["status"] == "SUCCEEDED"
    assert len(job["attempts"]) >= 2
    assert counted(market, job_id) == list(range(1, 41))


def test_work_that_takes_longer_than_was_said_is_moved_to_capacity_that_stays(market):
    batch = market.client("batch")
    a_mixed_queue(batch)
    a_definition(batch, "count", "sh", "-c", COUNT.replace("40", "150"))
    job_id = submit(batch, "12s", "2s")
    [job] = market.wait_for([job_id])
    assert job["status"] == "SUCCEEDED"
    assert counted(market, job_id) == list(range(1, 151))
    assert len(job["attempts"]) == 2
    assert job["attempts"][0]["statusReason"].startswith("Host EC2 (instance i-")


def test_a_deadline_that_cannot_be_kept_is_refused(market):
    batch = market.client("batch")
    a_mixed_queue(batch)
    with pytest.raises(ClientError, match="The earliest one that can is"):
        submit(batch, "5s", "5s")
    assert batch.list_jobs(jobQueue="q", jobStatus="RUNNABLE")["jobSummaryList"] == []
