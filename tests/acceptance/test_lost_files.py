"""Files of the agent that are lost while a daemon uses it: jobs run once at a time, and `windfall up` finds them."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.waiting import wait_until


def gated(windfall: RunningWindfall, count: int = 1) -> tuple[list[str], Path]:
    """Jobs that say in a file when they begin and when they end, which is when there is a file `go`."""
    ledger = windfall.root / "ledger"
    ledger.mkdir()
    ledger.chmod(0o777)
    script = (
        f"me={ledger}/$AWS_BATCH_JOB_ARRAY_INDEX; echo start $AWS_BATCH_JOB_ATTEMPT >> $me;"
        f" until test -e {windfall.root}/go; do sleep 0.05; done; echo end $AWS_BATCH_JOB_ATTEMPT >> $me"
    )
    batch = a_queue(windfall)
    a_definition(batch, "gated", "sh", "-c", script)
    job_id = batch.submit_job(
        jobName="gated",
        jobQueue="q",
        jobDefinition="gated",
        arrayProperties={"size": max(2, count)},
        retryStrategy={"attempts": 3},
    )["jobId"]
    children = [f"{job_id}:{index}" for index in range(max(2, count))]
    windfall.wait_for(children, "RUNNING")
    wait_until(lambda: len(list(ledger.iterdir())) == len(children), "all have begun")
    return children, ledger


def _emptied(agent: Path) -> None:
    os.truncate(agent / "journal", 0)


def _junk(agent: Path) -> None:
    (agent / "journal").write_bytes(os.urandom(4096))


@pytest.mark.parametrize("harm", [_emptied, _junk])
def test_a_damaged_journal_makes_no_job_run_twice_at_once(fresh, harm):
    windfall = fresh("--gpus", "none", "--vcpus", "8", "--memory-mib", "8000")
    children, ledger = gated(windfall, 3)
    warden = windfall.agent_pids()["warden"]
    os.kill(warden, signal.SIGSTOP)
    windfall.kill_agent()
    harm(windfall.data / "agent")
    os.kill(warden, signal.SIGCONT)
    wait_until(lambda: all("start 2" in file.read_text() for file in ledger.iterdir()), "second attempts")
    (windfall.root / "go").touch()
    ended = windfall.wait_for(children)
    assert [job["status"] for job in ended] == ["SUCCEEDED"] * 3
    # Had a first attempt gone on, it would have said its end.
    assert {file.read_text() for file in ledger.iterdir()} == {"start 1\nstart 2\nend 2\n"}
    assert "damaged" in (windfall.data / "agent" / "agent.log").read_text()


def _without_socket(agent: Path) -> None:
    (agent / "agent.sock").unlink()


def _without_directory(agent: Path) -> None:
    shutil.rmtree(agent)


@pytest.mark.parametrize("harm", [_without_socket, _without_directory])
def test_an_agent_that_nobody_can_find_is_found_again(fresh, harm):
    windfall = fresh("--gpus", "none", "--vcpus", "8", "--memory-mib", "8000")
    children, ledger = gated(windfall)
    agent = windfall.agent_pids()["agent"]
    harm(windfall.data / "agent")
    wait_until((windfall.data / "agent" / "agent.sock").exists, "a new socket")
    windfall.kill_daemon()
    windfall.up()
    assert windfall.agent_pids()["agent"] == agent
    (windfall.root / "go").touch()
    ended = windfall.wait_for(children)
    assert [(job["status"], len(job["attempts"])) for job in ended] == [("SUCCEEDED", 1)] * len(children)
    assert {file.read_text() for file in ledger.iterdir()} == {"start 1\nend 1\n"}


def test_a_very_long_data_path_works():
    windfall = RunningWindfall("--gpus", "none")
    windfall.data = windfall.root / ("long" * 40) / "data"
    try:
        windfall.up()
        batch = a_queue(windfall)
        a_definition(batch, "hello", "echo", "hello")
        job_id = batch.submit_job(
            jobName="a", jobQueue="q", jobDefinition="hello", tags={"windfall:checkpoint": "true"}
        )["jobId"]
        (job,) = windfall.wait_for([job_id])
        assert job["status"] == "SUCCEEDED", job
        windfall.kill_daemon()
        windfall.up()
    finally:
        windfall.close()
