"""A job's checkpoint directory, kept in the object store while it runs and brought back before the next try.

`CheckpointSync` is what the courier uses; every call may be repeated by another process after a kill. Must not know
about attempts, notices or messages.
"""

from __future__ import annotations

from windfall.agent.sync.checkpoint_sync import CheckpointSync
from windfall.agent.sync.errors import NoRoomError, SupersededError, SyncError
from windfall.agent.sync.reports import Happening, Restored, Synced, SyncEvent

__all__ = [
    "CheckpointSync",
    "Restored",
    "Synced",
    "SyncEvent",
    "Happening",
    "SyncError",
    "SupersededError",
    "NoRoomError",
]
