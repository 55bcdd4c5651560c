"""What daemon and agent say about files that are copied from a machine to the daemon; known by `messages.` too.

The agent sends pieces by offset, the daemon says how much it has. Decides the shapes and nothing else.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from windfall.agent.message import Message

#: What is copied to a daemon that does not share the machine's disk: files of attempts, and samples of the machine.
MirroredKind: TypeAlias = Literal["log", "times", "samples", "machine"]


class LogPiece(Message, frozen=True, tag=True):
    """A part of a file that is mirrored; an empty one asks how much the daemon has."""

    task_id: str
    kind: MirroredKind
    offset: int
    data: bytes
    #: The bytes of the whole file when this was read: the rest lags.
    size: int
    #: Whether the file was written anew, and what the daemon has of it is void.
    begins: bool = False
    #: Whether what lies between the end of the daemon's copy and `offset` was not kept.
    skips: bool = False


class LogHave(Message, frozen=True, tag=True):
    """How much of a mirrored file the daemon has; more may be sent. What it has on disk it says with `Forget`."""

    task_id: str
    kind: MirroredKind
    offset: int
    #: Send no more of it for this long: the daemon has no room.
    wait_s: float = 0.0
