"""A real daemon whose GPUs are described in a file: one falls ill while a job runs on it, and gets well again."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.waiting import wait_until
from windfall.agent.devices.readings import HealthRules, Reading, RecordedSet, write_set

HASTY = HealthRules(calm_s=1.0)
Start = Callable[..., RunningWindfall]


class Rack:
    """The file behind `--gpus recorded:`."""

    def __init__(self, path: Path, *ids: str, every_s: float = 0.1) -> None:
        self.path = path
        self.every_s = every_s
        self.gpus = {gpu_id: Reading(gpu_id, "NVIDIA H100", 81_559, driver="580.159") for gpu_id in ids}
        self.write()

    def write(self, *gone: str) -> None:
        shown = [gpu for gpu_id, gpu in self.gpus.items() if gpu_id not in gone]
        write_set(str(self.path), RecordedSet(shown, HASTY, every_s=self.every_s))

    def now(self, gpu_id: str, **facts: Any) -> None:
        self.gpus[gpu_id] = Reading(gpu_id, "NVIDIA H100", 81_559, driver="580.159", **facts)
        self.write()


@pytest.fixture
def rack(tmp_path: Path) -> Rack:
    return Rack(tmp_path / "gpus.json", "GPU-one", "GPU-two")


def up(fresh: Start, rack: Rack) -> RunningWindfall:
    size = ("--vcpus", "8", "--memory-mib", "4096")
    return fresh(*size, "--gpus", f"recorded:{rack.path}", "--stop-grace-s", "1")


def gpus(windfall: RunningWindfall) -> dict[str, Any]:
    return {gpu["id"]: gpu for gpu in json.loads(windfall.windfall("gpus", "--json").stdout)["gpus"]}


def health(windfall: RunningWindfall) -> list[str]:
    return [gpu["health"] for gpu in gpus(windfall).values()]


def wait_for_health(windfall: RunningWindfall, *words: str) -> None:
    wait_until(lambda: health(windfall) == list(words), f"the GPUs to be {words}")


def test_a_job_moves_away_from_a_gpu_that_falls_ill_and_the_gpu_gets_well(fresh: Start, rack: Rack):
    windfall = up(fresh, rack)
    batch = a_queue(windfall)
    listens = "trap 'exit 143' TERM; while :; do sleep 0.2; done"
    a_definition(batch, "train", "sh", "-c", listens, gpus=1)
    job = batch.submit_job(jobName="train", jobQueue="q", jobDefinition="train")["jobId"]
    windfall.wait_for([job], "RUNNING")
    [held] = [gpu_id for gpu_id, gpu in gpus(windfall).items() if gpu["heldBy"] == job]
    other = "GPU-two" if held == "GPU-one" else "GPU-one"
    rack.now(held, xids=(79,), recovery="reset")

    def moved() -> bool:
        return gpus(windfall)[other]["heldBy"] == job

    wait_until(moved, "the job to be on the other GPU")
    windfall.wait_for([job], "RUNNING")
    sick = gpus(windfall)[held]
    assert (sick["health"], sick["heldBy"]) == ("fenced", None)
    assert "XID 79" in sick["fence"]
    page = windfall.windfall("gpus").stdout
    assert "fenced" in page
    assert f"windfall gpus unfence {held}" in page
    [described] = batch.describe_jobs(jobs=[job])["jobs"]
    assert len(described["attempts"]) == 1, "one try is over, the other runs"
    assert "XID 79" in windfall.windfall("describe", job).stdout
    # It waits for the sick one, and starts when that is well.
    second = batch.submit_job(jobName="second", jobQueue="q", jobDefinition="train")["jobId"]
    wait_until(lambda: "fenced" in windfall.windfall("why", second).stdout, "why to say what it waits for")
    rack.now(held, recovery="none")
    windfall.wait_for([second], "RUNNING")
    wait_for_health(windfall, "well", "well")
    for one in (job, second):
        batch.terminate_job(jobId=one, reason="seen enough")


def test_a_program_that_its_gpu_kills_is_not_at_fault(fresh: Start, tmp_path: Path):
    # Slow to tell: the program is dead before anybody knows why.
    rack = Rack(tmp_path / "gpus.json", "GPU-one", "GPU-two", every_s=2.0)
    windfall = up(fresh, rack)
    batch = a_queue(windfall)
    a_definition(batch, "victim", "sh", "-c", "while :; do sleep 0.2; done", gpus=1)
    job = batch.submit_job(jobName="victim", jobQueue="q", jobDefinition="victim")["jobId"]
    windfall.wait_for([job], "RUNNING")
    [held] = [gpu_id for gpu_id, gpu in gpus(windfall).items() if gpu["heldBy"] == job]
    rack.now(held, xids=(48,))
    kill_the_process_of(windfall, job)

    def has_moved() -> bool:
        return any(gpu["heldBy"] == job for gpu_id, gpu in gpus(windfall).items() if gpu_id != held)

    wait_until(has_moved, "the job to be on the other GPU")
    batch.terminate_job(jobId=job, reason="seen enough")


def kill_the_process_of(windfall: RunningWindfall, job: str) -> None:
    """As a device does that takes its program along."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"AWS_BATCH_JOB_ID={job}".encode() in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue


def test_a_gpu_that_falls_off_the_bus_takes_its_job_at_once(fresh: Start, rack: Rack):
    windfall = up(fresh, rack)
    batch = a_queue(windfall)
    # Deaf to every request: only the end of the notice moves it.
    a_definition(batch, "deaf", "sh", "-c", "trap '' TERM; while :; do sleep 0.2; done", gpus=1)
    job = batch.submit_job(jobName="deaf", jobQueue="q", jobDefinition="deaf")["jobId"]
    windfall.wait_for([job], "RUNNING")
    [held] = [gpu_id for gpu_id, gpu in gpus(windfall).items() if gpu["heldBy"] == job]
    rack.write(held)
    wait_until(lambda: gpus(windfall)[held]["health"] == "lost", "it to be lost")
    wait_until(
        lambda: any(gpu["heldBy"] == job for gpu_id, gpu in gpus(windfall).items() if gpu_id != held),
        "the job to be on the other GPU",
    )
    batch.terminate_job(jobId=job, reason="seen enough")
    windfall.wait_for([job], "FAILED")


def test_a_fence_by_hand_outlives_the_daemon_and_its_agent(fresh: Start, rack: Rack):
    windfall = up(fresh, rack)
    batch = a_queue(windfall)
    a_definition(batch, "where", "sh", "-c", 'echo "on $CUDA_VISIBLE_DEVICES"', gpus=1)
    done = windfall.windfall("gpus", "fence", "one", "--reason", "new fan on Monday")
    assert done.stdout == "GPU-one gets no new job\n"
    windfall.kill_daemon()
    windfall.kill_agent()
    windfall.up()
    wait_for_health(windfall, "fenced", "well")
    page = windfall.windfall("gpus").stdout
    assert "fenced by hand: new fan on Monday" in page
    batch = windfall.client("batch")
    jobs = [
        batch.submit_job(jobName=f"job{n}", jobQueue="q", jobDefinition="where")["jobId"] for n in range(3)
    ]
    windfall.wait_for(jobs, "SUCCEEDED")
    assert [windfall.windfall("logs", job).stdout for job in jobs] == ["on GPU-two\n"] * 3
    both = a_definition(batch, "both", "true", gpus=2)
    wide = batch.submit_job(jobName="wide", jobQueue="q", jobDefinition=both)["jobId"]
    wait_until(lambda: "new fan on Monday" in windfall.windfall("why", wide).stdout, "why to name the fence")
    assert windfall.windfall("gpus", "unfence", "GPU-one").stdout == "GPU-one gets new jobs again\n"
    windfall.wait_for([wide], "SUCCEEDED")


def test_two_jobs_share_a_gpu_and_each_knows_its_part(fresh: Start, tmp_path: Path):
    windfall = up(fresh, Rack(tmp_path / "gpus.json", "GPU-one"))
    batch = a_queue(windfall)
    says = "echo $WINDFALL_GPU_SHARE $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
    a_definition(batch, "part", "sh", "-c", f"{says}; exec sleep 600", gpus=1)
    jobs = [
        batch.submit_job(
            jobName="part", jobQueue="q", jobDefinition="part", tags={"windfall:gpu-share": share}
        )["jobId"]
        for share in ("0.5", "0.25")
    ]
    windfall.wait_for(jobs, "RUNNING")
    holders = {one["jobId"]: one["share"] for one in gpus(windfall)["GPU-one"]["holders"]}
    assert holders == {jobs[0]: 0.5, jobs[1]: 0.25}

    def log(job: str) -> str:
        return windfall.windfall("logs", job).stdout

    wait_until(lambda: all(log(job) for job in jobs), "both to have spoken")
    assert [log(job) for job in jobs] == ["0.5 50 0=40779M\n", "0.25 25 0=20389M\n"]
    for job in jobs:
        batch.terminate_job(jobId=job, reason="seen enough")


def test_what_is_wrong_is_said_in_one_line(fresh: Start, rack: Rack):
    windfall = up(fresh, rack)
    for arguments, words in (
        (("fence", "nothing", "--reason", "x"), "no GPU has an id that begins with 'nothing'"),
        (("unfence", "GPU-"), "more than one GPU begins with 'GPU-'"),
        (("fence", "one", "--reason", " "), "line of 1 to 200 characters"),
    ):
        done = windfall.windfall("gpus", *arguments, check=False)
        assert done.returncode == 1
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
    done = windfall.windfall("gpus", "--record", "/nowhere/gpus.json", check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("windfall: ")
