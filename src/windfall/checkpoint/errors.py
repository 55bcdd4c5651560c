"""What can go wrong between a training loop and its checkpoints; each text says what to do.

CheckpointError
├── NotTrackable       an object whose state cannot be stored without pickle
├── WrongUse           the run was called in an order or with arguments that make no sense
├── Damaged            one checkpoint on disk is not what its manifest says
├── NothingUsable      checkpoints are there and every one of them is damaged
├── Mismatch           the stored state does not fit the objects that were tracked
└── SaveFailed         a snapshot did not become durable (disk full, writer gone, ...)
"""

from __future__ import annotations


class CheckpointError(Exception):
    """The one class to catch for everything that this library raises on purpose."""


class NotTrackable(CheckpointError):
    """A value in a tracked state is neither an array, a number, a string nor a container of those."""


class WrongUse(CheckpointError):
    """A call that contradicts an earlier one, such as a name tracked twice."""


class Damaged(CheckpointError):
    """A checkpoint that fails its manifest or checksums; the one before it is tried next."""


class NothingUsable(CheckpointError):
    """Every checkpoint in the directory is damaged; starting at step 0 silently would lose the work."""


class Mismatch(CheckpointError):
    """A stored name, shape or dtype that the tracked objects do not have, or the other way round."""


class SaveFailed(CheckpointError):
    """A snapshot that is not durable; the checkpoint before it still stands."""
