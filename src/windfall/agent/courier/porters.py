"""Processes that work for an attempt without being the attempt: what feeds its pipes, what checks out its code.

They carry the attempt's mark in their environment, so that any process of the agent can identify and end them;
the courier that started them may be dead by then. Decides the mark. Must not know what they do.
"""

from __future__ import annotations

import contextlib
import os
import signal

from windfall.agent.processes import (
    AGENT_VARIABLE,
    PORTER_VARIABLE,
    TOKEN_VARIABLE,
    attempt_token,
    is_porter,
    snapshot,
)


def porter_mark(token: str, agent_id: str) -> dict[str, str]:
    """Return the variables that a porter and all that it starts must carry."""
    return {TOKEN_VARIABLE: token, AGENT_VARIABLE: agent_id, PORTER_VARIABLE: "1"}


def kill_porters(token: str, agent_id: str) -> None:
    """Kill the porters of an attempt, whichever courier started them."""
    for pid in snapshot():
        if attempt_token(pid, agent_id) == token and is_porter(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)  # Collected here if it was started here.
