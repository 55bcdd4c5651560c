"""What is put together for one attempt: which source is believed, and what it says of itself."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.agent.stories import attempt_of
from tests.waiting import wait_until
from windfall.advisor.samples import GpuSample
from windfall.agent.attempt import Attempt
from windfall.agent.messages import Start
from windfall.agent.places import PROGRESS
from windfall.agent.records import Accepted, Hosted, Intended, Spawned
from windfall.agent.sampling.attempt_meter import AttemptMeter, Surroundings, begins_with_it, main_pid
from windfall.agent.sampling.host import HostUsage
from windfall.agent.sampling.proc_files import read_process
from windfall.agent.stages import Story
from windfall.jobs.staging import Staging

HOST = HostUsage(rx_bytes_s=100.0, tx_bytes_s=50.0)


def an_attempt(root, pid: int | None = None) -> Attempt:
    intended = Intended("j#1", "t1", f"{root}/t1.log", [str(root)], 64, 1.0, sandboxed=False, at=0)
    story = Story(intended)
    story.add(Spawned("j#1", pid or os.getpid(), 0, 1, "process"))
    return attempt_of(story)


def around(**more) -> Surroundings:
    known = {
        "at": 2_000,
        "span_ms": 2_000,
        "host": HOST,
        "carried": (600, 40),
        "gpus": (GpuSample(busy=0.5),),
    }
    return Surroundings(**(known | more))


@pytest.fixture
def staged(tmp_path) -> Attempt:
    """An attempt that may tell its progress."""
    attempt = an_attempt(tmp_path)
    attempt.story.add(Accepted(Start("j#1", "t1", [], {}, None, "", 1.0, 64, [], staging=Staging())))
    (tmp_path / PROGRESS).parent.mkdir(parents=True)
    return attempt


def tell(tmp_path, **said) -> None:
    (tmp_path / PROGRESS).write_text(json.dumps({"at": 1, **said}))


def test_connections_the_host_and_the_gpu_are_in_the_sample(tmp_path):
    me = read_process(os.getpid())
    sample = AttemptMeter(an_attempt(tmp_path)).measure([me], around())
    assert (sample.net_rx_bytes_s, sample.net_tx_bytes_s) == (300.0, 20.0)
    assert (sample.host_rx_bytes_s, sample.host_tx_bytes_s) == (100.0, 50.0)
    assert sample.gpus[0].busy == 0.5
    assert sample.memory_bytes == me.resident_bytes
    assert math.isnan(sample.cpu_throttled)
    assert math.isnan(sample.steps)


def test_connections_that_nobody_knows_are_not_known(tmp_path):
    sample = AttemptMeter(an_attempt(tmp_path)).measure([], around(carried=None))
    assert math.isnan(sample.net_rx_bytes_s)


def test_steps_and_waits_are_what_was_added_since_the_last_look(tmp_path, staged):
    meter = AttemptMeter(staged)
    tell(tmp_path, step=100, stall_s=1.0, data_wait_s=3.0)
    assert math.isnan(meter.measure([], around()).steps)
    tell(tmp_path, step=140, stall_s=1.25, data_wait_s=4.5)
    sample = meter.measure([], around())
    assert (sample.steps, sample.stall_s, sample.data_wait_s) == (40.0, 0.25, 1.5)


def test_a_progress_file_that_is_half_written_or_gone_changes_nothing(tmp_path, staged):
    meter = AttemptMeter(staged)
    tell(tmp_path, step=100)
    meter.measure([], around())
    (tmp_path / PROGRESS).write_text('{"at": ')
    assert math.isnan(meter.measure([], around()).steps)
    tell(tmp_path, step=110)
    assert meter.measure([], around()).steps == 10.0


def test_a_pipe_in_place_of_the_progress_file_does_not_stop_anybody(tmp_path, staged):
    os.mkfifo(tmp_path / PROGRESS)
    assert math.isnan(AttemptMeter(staged).measure([], around()).steps)


def test_a_network_of_its_own_is_counted_by_its_own_interfaces(tmp_path, require):
    require(os.geteuid() == 0, "only root can make a network namespace here")
    child = subprocess.Popen(["unshare", "--net", "sleep", "60"])
    try:
        here = Path("/proc/self/ns/net").stat().st_ino
        wait_until(lambda: Path(f"/proc/{child.pid}/ns/net").stat().st_ino != here, "a network of its own")
        meter = AttemptMeter(an_attempt(tmp_path, child.pid))
        assert meter.own_network
        assert meter.measure([], around()).net_rx_bytes_s == 0.0
    finally:
        child.kill()
        child.wait()


def test_a_container_and_a_warm_worker_are_measured_below_their_own_process(tmp_path):
    plain, boxed, warm = an_attempt(tmp_path, 10), an_attempt(tmp_path, 10), an_attempt(tmp_path, 10)
    boxed.container_pid = 77
    warm.story.add(Hosted("j#1", 88, 1, sandboxed=False))
    assert [main_pid(one) for one in (plain, boxed, warm)] == [10, 77, 88]
    assert [begins_with_it(one) for one in (plain, boxed, warm)] == [True, False, False]
