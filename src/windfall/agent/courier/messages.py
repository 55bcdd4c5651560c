"""What the agent and its courier say to one another: one JSON object per line over a socket pair.

Decides the shapes. Every command carries all that is needed to begin anew, because either side may have died in
between. Times are integer milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from windfall.agent.places import Places
from windfall.jobs.staging import Mark, Output, Progress
from windfall.jobs.storage import StorageAccess


class Line(msgspec.Struct, frozen=True, tag_field="type", tag=True, omit_defaults=True, gc=False):
    """Base of everything that crosses the socket pair."""


class Errand(msgspec.Struct, frozen=True, omit_defaults=True):
    """One staged attempt as the courier must know it."""

    token: str
    places: Places
    #: The working directory on this host.
    directory: str
    #: Higher is newer: an earlier attempt of the same job can no longer write checkpoints.
    fence: int
    #: What of object storage may be opened for it.
    storage: StorageAccess
    #: The user that the job runs as; None when that is the courier's own.
    owner: tuple[int, int] | None = None
    instance: str = ""
    instance_type: str = ""
    market: str = "on-demand"
    region: str = "us-east-1"
    #: What the steward knows the attempt's couriers and feeders by; empty where there is no steward.
    secret: str = ""
    #: The kept name of the credential that its code may be fetched with; empty where it can have none.
    credential: str = ""
    #: Whether the job's files belong to another user than the courier's own: that of a container's image.
    is_foreign: bool = False

    def source_of(self, output: Output) -> str:
        """Return the directory on this host that an output is taken from."""
        return self.directory if output.patterns else self.places.real(output.path)


# --- agent -> courier -------------------------------------------------------------------------------


class Prepare(Line, frozen=True, tag=True):
    """Bring everything from scratch, then watch."""

    errand: Errand


class Watch(Line, frozen=True, tag=True):
    """The process runs, or is about to: keep its checkpoints safe and serve its metadata at this port."""

    errand: Errand
    port: int


class Finish(Line, frozen=True, tag=True):
    """The process has gone: save what it left. A repetition may bring the deadline forward or say `lose`."""

    errand: Errand
    #: None when nobody knows it.
    exit_code: int | None
    interrupted: bool
    lose: bool
    deadline_at: int
    #: When the process was killed, so that a file may be half written; None when it left by itself.
    killed_at: int | None = None


class Store(Line, frozen=True, tag=True):
    """What an ended attempt left could not be stored: try it until it is, however long that takes."""

    errand: Errand
    outputs: tuple[Output, ...]
    #: Whether the last checkpoint is to be stored too.
    checkpoint: bool = False
    killed_at: int | None = None


class Drop(Line, frozen=True, tag=True):
    """Stop whatever is being done for the attempt, at once."""

    token: str


# --- courier -> agent -------------------------------------------------------------------------------


class Prepared(Line, frozen=True, tag=True):
    """Everything is there."""

    token: str
    at: int
    port: int


class PrepareFailed(Line, frozen=True, tag=True):
    """It cannot be brought; the text is for the user."""

    token: str
    reason: str


class News(Line, frozen=True, tag=True):
    """What is known of the attempt now; None means no news of that part, except for `doing` and `alarm`."""

    token: str
    at: int
    doing: str | None = None
    alarm: str | None = None
    restored: Mark | None = None
    checkpoint: Mark | None = None
    progress: Progress | None = None
    commit: str | None = None


class Broken(Line, frozen=True, tag=True):
    """The process cannot come to a good end any more; the text is why it fails."""

    token: str
    reason: str


class Finished(Line, frozen=True, tag=True):
    """What could be saved is saved."""

    token: str
    checkpoint: Mark | None = None
    progress: Progress | None = None
    failure: str | None = None
    #: Outputs that are not in the store though they were wanted, whether the last checkpoint is not, and why.
    unstored: tuple[Output, ...] = ()
    unstored_checkpoint: bool = False
    why_unstored: str | None = None


class Stored(Line, frozen=True, tag=True):
    """All that an ended attempt left is in the store now, or not there any more."""

    token: str


class Dropped(Line, frozen=True, tag=True):
    """Nothing touches the attempt's files any more."""

    token: str


Command: TypeAlias = Prepare | Watch | Finish | Store | Drop
Report: TypeAlias = Prepared | PrepareFailed | News | Broken | Finished | Stored | Dropped

_encoder = msgspec.json.Encoder()
_commands = msgspec.json.Decoder(Command)
_reports = msgspec.json.Decoder(Report)


def encode(lines: Sequence[Line]) -> bytes:
    """Encode as lines."""
    return _encoder.encode_lines(lines)


def decode_commands(lines: bytes) -> Iterable[Command]:
    """Decode complete lines that the agent wrote."""
    return _commands.decode_lines(lines)


def decode_reports(lines: bytes) -> Iterable[Report]:
    """Decode complete lines that the courier wrote."""
    return _reports.decode_lines(lines)
