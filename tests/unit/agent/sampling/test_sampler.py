"""Whole rounds over real processes: what they use is found in their files, and short or ended ones cost nothing."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.unit.agent.stories import attempt_of
from tests.waiting import wait_until
from windfall.advisor.samples import GpuSample, SampledGpu
from windfall.agent.attempt import Attempt
from windfall.agent.attempt_files import AttemptDirectory, samples_path
from windfall.agent.gpus import GpuDevice
from windfall.agent.messages import Lost
from windfall.agent.records import Ended, Intended, Spawned
from windfall.agent.sampling.sampler import Sampler
from windfall.agent.settings import AgentSettings
from windfall.agent.stages import Story

#: Holds 64 MiB, computes in a child, writes to its file; then says so and goes on computing.
BUSY = """
import os, sys
held = bytearray(64 << 20)
if os.fork() == 0:
    while os.getppid() != 1:
        sum(range(10000))
    os._exit(0)
with open(sys.argv[1], "wb") as file:
    file.write(os.urandom(4 << 20))
    file.flush()
    os.fsync(file.fileno())
print("ready", flush=True)
while True:
    sum(range(10000))
"""


class Meter:
    """A GPU that is always half busy."""

    def facts(self, gpu: GpuDevice) -> SampledGpu:
        return SampledGpu(gpu.id, gpu.name, gpu.memory_mib, power_limit_w=700.0)

    def read(self, gpu_id: str, *, closely: bool) -> GpuSample:
        return GpuSample(busy=0.5, power_w=100.0 if closely else 50.0)


class Rounds:
    """A sampler whose clock the test moves."""

    def __init__(self, directory, *, gpus=(), machine: bool = True) -> None:
        self.directory = directory
        self.now = time.time_ns() // 1_000_000
        self.attempts: dict[str, Attempt] = {}
        self.gpus = list(gpus)
        settings = AgentSettings(
            str(directory),
            str(directory),
            machine_samples=f"{directory}/machine.samples" if machine else None,
        )
        self.settings = settings
        self.sampler = self.new_sampler()
        self.reader = AttemptDirectory(directory)

    def new_sampler(self) -> Sampler:
        return Sampler(self.settings, self.attempts, self.gpus, 4.0, 1024, lambda: self.now, Meter())

    def runs(self, name: str, pid: int, gpu_ids: tuple[str, ...] = (), age_ms: int = 5_000) -> Attempt:
        log = f"{self.directory}/{name}.log"
        intended = Intended(
            f"{name}#1", name, log, [], 512, 2.0, sandboxed=False, at=0, gpu_ids=list(gpu_ids)
        )
        story = Story(intended)
        story.add(Spawned(f"{name}#1", pid, 0, self.now - age_ms, "process"))
        self.attempts[f"{name}#1"] = attempt_of(story)
        return self.attempts[f"{name}#1"]

    def round(self, after_ms: int = 0) -> None:
        self.now += after_ms
        self.sampler.round()


@pytest.fixture
def rounds(tmp_path) -> Rounds:
    return Rounds(tmp_path)


@pytest.fixture
def busy(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY, str(tmp_path / "out.bin")],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_a_real_attempt_is_measured_from_its_start_on(rounds, busy):
    rounds.runs("t1", busy)
    rounds.round()
    (first,) = rounds.reader.recording("t1").samples
    assert first.span_ms == 5_000
    assert first.processes == 2
    assert 64 << 20 <= first.memory_bytes < 1 << 30
    assert first.cpu_cores > 0
    assert first.write_bytes_s * 5 >= 4 << 20 or math.isnan(first.write_bytes_s)
    assert first.busiest_thread <= first.cpu_cores + 0.01


def test_processor_time_of_a_round_is_what_was_used_in_it(rounds, busy):
    rounds.runs("t1", busy)
    rounds.round()

    def more() -> bool:
        rounds.round(after_ms=1_000)
        return rounds.reader.latest("t1").cpu_cores > 0

    wait_until(more, "a round in which the attempt used a processor")
    assert rounds.reader.recording("t1").samples[-1].span_ms == 1_000


def test_young_and_ended_attempts_are_left_alone(rounds, busy):
    rounds.runs("young", busy, age_ms=1_000)
    ended = rounds.runs("ended", busy)
    ended.story.add(Ended(Lost("ended#1", 1)))
    rounds.round()
    assert rounds.reader.recording("young") is None
    assert rounds.reader.recording("ended") is None
    rounds.round(after_ms=600)
    assert len(rounds.reader.recording("young").samples) == 1


def test_gpus_are_in_the_files_of_those_who_hold_them(tmp_path, busy):
    gpus = [GpuDevice("GPU-1", "NVIDIA H200", 143_771), GpuDevice("GPU-2", "NVIDIA H200", 143_771)]
    rounds = Rounds(tmp_path, gpus=gpus)
    rounds.runs("t1", busy, gpu_ids=("GPU-2",))
    rounds.round()
    rounds.round(after_ms=2_000)
    read = rounds.reader.recording("t1")
    assert read.gpus == (SampledGpu("GPU-2", "NVIDIA H200", 143_771, power_limit_w=700.0),)
    assert [sample.gpus[0].power_w for sample in read.samples] == [100.0, 100.0]
    machine = rounds.reader.recording("machine")
    assert [gpu.id for gpu in machine.gpus] == ["GPU-1", "GPU-2"]
    assert [gpu.power_w for gpu in machine.samples[-1].gpus] == [50.0, 100.0]


def test_the_host_is_measured_slowly_while_nothing_runs(rounds):
    for _ in range(10):
        rounds.round(after_ms=2_000)
    samples = rounds.reader.recording("machine").samples
    assert [sample.span_ms for sample in samples] == [10_000]
    assert samples[0].cpu_cores >= 0


def test_nothing_is_measured_while_nothing_runs_and_nobody_wants_the_host(tmp_path):
    rounds = Rounds(tmp_path, machine=False)
    rounds.round(after_ms=60_000)
    assert list(tmp_path.iterdir()) == []


def test_the_next_agent_goes_on_with_the_file_and_counts_nothing_twice(rounds, busy):
    rounds.runs("t1", busy)
    rounds.round()
    rounds.sampler = rounds.new_sampler()
    rounds.round(after_ms=2_000)
    assert len(rounds.reader.recording("t1").samples) == 1
    rounds.round(after_ms=2_000)
    samples = rounds.reader.recording("t1").samples
    assert [sample.span_ms for sample in samples] == [5_000, 2_000]


def test_a_directory_that_is_gone_costs_the_samples_and_nothing_else(rounds, busy, capfd):
    attempt = rounds.runs("t1", busy)
    attempt.story.intended = Intended("t1#1", "t1", "/nowhere/t1.log", [], 512, 2.0, sandboxed=False, at=0)
    for _ in range(3):
        rounds.round(after_ms=2_000)
    assert capfd.readouterr().err.count("no samples") == 1
    assert rounds.reader.recording("machine") is not None


def test_a_thread_does_the_rounds_and_ends(tmp_path, busy):
    rounds = Rounds(tmp_path)
    rounds.settings = AgentSettings(str(tmp_path), str(tmp_path), sample_every_s=0.05)
    rounds.sampler = rounds.new_sampler()
    rounds.runs("t1", busy)
    rounds.sampler.start()
    try:
        wait_until(lambda: rounds.reader.latest("t1"), "a sample of the attempt")
    finally:
        rounds.sampler.stop()


def test_samples_lie_beside_the_log():
    assert samples_path("/logs/0123abcd.log") == "/logs/0123abcd.samples"
