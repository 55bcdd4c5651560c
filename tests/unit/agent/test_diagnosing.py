"""What the agent reads of a failed attempt's log, and whose end it leaves alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.agent.stories import attempt_of
from windfall.advisor.failures import TAIL_BYTES
from windfall.agent.attempt import Attempt
from windfall.agent.credentials import JobUser
from windfall.agent.diagnosing import diagnosed, log_tail
from windfall.agent.gpus import GpuDevice
from windfall.agent.machine import Machine
from windfall.agent.messages import Exited
from windfall.agent.records import Intended
from windfall.agent.settings import AgentSettings
from windfall.agent.stages import Story
from windfall.jobs.diagnosis import FailureCause

FULL = "OSError: [Errno 28] No space left on device\n"


def an_attempt(log: Path, *gpu_ids: str) -> Attempt:
    intended = Intended("a#1", "a", str(log), [], 64, 1.0, sandboxed=False, at=1, gpu_ids=list(gpu_ids))
    return attempt_of(Story(intended))


def a_machine(log: Path, kernel_log: object = None) -> Machine:
    settings = AgentSettings(str(log.parent / "agent"), str(log.parent))
    user = JobUser("me", os.geteuid() or 1000, os.getegid(), (), drop=False)
    gpus = [
        GpuDevice("GPU-a", "H200", bus_id="0:3b:00.0"),
        GpuDevice("GPU-b", "H200", bus_id="0:5e:00.0"),
        GpuDevice("GPU-s", "Simulated GPU", simulated=True),
    ]
    return Machine(settings, 2.0, 1024, gpus, user, None, None, [], kernel_log=kernel_log)  # type: ignore[arg-type] # a fake


def ended(log: Path, code: int = 1, *, stopped: bool = False) -> Exited:
    attempt = an_attempt(log)
    attempt.grace_s = 10.0 if stopped else None
    return diagnosed(attempt, Exited("a#1", code, None, 1, 2, "process"), a_machine(log))


class FakeKernelLog:
    """Tells one Xid of whatever is asked about, and remembers what that was."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], int]] = []

    def device_errors(self, bus_ids: list[str], since_at: int) -> list[str]:
        self.asked.append((list(bus_ids), since_at))
        return ["NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."]


def test_a_failed_attempt_gets_its_cause(tmp_path):
    (tmp_path / "a.log").write_text("begun\n" + FULL)
    found = ended(tmp_path / "a.log").diagnosis
    assert found is not None
    assert found.cause is FailureCause.DISK_FULL
    assert found.evidence == FULL.strip()


def test_an_attempt_that_was_told_to_stop_and_one_that_succeeded_have_none(tmp_path):
    (tmp_path / "a.log").write_text(FULL)
    assert ended(tmp_path / "a.log", stopped=True).diagnosis is None
    assert ended(tmp_path / "a.log", 0).diagnosis is None


def test_only_the_end_of_a_long_log_is_read(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(FULL + "nothing of note\n" * 20_000 + "the last line")
    lines = log_tail(str(log))
    assert sum(len(line) + 1 for line in lines) <= TAIL_BYTES + 1
    assert lines[-1] == "the last line"
    assert ended(log).diagnosis is None


def test_progress_bars_and_bytes_that_are_no_text_do_not_disturb(tmp_path):
    (tmp_path / "a.log").write_bytes(b" 10%|#  |\r 90%|###|\rdone \xff\xfe\n" + FULL.encode())
    assert log_tail(str(tmp_path / "a.log"))[-1] == FULL.strip()
    assert ended(tmp_path / "a.log").diagnosis is not None


def test_a_log_that_is_gone_or_is_no_file_has_nothing_to_say(tmp_path):
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "link.log").symlink_to("/etc/hostname")
    for name in ("gone.log", "pipe.log", "link.log"):
        assert log_tail(str(tmp_path / name)) == []


@pytest.mark.parametrize("content", [b"", b"no samples"])
def test_a_kill_whose_samples_cannot_be_read_stays_unexplained(tmp_path, content):
    (tmp_path / "a.log").write_text("step 1\n")
    (tmp_path / "a.samples").write_bytes(content)
    assert ended(tmp_path / "a.log", 137).diagnosis is None


def test_a_failure_that_its_log_does_not_explain_is_the_gpus_where_the_kernel_says_so(tmp_path):
    log, kernel = tmp_path / "a.log", FakeKernelLog()
    log.write_text("step 1\n")
    result = diagnosed(
        an_attempt(log, "GPU-a"), Exited("a#1", 1, None, 1, 2, "process"), a_machine(log, kernel)
    )
    assert result.diagnosis is not None
    assert result.diagnosis.cause is FailureCause.GPU_FAULT
    assert "79, GPU has fallen off the bus" in result.diagnosis.evidence
    assert kernel.asked == [(["0:3b:00.0"], 1)]


def test_the_kernel_is_not_asked_about_those_that_succeeded_or_held_no_real_gpu(tmp_path):
    log, kernel = tmp_path / "a.log", FakeKernelLog()
    machine = a_machine(log, kernel)
    for code, gpus in ((0, ["GPU-a"]), (1, []), (1, ["GPU-s"])):
        assert (
            diagnosed(an_attempt(log, *gpus), Exited("a#1", code, None, 1, 2, ""), machine).diagnosis is None
        )
    assert kernel.asked == []
