"""What can go wrong between us and a container engine.

EngineError
├── EngineUnreachable   nobody answers at the socket, or the line broke
├── EngineTimeout       the engine took the request and did not answer in time
└── EngineRefused       the engine said no, with its own words
"""

from __future__ import annotations

from windfall.agent.errors import AgentError


class EngineError(AgentError):
    """A request to the container engine came to nothing."""


class EngineUnreachable(EngineError):
    """Nobody answers at the engine's socket, or the line broke."""


class EngineTimeout(EngineError):
    """The engine did not answer in time."""


class EngineRefused(EngineError):
    """The engine's own refusal."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"Error response from daemon: {message}")
        #: HTTP's.
        self.status = status
        self.message = message
