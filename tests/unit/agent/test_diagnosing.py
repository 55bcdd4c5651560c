"""What the agent reads of a failed attempt's log, and whose end it leaves alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from windfall.advisor.failures import TAIL_BYTES
from windfall.agent.attempt import Attempt
from windfall.agent.diagnosing import diagnosed, log_tail
from windfall.agent.journal import Intended, Story
from windfall.agent.messages import Exited
from windfall.jobs.diagnosis import FailureCause

FULL = "OSError: [Errno 28] No space left on device\n"


def an_attempt(log: Path) -> Attempt:
    return Attempt(Story(Intended("a#1", "a", str(log), [], 64, 1.0, sandboxed=False, at=1)), None)


def ended(log: Path, code: int = 1, *, stopped: bool = False) -> Exited:
    attempt = an_attempt(log)
    attempt.grace_s = 10.0 if stopped else None
    return diagnosed(attempt, Exited("a#1", code, None, 1, 2, "process"))


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
