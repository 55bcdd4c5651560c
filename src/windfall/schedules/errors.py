"""Why the calendar refuses something.

Invalid (of jobs.errors)
└── ScheduleError           base of everything raised in this folder
    ├── ExpressionError     a cron(), rate() or at() that cannot be read
    ├── LimitReached        as many of a kind as there may be
    └── UnknownZone         a time zone that the database does not have
"""

from __future__ import annotations

from windfall.jobs.errors import Invalid

_SHOWN_CHARACTERS = 256


class ScheduleError(Invalid):
    """Base of what this folder refuses."""


class ExpressionError(ScheduleError):
    """A schedule expression that cannot be read; begins with AWS's own words and says what to write instead."""

    def __init__(self, text: str, instead: str) -> None:
        shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
        super().__init__(f"Invalid Schedule Expression {shown}. {instead}")


class LimitReached(ScheduleError):
    """There are as many of a kind as there may be."""


class UnknownZone(ScheduleError):
    """A time zone that nobody knows."""
