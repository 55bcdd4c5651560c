"""How a loop's waiting and working are told apart, with clocks of the loop's own making."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

import windfall.checkpoint as ckpt
from tests.tidy.tree import ROOT
from tests.waiting import wait_until
from windfall.agent.courier.progress import parse_progress
from windfall.checkpoint import StepClock


class Spinning:
    """A loader that takes its time, without sleeping."""

    def __init__(self, batches: int, each_s: float) -> None:
        self.batches = batches
        self.each_s = each_s
        self.dataset = "the data"

    def __len__(self) -> int:
        return self.batches

    def __iter__(self):
        for number in range(self.batches):
            spin(self.each_s)
            yield number


def spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def test_waiting_and_working_are_added_up_apart():
    clock = StepClock()
    for number, batch in enumerate(clock.batches(Spinning(5, 0.004))):
        assert batch == number
        spin(0.002)
    assert clock.steps == 5
    assert clock.data_wait_s >= 5 * 0.004
    assert clock.step_s >= 5 * 0.002


def test_two_epochs_are_one_story_and_a_break_loses_only_its_own_step():
    clock = StepClock()
    for _ in range(2):
        for number in clock.batches(range(4)):
            if number == 2:
                break
    assert clock.steps == 4
    assert clock.first_step_at is not None


def test_what_a_loader_has_beside_its_batches_stays():
    timed = StepClock().batches(Spinning(7, 0.0))
    assert len(timed) == 7
    assert timed.dataset == "the data"
    with pytest.raises(TypeError, match="generator has no length"):
        len(StepClock().batches(number for number in range(3)))


def test_without_a_progress_file_nothing_is_written_and_no_thread_runs(monkeypatch):
    monkeypatch.delenv("WINDFALL_PROGRESS_FILE", raising=False)
    clock = StepClock()
    assert list(clock.batches([1, 2])) == [1, 2]
    assert clock._thread is None


def test_the_file_is_what_the_agent_reads(tmp_path):
    file = tmp_path / "progress.json"
    clock = StepClock(file)
    assert list(clock.batches(Spinning(3, 0.001))) == [0, 1, 2]
    clock.close()
    read = parse_progress(file.read_bytes())
    assert read is not None
    assert read.step == 3
    assert read.data_wait_s is not None
    assert read.data_wait_s >= 0.003
    assert read.step_s is not None


def test_a_run_tells_it_with_its_own_progress(tmp_path, monkeypatch):
    file = tmp_path / "progress.json"
    monkeypatch.setenv("WINDFALL_PROGRESS_FILE", str(file))
    run = ckpt.open(tmp_path / "checkpoints", every=10**9)
    assert run.resume() == 0
    for step, _ in enumerate(run.batches(Spinning(4, 0.001)), start=1):
        run.step(step)
    run.done(save=False)
    told = json.loads(file.read_text())
    assert told["step"] == 4
    assert told["data_wait_s"] >= 0.004


def test_a_real_program_tells_it_while_it_runs(tmp_path):
    """By the environment variable alone, as in a job with windfall:profile=true; killed, it has told what it could."""
    program = (
        "import itertools\nfrom windfall.checkpoint import StepClock\n"
        "for _ in StepClock().batches(itertools.count()):\n    pass\n"
    )
    file = tmp_path / "progress.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "WINDFALL_PROGRESS_FILE": str(file)}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment)
    try:
        wait_until(file.exists, "the progress file")
    finally:
        process.kill()
        process.wait()
    told = json.loads(file.read_text())
    assert told["step"] > 0
    assert told["data_wait_s"] > 0
