"""What tests share keeps its promises: a missing part fails in CI, and waiting ends."""

from __future__ import annotations

import os

import pytest

from tests.conftest import require_part
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
