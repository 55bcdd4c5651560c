"""Why a checkpoint directory cannot be synced or restored. Failures of the store itself are `windfall.objects.errors`.

SyncError
├── SupersededError     a newer attempt of the job owns the prefix
├── NoRoomError         the local disk cannot hold what is to be restored
├── DamagedError        a manifest or a piece is not what it was when it was committed
│   └── NeighbourDamagedError   ... and it is another writer's of the same prefix
└── AbandonedError      the pass was called off, or its time was up; what is uploaded stays
"""

from __future__ import annotations

from windfall.agent.errors import AgentError


class SyncError(AgentError):
    """A checkpoint directory cannot be synced or restored."""


class SupersededError(SyncError):
    """A newer attempt of the job owns the prefix; this one must write nothing more."""

    def __init__(self, uri: str, mine: int, newest: int) -> None:
        super().__init__(
            f"a newer attempt (fence {newest}) has taken over {uri} from this one (fence {mine}); "
            "nothing more is written for this attempt"
        )
        self.newest = newest


class NoRoomError(SyncError):
    """The local disk cannot hold what is to be restored."""


class DamagedError(SyncError):
    """A manifest or a piece is not what it was when it was committed."""


class NeighbourDamagedError(DamagedError):
    """A piece of another writer's picture is not there, or something else."""

    def __init__(self, writer: int, digest: str) -> None:
        super().__init__(f"piece {digest[:12]} of node {writer} is not what was put there")
        self.writer = writer


class AbandonedError(SyncError):
    """The pass was called off, or its time was up."""
