"""What a check says: how it stands, what was seen, and how to fix it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class State(StrEnum):
    """How something stands."""

    GOOD = "ok"
    #: Jobs run, but something that some of them want is missing or doubtful.
    DOUBTFUL = "warn"
    #: Jobs that need it fail.
    BAD = "bad"
    #: Not looked at, and why.
    SKIPPED = "skip"


class Verdict(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    subject: str
    state: State
    seen: str
    #: What to do, one step to a line; empty when there is nothing to fix.
    mend: str = ""


def good(subject: str, seen: str) -> Verdict:
    """All is well."""
    return Verdict(subject, State.GOOD, seen)


def doubtful(subject: str, seen: str, mend: str) -> Verdict:
    """It will do for some jobs."""
    return Verdict(subject, State.DOUBTFUL, seen, mend)


def bad(subject: str, seen: str, mend: str) -> Verdict:
    """Jobs that need it fail."""
    return Verdict(subject, State.BAD, seen, mend)


def skipped(subject: str, why: str) -> Verdict:
    """Nothing to look at here."""
    return Verdict(subject, State.SKIPPED, why)
