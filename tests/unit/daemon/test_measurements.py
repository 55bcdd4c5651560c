"""What Top and Samples answer: unknown is null, old is nothing, and thinking about causes is rationed."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from windfall.advisor.sample_file import Header
from windfall.advisor.samples import GpuSample, Sample, SampledGpu
from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.sampling.writing import SampleFile
from windfall.aws_api.protocol.errors import ApiError
from windfall.daemon.measurements import CAUSES_AT_ONCE, Monitoring
from windfall.views.measurements import Occupied, running_job

GPU = SampledGpu("GPU-1", "NVIDIA H200", 143_771)


class Loop:
    """A control loop that sees and reads what the test says."""

    def __init__(self) -> None:
        self.jobs: list[SimpleNamespace] = []

    async def inspect(self, _question):
        device = {"id": "GPU-1", "name": "NVIDIA H200", "memoryMib": 1, "heldBy": [], "fence": None}
        running = [running_job(job, job.attempts[-1]) for job in self.jobs]
        return Occupied(4.0, [device], running, len(running), 0)

    async def read(self, _question):
        return self.jobs[:1]


class MonitoringWorld:
    """The handlers over files in a directory, at a time that the test sets."""

    def __init__(self, directory) -> None:
        self.directory, self.now, self.loop = directory, 100_000, Loop()
        self.thought_about: list[str] = []
        self.handlers = Monitoring(self.loop, AttemptDirectory(directory), lambda: self.now, 2.0, self._cause)

    def _cause(self, recording, instance_type) -> str:
        self.thought_about.append(instance_type)
        return f"{len(recording.samples)} samples"

    def runs(self, name: str, at: int | None = 99_000) -> None:
        attempt = SimpleNamespace(
            number=1,
            task_id=name,
            gpu_ids=("GPU-1",),
            started_at=1,
            stopped_at=None,
            exited_at=None,
            doing=None,
            instance_type=name,
        )
        needs = SimpleNamespace(vcpus=1.0, memory_mib=64)
        submission = SimpleNamespace(name=name, queue="q", resources=needs)
        self.loop.jobs.append(
            SimpleNamespace(
                id=name, submission=submission, resources=needs, state="RUNNING", attempts=[attempt]
            )
        )
        if at is not None:
            gpus = (GpuSample(busy=0.51234567),)
            file = SampleFile(f"{self.directory}/{name}.samples", Header(f"{name}#1", 1.0, 64, (GPU,)))
            file.add(Sample(at, 2_000, cpu_cores=0.25, gpus=gpus))

    def ask(self, operation: str, **params):
        answer = asyncio.run(getattr(self.handlers, operation)(SimpleNamespace(params=params)))
        return json.loads(json.dumps(answer, allow_nan=False))


@pytest.fixture
def world(tmp_path) -> MonitoringWorld:
    return MonitoringWorld(tmp_path)


def test_a_running_job_has_its_newest_sample_and_what_limits_it(world):
    world.runs("a")
    (job,) = world.ask("top")["jobs"]
    assert (job["sample"]["cpuCores"], job["sample"]["memoryBytes"]) == (0.25, None)
    assert job["sample"]["gpus"][0]["busy"] == 0.51235
    assert job["cause"] == "1 samples"


def test_a_sample_that_is_old_says_nothing_about_now(world):
    world.runs("old", at=10_000)
    world.runs("none", at=None)
    assert [job["sample"] for job in world.ask("top")["jobs"]] == [None, None]


def test_causes_are_thought_about_now_and_then_and_a_few_at_a_time(world):
    for number in range(CAUSES_AT_ONCE + 2):
        world.runs(f"j{number}")
    world.ask("top")
    assert len(world.thought_about) == CAUSES_AT_ONCE
    world.ask("top")
    assert len(set(world.thought_about)) == CAUSES_AT_ONCE + 2
    world.ask("top")
    assert len(world.thought_about) == CAUSES_AT_ONCE + 2


def test_the_host_is_as_its_file_says(world):
    file = SampleFile(f"{world.directory}/machine.samples", Header("machine", 4.0, 1024, (GPU,)))
    file.add(Sample(99_000, 10_000, cpu_cores=1.5, gpus=(GpuSample(power_w=75.0),)))
    answer = world.ask("top")
    assert answer["host"]["sample"]["cpuCores"] == 1.5
    assert answer["gpus"][0]["sample"]["powerW"] == 75.0
    assert answer["gpus"][0]["sample"]["busy"] is None


def test_samples_since_a_time_are_those_after_it(world):
    world.runs("a", at=99_000)
    assert len(world.ask("samples", jobId="a", sinceAt=98_000)["samples"]) == 1
    assert world.ask("samples", jobId="a", sinceAt=99_000)["samples"] == []


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"jobId": ""},
        {"jobId": "a", "attempt": 0},
        {"jobId": "a", "attempt": True},
        {"jobId": "a", "sinceAt": "x"},
    ],
)
def test_nonsense_is_refused(world, params):
    with pytest.raises(ApiError):
        world.ask("samples", **params)


def test_a_job_or_an_attempt_that_is_not_there_is_not_found(world):
    with pytest.raises(ApiError, match="There is no job"):
        world.ask("samples", jobId="gone")
    world.runs("a")
    with pytest.raises(ApiError, match="has no attempt 2"):
        world.ask("samples", jobId="a", attempt=2)
