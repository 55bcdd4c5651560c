"""What tests share keeps its promises: a missing part fails in CI, and waiting ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import daemon_logs
from tests.conftest import require_part
from tests.flaky.__main__ import slices
from tests.waiting import wait_until


def test_a_present_part_lets_the_test_go_on(require):
    assert require is require_part
    require(True, "never read")


def test_a_missing_part_skips_at_home_and_fails_in_ci(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no bubblewrap"):
        require_part(False, "no bubblewrap")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI must have every part, but: no bubblewrap"):
        require_part(False, "no bubblewrap")


def test_no_aws_account_is_in_reach():
    assert os.environ["AWS_CONFIG_FILE"] == os.devnull
    assert "AWS_ACCESS_KEY_ID" not in os.environ


def test_waiting_returns_the_first_true_answer():
    answers = iter([None, 0, "ready"])
    assert wait_until(lambda: next(answers), "an answer", interval_s=0) == "ready"


def test_waiting_gives_up_and_says_for_what():
    with pytest.raises(AssertionError, match="in vain for: the moon"):
        wait_until(lambda: None, "the moon", deadline_s=0)


def test_the_logs_of_a_tests_daemons_are_kept_until_it_is_over(tmp_path: Path):
    (tmp_path / "daemon.log").write_text("listening\n")
    (tmp_path / "data" / "agent").mkdir(parents=True)
    (tmp_path / "data" / "agent" / "agent.log").write_text("x" * daemon_logs.SHOWN + "the end\n")
    daemon_logs.begin_test()
    daemon_logs.watch(tmp_path)
    try:
        running = daemon_logs.ends_of_logs()
    finally:
        daemon_logs.closing(tmp_path)
    assert [text[-10:] for _, text in running[-2:]] == ["listening\n", "xxthe end\n"]
    assert all(len(text) <= daemon_logs.SHOWN for _, text in running)
    assert daemon_logs.ends_of_logs()[:2] == running[-2:]
    daemon_logs.begin_test()
    assert not any(str(tmp_path.name) in name for name, _ in daemon_logs.ends_of_logs())


def test_a_round_runs_every_file_once_in_an_order_of_its_own():
    files = [f"test_{number}.py" for number in range(20)]
    first, again, second = (list(slices(files, seed, 6)) for seed in (1, 1, 2))
    assert first == again != second
    assert sorted(file for part in first for file in part) == sorted(files)
    assert [len(part) for part in first] == [6, 6, 6, 2]
