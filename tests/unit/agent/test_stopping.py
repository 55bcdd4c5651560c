"""When signals are due to an attempt that has notice."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.unit.agent.stories import attempt_of, story_of
from windfall.agent.processes import catches
from windfall.agent.records import Intended, Noticed, Spawned
from windfall.agent.stopping import Stops, plan_notice


@pytest.mark.parametrize(
    ("window_s", "staged", "last_call_s", "kill_s"),
    [
        (120, True, 95, 100),
        (120, False, 115, 120),
        (10, True, 7, 8),
        (5, False, 4.5, 5),
        (600, True, 575, 580),
    ],
)
def test_the_notice_is_divided(window_s: float, staged: bool, last_call_s: float, kill_s: float):
    plan = plan_notice(Noticed("t", 1_000, 1_000 + int(window_s * 1000), ""), staged=staged)
    assert plan == (1_000 + last_call_s * 1000, 1_000 + kill_s * 1000)


def test_a_deadline_in_the_past_is_now():
    assert plan_notice(Noticed("t", 5_000, 1_000, ""), staged=True) == (1_000, 1_000)


def test_shortly_before_the_end_everybody_is_asked_to_leave_and_nobody_killed_yet(tmp_path: Path):
    with subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True) as process:
        now = time.time_ns() // 1_000_000
        own = Intended("a", "a", str(tmp_path / "a.log"), [], 1, 1.0, False, now)
        # An hour's notice that ends in four seconds: the last five are those of the last call.
        noticed = Noticed("a", now - 3_600_000, now + 4_000, "")
        story = story_of(own, Spawned("a", process.pid, 0, now, "process"), noticed)
        stops = Stops(lambda *_: None)
        stops.interrupt(attempt_of(story))
        stops.press()
        assert process.wait() == -signal.SIGTERM


def test_who_catches_a_signal_is_known_to_the_kernel():
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        assert catches(os.getpid(), signal.SIGUSR2)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        assert not catches(os.getpid(), signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert not catches(1 << 30, signal.SIGTERM)
