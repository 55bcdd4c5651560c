"""What a real daemon with recorded GPUs shows of real jobs: `windfall top`, `windfall metrics`, and after a kill -9."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.acceptance.containers import a_boxed_definition, submitted, with_engine
from tests.acceptance.daemon import WINDFALL, RunningWindfall, a_queue
from tests.waiting import wait_until

GPUS = {
    "gpus": [
        {
            "id": "GPU-00000000-0000-0000-0000-000000000001",
            "name": "NVIDIA H200",
            "memory_mib": 143_771,
            "power_limit_w": 700,
            "meter": {"busy": [0.9, 0.8], "memory_bytes": 9e10, "power_w": 612, "temperature_c": 61},
        },
        {
            "id": "GPU-00000000-0000-0000-0000-000000000002",
            "name": "NVIDIA H200",
            "memory_mib": 143_771,
            "meter": {"busy": 0.0, "memory_bytes": 5e8, "power_w": 75, "temperature_c": 31},
        },
    ]
}
#: Holds 32 MiB and keeps a core busy, politely.
TRAIN = "import time; held = bytearray(32 << 20)\nwhile True: sum(range(200000)); time.sleep(0.01)"


@pytest.fixture(scope="module")
def windfall() -> Iterator[RunningWindfall]:
    running = RunningWindfall()
    recorded = running.root / "gpus.json"
    recorded.write_text(json.dumps(GPUS))
    running.options = ("--vcpus", "8", "--memory-mib", "8192", "--gpus", f"recorded:{recorded}")
    running.extra_environment = {"WINDFALL_RUNTIME": "process", "WINDFALL_SAMPLE_EVERY_S": "0.5"}
    try:
        yield running.up()
    finally:
        running.close()


@pytest.fixture(scope="module")
def job(windfall) -> str:
    """A job with a GPU that has been sampled a few times; no test ends it."""
    return a_sampled_job(windfall, "train")


def a_sampled_job(windfall: RunningWindfall, name: str) -> str:
    started = windfall.windfall(
        "run", "--detach", "--gpus", "1", "--name", name, "--", "python3", "-c", TRAIN
    )
    job_id = started.stdout.strip()
    wait_until(lambda: len(samples(windfall, job_id)) >= 4, "four samples of the job", interval_s=0.2)
    return job_id


def samples(windfall: RunningWindfall, job_id: str) -> list[dict]:
    return json.loads(windfall.windfall("metrics", job_id, "--json").stdout)["samples"]


def test_samples_tell_what_the_job_uses(windfall, job):
    last = samples(windfall, job)[-1]
    assert last["cpuCores"] > 0
    assert 32 << 20 <= last["memoryBytes"] < 1 << 30
    # A sandbox has two of its own.
    assert last["processes"] in (1, 3)
    assert last["gpus"][0]["busy"] in (0.9, 0.8)
    assert last["gpus"][0]["powerW"] == 612
    assert last["gpus"][0]["smActive"] is None


def test_top_shows_host_gpus_and_jobs_within_the_width(windfall, job):
    windfall.extra_environment["COLUMNS"] = "80"
    try:
        lines = windfall.windfall("top", "--once").stdout.splitlines()
    finally:
        del windfall.extra_environment["COLUMNS"]
    assert lines[0].startswith("windfall  1 running, 0 waiting")
    assert max(len(line) for line in lines) <= 80
    first, second = (next(line for line in lines if line.startswith(f"GPU {n}")) for n in (0, 1))
    assert "612 W" in first
    assert first.endswith("train")
    assert second.endswith("free")
    row = next(line for line in lines if line.startswith(job[:8]))
    assert "83.8 GiB" in row


def test_top_answers_programs_too(windfall, job):
    answer = json.loads(windfall.windfall("top", "--json").stdout)
    assert [gpu["heldBy"] for gpu in answer["gpus"]] == [[job], []]
    (shown,) = answer["jobs"]
    assert (shown["jobId"], shown["jobName"], shown["attempt"]) == (job, "train", 1)
    assert answer["host"]["sample"]["memoryBytes"] > 0


def test_the_live_screen_is_drawn_again_and_left_with_q(windfall, job):
    leader, follower = pty.openpty()
    environment = {**os.environ, **windfall.extra_environment, "WINDFALL_DATA": str(windfall.data)}
    environment |= {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(
        [*WINDFALL, "top", "--interval", "0.5"], stdin=follower, stdout=follower, env=environment, cwd="/"
    )
    os.close(follower)
    seen = bytearray()

    def drawn() -> int:
        while select.select([leader], [], [], 0)[0]:
            seen.extend(os.read(leader, 65_536))
        return seen.count(b"NVIDIA H200"[7:])

    try:
        wait_until(lambda: drawn() >= 6, "the screen to be drawn three times")
        os.write(leader, b"q")
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    assert b"\x1b[?1049h" in seen


def test_metrics_are_plotted_with_their_figures(windfall, job):
    page = windfall.windfall("metrics", "train").stdout
    assert page.startswith(f"train  RUNNING  attempt 1  {job}")
    for title in ("GPU use", "GPU memory", "GPU power", "CPU", "memory", "disk"):
        assert f"\n{title} " in page
    assert "max 90 %" in page
    assert "min 83.8 GiB" in page


def test_metrics_as_csv_have_one_line_for_each_sample(windfall, job):
    rows = list(csv.DictReader(io.StringIO(windfall.windfall("metrics", job, "--csv").stdout)))
    assert len(rows) >= 4
    assert float(rows[0]["cpuCores"]) > 0
    assert float(rows[-1]["gpu0.powerW"]) == 612


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["metrics", "train", "--csv", "--json"], "choose one"),
        (["metrics", "train", "--attempt", "7"], "has no attempt 7"),
        (["metrics", "nobody"], "there is no job 'nobody'"),
        (["metrics", "train", "--since", "soon"], "is not a time span"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line(windfall, job, arguments, words):
    refused = windfall.windfall(*arguments, check=False)
    assert refused.returncode in (1, 2)
    assert words in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_job_that_was_too_short_says_so(windfall):
    windfall.windfall("run", "--name", "short", "--", "true")
    refused = windfall.windfall("metrics", "short", check=False)
    assert refused.returncode == 1
    assert "too short for a sample" in refused.stderr


def test_a_job_goes_on_being_sampled_when_its_agent_was_killed(windfall, job):
    before = samples(windfall, job)
    windfall.kill_agent()
    after = wait_until(
        lambda: (now := samples(windfall, job)) and len(now) > len(before) + 2 and now,
        "samples by the next agent",
        interval_s=0.3,
    )
    assert after[: len(before)] == before
    assert [sample["at"] for sample in after] == sorted({sample["at"] for sample in after})
    assert max(sample["cpuCores"] for sample in after) < 64


def test_the_samples_of_an_ended_job_stay(windfall):
    job = a_sampled_job(windfall, "ends")
    windfall.windfall("terminate", job, "--reason", "enough")
    windfall.wait_for([job])
    kept = json.loads(windfall.windfall("metrics", job, "--json").stdout)
    assert (kept["state"], kept["attempt"]) == ("FAILED", 1)
    assert len(kept["samples"]) >= 4
    ended_at = kept["stoppedAt"]
    assert all(sample["at"] <= ended_at + 1_000 for sample in kept["samples"])
    assert time.time_ns() // 1_000_000 >= ended_at


def test_without_sampling_top_and_metrics_say_so():
    running = RunningWindfall("--vcpus", "2", "--memory-mib", "4096", "--gpus", "none")
    running.extra_environment = {"WINDFALL_RUNTIME": "process", "WINDFALL_SAMPLE_EVERY_S": "0"}
    try:
        running.up()
        started = running.windfall("run", "--detach", "--name", "quiet", "--", "sleep", "600")
        running.wait_for([started.stdout.strip()], "RUNNING")
        assert "sampling is off" in running.windfall("top", "--once").stdout
        assert "sampling is turned off" in running.windfall("metrics", "quiet", check=False).stderr
    finally:
        running.close()


def test_what_runs_in_a_container_is_measured_and_its_keeper_is_not(docker_engine):
    running = with_engine(docker_engine, "--stop-grace-s", "0.2")
    running.extra_environment = {**running.extra_environment, "WINDFALL_SAMPLE_EVERY_S": "0.5"}
    try:
        batch = a_queue(running.up())
        a_boxed_definition(batch, "boxed", "sleep 600 & while true; do true; done")
        job_id = submitted(batch, "boxed")
        running.wait_for([job_id], "RUNNING")

        def sampled() -> list[dict]:
            done = running.windfall("metrics", job_id, "--json", check=False)
            return json.loads(done.stdout)["samples"] if done.returncode == 0 else []

        wait_until(lambda: len(sampled()) >= 3, "samples of the container", interval_s=0.3)
        last = sampled()[-1]
        # The shell and the sleep; a Python of ours would hold more memory than both.
        assert last["processes"] == 2
        assert last["memoryBytes"] < 8 << 20
        assert last["cpuCores"] > 0.05
        # A shell that is the first process of its container hears no SIGTERM.
        batch.terminate_job(jobId=job_id, reason="seen")
        running.wait_for([job_id], "FAILED")
    finally:
        running.close()
