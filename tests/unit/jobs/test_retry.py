"""Retry rules as AWS Batch reads them, with the idioms that clients rely on."""

from __future__ import annotations

import pytest

from windfall.jobs.aws_texts import EXITED, FAILED_TO_START, host_lost
from windfall.jobs.ids import InstanceId
from windfall.jobs.retry import Action, ExitRule, RetryStrategy, decide, glob_matches

LOST = host_lost(InstanceId("i-0123"))
PULL = "CannotPullContainerError: no such image"
RETRY, EXIT = Action.RETRY, Action.EXIT
NEXTFLOW = (ExitRule(RETRY, on_status_reason="Host EC2*"), ExitRule(EXIT, on_reason="*"))
CDK_SPOT = (ExitRule(RETRY, on_status_reason="Host EC2*"), ExitRule(EXIT, on_exit_code="*"))
CDK_PULL = (ExitRule(RETRY, on_reason="CannotPullContainerError:*"), ExitRule(EXIT, on_status_reason="*"))
CDK_NON_ZERO = (ExitRule(RETRY, on_exit_code="*"), ExitRule(EXIT, on_reason="*"))
BOTH = (ExitRule(EXIT, on_status_reason="Essential*", on_exit_code="1"),)


@pytest.mark.parametrize(
    ("rules", "status_reason", "reason", "exit_code", "action"),
    [
        ((), EXITED, None, 1, RETRY),  # no rules: any failure is tried again
        (BOTH, EXITED, None, 1, EXIT),  # all given conditions match
        (BOTH, EXITED, None, 2, RETRY),  # one does not, and no match means RETRY
        (BOTH, LOST, None, None, RETRY),
        ((ExitRule(EXIT, on_exit_code="1*"),), EXITED, None, 137, EXIT),  # a prefix of the decimal number
        ((ExitRule(EXIT, on_exit_code="1"),), EXITED, None, 137, RETRY),
        ((ExitRule(EXIT, on_exit_code="137"), ExitRule(RETRY)), EXITED, None, 137, EXIT),  # the first decides
        ((ExitRule(RETRY), ExitRule(EXIT)), EXITED, None, 137, RETRY),
        ((ExitRule(EXIT, on_reason="outofmemory*"),), EXITED, "OutOfMemoryError: x", 137, RETRY),  # by case
        ((ExitRule(EXIT, on_reason="OutOfMemory*"),), EXITED, "OutOfMemoryError: x", 137, EXIT),
        ((ExitRule(EXIT, on_reason="Out"),), EXITED, None, 1, RETRY),  # an absent field matches no text
        ((ExitRule(EXIT, on_exit_code="0*"),), LOST, None, None, RETRY),
        (NEXTFLOW, LOST, None, None, RETRY),
        (NEXTFLOW, EXITED, None, 1, EXIT),  # "*" takes the absent reason too
        (NEXTFLOW, EXITED, "OutOfMemoryError: Container killed due to memory usage", 137, EXIT),
        (CDK_SPOT, LOST, None, None, RETRY),
        (CDK_SPOT, EXITED, None, 3, EXIT),
        (CDK_PULL, FAILED_TO_START, PULL, None, RETRY),
        (CDK_PULL, EXITED, None, 3, EXIT),
        (CDK_NON_ZERO, EXITED, None, 3, RETRY),
    ],
)
def test_the_first_rule_that_matches_decides(rules, status_reason, reason, exit_code, action):
    assert decide(RetryStrategy(3, rules), 1, status_reason, reason, exit_code) is action


@pytest.mark.parametrize(
    ("attempts", "number", "action"),
    [(1, 1, EXIT), (2, 1, RETRY), (2, 2, EXIT), (10, 9, RETRY), (10, 10, EXIT)],
)
def test_attempts_count_the_first_try_too(attempts, number, action):
    assert decide(RetryStrategy(attempts, (ExitRule(RETRY),)), number, EXITED, None, 1) is action


@pytest.mark.parametrize(
    ("pattern", "text", "matched"),
    [("*", None, True), ("*", "", True), ("a*", None, False), ("a", None, False), ("a*", "ab", True)],
)
def test_a_star_alone_matches_what_is_absent(pattern, text, matched):
    assert glob_matches(pattern, text) is matched


@pytest.mark.parametrize(
    ("pattern", "text", "matched"),
    [
        ("a*b", "a*b", True),
        ("a*b", "axb", False),
        ("*a", "ba", False),
        ("a.c", "abc", False),
        ("ab*", "ab", True),
    ],
)
def test_only_a_trailing_star_is_a_wildcard(pattern, text, matched):
    assert glob_matches(pattern, text) is matched
