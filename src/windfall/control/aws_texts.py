"""AWS's texts that the core needs, because clients compare them or rely on them.

The core knows causes; the wire decides how AWS words them, and passes that in with the rules. Decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from windfall.jobs.attempts import StopCause
from windfall.jobs.job import Job


class AwsTexts(Protocol):
    """The texts, as the wire words them."""

    def limit_reached(self, cause: StopCause) -> str:
        """The status reason of a training job that has used up one of its times."""

    def training_ended(self, training: Job) -> str:
        """The status reason of a service job's attempt whose training job has ended."""

    def training_refused(self, reason: str) -> str:
        """The status reason of a service job's attempt whose payload made no training job."""

    def comparable(self, text: str) -> str:
        """A service job's status reason, or a retry rule's pattern for it, in the form in which both are compared."""


@dataclass(frozen=True, slots=True)
class PlainTexts:
    """The core's own texts, the default."""

    def limit_reached(self, cause: StopCause) -> str:
        """The cause itself."""
        return cause.value

    def training_ended(self, training: Job) -> str:
        """How it ended, and what it says of that."""
        return f"{training.state}: {training.status_reason}"

    def training_refused(self, reason: str) -> str:
        """The reason itself."""
        return reason

    def comparable(self, text: str) -> str:
        """The text itself."""
        return text
