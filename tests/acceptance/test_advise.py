"""`windfall advise` and `windfall why` over real jobs: sampled, profiled, failed. Only the GPUs are recorded."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.tidy.tree import ROOT
from tests.waiting import wait_until

GPU = {
    "id": "GPU-recorded",
    "name": "NVIDIA H200",
    "memory_mib": 143771,
    "power_limit_w": 700,
    "meter": {"busy": 0.08, "memory_bytes": 4e9, "power_w": 130, "sm_active": 0.07, "memory_active": 0.02},
}
OUT_OF_MEMORY = r"""
cat >&2 <<END
Traceback (most recent call last):
  File "train.py", line 41, in <module>
    loss = model(batch).sum()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.
END
"""
WAITS = """
import time
from windfall.checkpoint import StepClock

def slow():
    while True:
        time.sleep(0.09)
        yield 1

for _ in StepClock().batches(slow()):
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def sampled(tmp_path_factory) -> Iterator[RunningWindfall]:
    """A daemon whose one GPU is recorded, and which samples five times a second."""
    devices = tmp_path_factory.mktemp("gpus") / "gpus.json"
    devices.write_text(json.dumps({"gpus": [GPU]}))
    options = (
        "--vcpus",
        "4",
        "--memory-mib",
        "4096",
        "--gpus",
        f"recorded:{devices}",
        "--job-user",
        getpass.getuser(),
    )
    running = RunningWindfall(*options)
    running.extra_environment = {"WINDFALL_SAMPLE_EVERY_S": "0.2"}
    try:
        yield running.up()
    finally:
        running.close()


@pytest.fixture(scope="module")
def queue(sampled) -> None:
    a_queue(sampled)


@pytest.fixture
def batch(sampled, queue) -> Any:
    """A client of the daemon where it is now: one of the tests starts it again."""
    return sampled.client("batch")


def advice_for(sampled: RunningWindfall, job: str) -> dict[str, Any]:
    [row] = json.loads(sampled.windfall("advise", job, "--json").stdout)["jobs"]
    return dict(row)


def ended(sampled: RunningWindfall, batch: Any, name: str, *command: str, **more: Any) -> str:
    a_definition(batch, name, *command, **more)
    job_id = batch.submit_job(jobName=name, jobQueue="q", jobDefinition=name)["jobId"]
    sampled.wait_for([job_id])
    return str(job_id)


def test_a_job_that_holds_a_gpu_and_does_little_is_told_so(sampled, batch):
    a_definition(batch, "server", "sleep", "120", gpus=1)
    job_id = batch.submit_job(jobName="server", jobQueue="q", jobDefinition="server")["jobId"]
    wait_until(lambda: advice_for(sampled, "server")["cause"] is not None, "samples")
    row = advice_for(sampled, "server")
    assert row["cause"] == "waiting-for-requests"
    assert row["busy"] == pytest.approx(0.08, abs=0.01)
    assert row["wastedGpuHours"] == pytest.approx(row["gpuHours"] * 0.92, rel=0.02)
    assert any("windfall:gpu-share" in advice["text"] for advice in row["advice"])
    told = sampled.windfall("advise", "server").stdout
    assert "waiting-for-requests" in told
    assert "the host rests too" in told
    assert "what would not help" in told
    batch.terminate_job(jobId=job_id, reason="seen")
    sampled.wait_for([job_id])


def test_a_loop_that_says_how_long_it_waits_is_believed(sampled, batch):
    environment = [{"name": "PYTHONPATH", "value": str(Path(ROOT) / "src")}]
    a_definition(batch, "waits", sys.executable, "-c", WAITS, gpus=1, container={"environment": environment})
    tags = {"windfall:profile": "true"}
    job_id = batch.submit_job(jobName="waits", jobQueue="q", jobDefinition="waits", tags=tags)["jobId"]

    def told() -> bool:
        return "its own loop says that it waits for data in" in " ".join(
            advice_for(sampled, "waits")["evidence"]
        )

    wait_until(told, "the job's own word in its samples")
    batch.terminate_job(jobId=job_id, reason="seen")
    sampled.wait_for([job_id])


def test_all_jobs_are_ranked_and_those_without_samples_say_why(sampled, batch):
    ended(sampled, batch, "short", "true", gpus=1)
    # One job would be shown at length and not as a table.
    ended(sampled, batch, "short-too", "true", gpus=1)
    ended(sampled, batch, "no-gpu", "true")
    rows = json.loads(sampled.windfall("advise", "--all", "--json").stdout)["jobs"]
    by_name = {row["jobName"]: row for row in rows}
    assert "no-gpu" not in by_name
    assert "too short" in by_name["short"]["note"]
    assert [row["wastedGpuHours"] or 0 for row in rows] == sorted(
        (row["wastedGpuHours"] or 0 for row in rows), reverse=True
    )
    assert "uses no GPU" in advice_for(sampled, "no-gpu")["note"]
    assert "WASTED" in sampled.windfall("advise", "--all").stdout


def test_wrong_use_is_one_line(sampled):
    neither = sampled.windfall("advise", check=False)
    both = sampled.windfall("advise", "x", "--all", check=False)
    for refused in (neither, both):
        assert refused.returncode == 2
        assert "name a JOB, or ask for --all" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_why_tells_what_a_failed_job_died_of_and_what_to_do(sampled, batch):
    oom = ended(sampled, batch, "oom", "bash", "-c", OUT_OF_MEMORY + "exit 1")
    told = sampled.windfall("why", oom).stdout
    assert "gpu-out-of-memory: torch.OutOfMemoryError: CUDA out of memory." in told
    assert "windfall:on-gpu-oom=larger" in told
    missing = ended(sampled, batch, "missing", "python3", "-c", "import no_such_module_here")
    told = sampled.windfall("why", missing).stdout
    assert "missing-module: ModuleNotFoundError" in told
    assert "the module no_such_module_here is not there" in told


def test_why_counts_shared_memory_from_what_the_definition_gave(sampled, batch):
    small = ended(
        sampled,
        batch,
        "small-shm",
        "bash",
        "-c",
        "echo 'RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.' >&2; exit 1",
        container={"linuxParameters": {"sharedMemorySize": 3072}},
    )
    told = sampled.windfall("why", small).stdout
    assert "shared-memory-too-small: RuntimeError: DataLoader worker" in told
    assert "6,144 MiB or more; it has 3,072 MiB" in " ".join(told.split())


def test_an_error_that_the_job_survived_is_not_blamed(sampled, batch):
    survived = ended(
        sampled,
        batch,
        "survived",
        "bash",
        "-c",
        OUT_OF_MEMORY + "echo step 12 loss 2.1; echo the sums differ; exit 3",
    )
    told = sampled.windfall("why", survived).stdout
    assert "gpu-out-of-memory" not in told
    assert f"windfall logs {survived}" in told


def test_a_diagnosis_outlives_the_daemon(sampled, batch):
    full = ended(
        sampled, batch, "full", "bash", "-c", "echo 'OSError: [Errno 28] No space left on device' >&2; exit 1"
    )
    before = json.loads(sampled.windfall("why", full, "--json").stdout)
    sampled.kill_daemon()
    sampled.up()
    assert json.loads(sampled.windfall("why", full, "--json").stdout) == before
    assert {"code": "disk-full", "text": "disk-full: OSError: [Errno 28] No space left on device"} in before[
        "reasons"
    ]
