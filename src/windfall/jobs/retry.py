"""Whether a failed attempt is tried again: `attempts` and `evaluateOnExit`, as AWS Batch reads them.

Decides from the attempt's own texts and code; must not know why the attempt ended. What is never retried
(cancelled, terminated, timed out) is not asked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    """What a rule says; answered in lower case as AWS does."""

    RETRY = "retry"
    EXIT = "exit"


@dataclass(frozen=True, slots=True)
class ExitRule:
    """One evaluateOnExit entry; every condition that is given must match."""

    action: Action
    on_status_reason: str | None = None
    on_reason: str | None = None
    on_exit_code: str | None = None

    def matches(self, status_reason: str | None, reason: str | None, exit_code: int | None) -> bool:
        """Whether all given conditions match this outcome."""
        code = None if exit_code is None else str(exit_code)
        pairs = ((self.on_status_reason, status_reason), (self.on_reason, reason), (self.on_exit_code, code))
        return all(pattern is None or glob_matches(pattern, text) for pattern, text in pairs)


@dataclass(frozen=True, slots=True)
class RetryStrategy:
    """How often a job may be tried in all, the first time included."""

    attempts: int = 1
    rules: tuple[ExitRule, ...] = ()


ONCE = RetryStrategy()


def glob_matches(pattern: str, text: str | None) -> bool:
    """Exact match, or prefix match with one trailing `*`; an absent text is matched by `*` alone.

    Clients send `onReason: "*"` to mean "anything else", the absent reason included.
    """
    if pattern.endswith("*"):
        return (text or "").startswith(pattern[:-1])
    return text == pattern


def decide(
    strategy: RetryStrategy, number: int, status_reason: str | None, reason: str | None, exit_code: int | None
) -> Action:
    """What becomes of a job whose attempt `number` (from 1) failed: the first matching rule, else RETRY."""
    if number >= strategy.attempts:
        return Action.EXIT
    for rule in strategy.rules:
        if rule.matches(status_reason, reason, exit_code):
            return rule.action
    return Action.RETRY
