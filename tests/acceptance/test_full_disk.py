"""A disk that is full for a while: nobody is answered before it is durable, nothing is lost, and all goes on."""

from __future__ import annotations

import concurrent.futures
import os
import resource
from pathlib import Path

import pytest

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.small_disk import mounted_at
from tests.waiting import wait_until


@pytest.fixture
def small_disk():
    """A daemon whose data directory is a file system of 12 MiB."""
    running = RunningWindfall("--gpus", "none")
    try:
        running.data.mkdir()
        with mounted_at(running.data, "size=12m,mode=711"):
            try:
                yield running.up()
            finally:
                (running.data / "filler").unlink(missing_ok=True)
                running.stop()
    finally:
        running.close()


def end_at_a_page(path: Path) -> None:
    """Add empty lines until not a byte more fits into what the file has of the disk."""
    with path.open("ab") as file:
        file.write(b"\n" * (-path.stat().st_size % resource.getpagesize()))


def fill(path) -> None:
    """Write until not a byte is left."""
    with path.open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def test_a_submission_waits_for_room_and_is_then_kept(small_disk):
    batch = a_queue(small_disk)
    a_definition(batch, "true", "true")
    fill(small_disk.data / "filler")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = [
            pool.submit(batch.submit_job, jobName=f"job-{n}", jobQueue="q", jobDefinition="true")
            for n in range(30)
        ]
        wait_until(
            lambda: "trying again" in small_disk.log.read_text(), "the daemon says that it cannot write"
        )
        assert not all(job.done() for job in jobs)
        (small_disk.data / "filler").unlink()
        ids = [job.result(60)["jobId"] for job in jobs]
    ended = small_disk.wait_for(ids)
    assert [job["status"] for job in ended] == ["SUCCEEDED"] * 30


def test_what_ends_while_there_is_no_room_is_told_with_its_exit_code(small_disk):
    batch = a_queue(small_disk)
    go = small_disk.root / "go"
    a_definition(batch, "seven", "sh", "-c", f"while ! test -e {go}; do sleep 0.02; done; exit 7")
    job = batch.submit_job(jobName="seven", jobQueue="q", jobDefinition="seven")["jobId"]
    small_disk.wait_for([job], "RUNNING")
    agent = small_disk.agent_pids()
    for name in ("journal", "agent.log", "exits"):
        end_at_a_page(small_disk.data / "agent" / name)
    fill(small_disk.data / "filler")
    go.touch()
    wait_until(lambda: not _runs(str(go)), "the job has ended")
    assert small_disk.agent_pids() == agent
    (small_disk.data / "filler").unlink()
    (ended,) = small_disk.wait_for([job])
    assert [tried["container"]["exitCode"] for tried in ended["attempts"]] == [7]
    assert small_disk.agent_pids() == agent


def test_a_job_that_speaks_while_there_is_no_room_does_not_fail(small_disk):
    batch = a_queue(small_disk)
    go = small_disk.root / "go"
    script = f"echo begun; until test -e {go}; do sleep 0.02; done; echo done || exit 1"
    a_definition(batch, "speaks", "sh", "-c", script)
    jobs = [
        batch.submit_job(jobName=f"s{n}", jobQueue="q", jobDefinition="speaks")["jobId"] for n in range(2)
    ]
    small_disk.wait_for(jobs, "RUNNING")
    logs = small_disk.data / "logs"
    wait_until(
        lambda: sum(log.stat().st_blocks * 512 > 8_192 for log in logs.glob("*.log")) == 2,
        "room is kept for both logs",
    )
    fill(small_disk.data / "filler")
    go.touch()
    wait_until(lambda: not _runs(str(go)), "the jobs have ended")
    (small_disk.data / "filler").unlink()
    ended = small_disk.wait_for(jobs)
    assert [job["status"] for job in ended] == ["SUCCEEDED"] * 2
    wait_until(
        lambda: [log.read_text() for log in logs.glob("*.log")] == ["begun\ndone\n"] * 2,
        "their logs are whole",
    )
    assert all(log.stat().st_blocks * 512 <= 4_096 for log in logs.glob("*.log")), (
        "what was kept is given back"
    )


def _runs(word: str) -> bool:
    """Whether a process has this word in its command line; one that has ended has none."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word in command.read_text(errors="replace") and command.parent.name != str(os.getpid()):
                return True
        except OSError:
            continue
    return False
