"""Errors that the agent's own code raises; what a job does wrong is a message (`Refused`), never an
exception.

AgentError
├── AgentUnreachable    no agent answers at the socket
│   └── AgentUnfit      one that was started with these very settings ends at once
├── AgentRejected       the agent answered and refused the connection (an older epoch)
├── DirectoryTaken      another agent serves this one's directory
├── ProtocolError       a line on the socket is not a message
├── CannotStart         an attempt cannot be started
├── CannotIsolate       a sandbox or cgroup operation failed
└── CannotEnter         nobody can look into an attempt
"""

from __future__ import annotations

import re

#: A problem that has AWS's own name for it already.
_NAMED = re.compile(r"[A-Z][A-Za-z]*Error: ")


class AgentError(Exception):
    """Anything that goes wrong between the daemon and its agent."""


class AgentUnreachable(AgentError):
    """No agent answers at the socket; its log beside the socket says why."""


class AgentUnfit(AgentUnreachable):
    """An agent was started and ended at once; trying again helps only when something else has changed."""


class AgentRejected(AgentError):
    """The agent refused the connection because a newer daemon has spoken to it."""

    def __init__(self, reason: str, epoch: int) -> None:
        super().__init__(reason)
        #: The highest epoch that the agent has seen.
        self.epoch = epoch


class DirectoryTaken(AgentError):
    """Another agent serves the directory by now; this one must end, and not be started again."""


class ProtocolError(AgentError):
    """A line on the socket is not a message of this version."""


class CannotStart(AgentError):
    """The attempt cannot be started; the text is the problem without AWS's prefix."""

    def __init__(self, problem: str, number: int | None = None) -> None:
        super().__init__(problem)
        #: The system's number for the problem, where it has one.
        self.errno = number or 0


class CannotIsolate(AgentError):
    """A sandbox or a cgroup could not be made."""


class CannotEnter(AgentError):
    """The attempt cannot be entered; the text says why."""


def refusal(problem: str) -> str:
    """Return the reason of a refused start, as AWS words it."""
    return problem if _NAMED.match(problem) else f"CannotStartContainerError: {problem}"
