"""What a keeper has written down, as the agent reads it. Values only."""

from __future__ import annotations

import msgspec


class KeeperState(msgspec.Struct, frozen=True):
    """How far a container has come."""

    #: The keeper that wrote last: from then on it understands signals.
    keeper: int = 0
    #: What is going on before it runs.
    doing: str | None = None
    #: The engine's id of it; empty before it was made.
    container: str = ""
    #: Its first process as the host sees it.
    pid: int | None = None
    #: When that process started; with the pid it names it.
    pid_ticks: int | None = None
    started_at: int | None = None
    stop_sent: bool = False
    ended_at: int | None = None
    exit_code: int | None = None
    reason: str | None = None
    #: Why it could not be started, or not be followed to its end.
    failure: str | None = None

    def without_keeper(self) -> KeeperState:
        """Return the same for either engine."""
        return msgspec.structs.replace(self, keeper=0)
