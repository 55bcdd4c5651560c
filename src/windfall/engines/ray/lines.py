"""The lines between the daemon and its bridge to a Ray cluster, as the daemon reads and writes them.

Decides what a line may be. What comes from a cluster is untrusted: whatever does not fit these forms is refused, and
texts are shortened and made one line before people read them. bridge.py spells the same lines without this module.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from windfall.agent.errors import ProtocolError
from windfall.engines.fleet.plausible import check_bounds

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_MOST_LETTERS = 300
#: Ray itself says so where it means never.
_MOST_NUMBER = (1 << 63) - 1


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node as Ray sees it."""

    id: str
    ip: str
    host: str = ""
    labels: dict[str, str] = {}
    cpus: float = 0.0
    gpus: float = 0.0
    memory_bytes: int = 0
    #: The autoscaler's name for its kind; empty where nobody scales.
    group: str = ""
    #: ALIVE, DRAINING, DEAD, or UNKNOWN to a head that was started anew.
    state: str = "ALIVE"
    #: When it goes; only where it drains, and not always then.
    deadline_ms: int | None = None
    #: Ray's number for the cause of its death.
    death: int = 0
    reason: str = ""


class LaunchableGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of node that an autoscaler can launch."""

    name: str
    labels: dict[str, str] = {}
    cpus: float = 0.0
    gpus: float = 0.0
    memory_bytes: int = 0
    #: How many there may be; None where the autoscaler has no limit.
    most: int | None = None


class LaunchFailure(msgspec.Struct, frozen=True):
    """A launch that the autoscaler has given up."""

    group: str
    at_s: int
    why: str = ""


class PendingLaunch(msgspec.Struct, frozen=True):
    """Nodes that the autoscaler waits for."""

    group: str
    count: int


class Hello(msgspec.Struct, frozen=True, tag_field="is", tag="hello"):
    """The bridge stands."""

    ray: str
    address: str


class Gone(msgspec.Struct, frozen=True, tag_field="is", tag="gone"):
    """The bridge cannot serve: a word for programs, and a text for people."""

    code: str
    why: str = ""


class NodesSeen(msgspec.Struct, frozen=True, tag_field="is", tag="nodes"):
    """Nodes that have changed; with `all`, every node that there is."""

    nodes: list[Node]
    all: bool = False


class Groups(msgspec.Struct, frozen=True, tag_field="is", tag="groups"):
    """All kinds of nodes that can be launched."""

    groups: list[LaunchableGroup]


class Launches(msgspec.Struct, frozen=True, tag_field="is", tag="launches"):
    """What the autoscaler waits for, and what has failed."""

    pending: list[PendingLaunch] = []
    failed: list[LaunchFailure] = []


class Held(msgspec.Struct, frozen=True, tag_field="is", tag="held"):
    """A hold has a node."""

    hold: str
    node: str


class Unheld(msgspec.Struct, frozen=True, tag_field="is", tag="unheld"):
    """A hold has gone that was not released."""

    hold: str
    why: str = ""


class Head(msgspec.Struct, frozen=True, tag_field="is", tag="head"):
    """Whether the head of the cluster answers."""

    answers: bool
    why: str = ""


class Opened(msgspec.Struct, frozen=True, tag_field="is", tag="opened"):
    """A command was started."""

    stream: int


class Bytes(msgspec.Struct, frozen=True, tag_field="is", tag="bytes"):
    """What a command has printed."""

    stream: int
    data: bytes


class Closed(msgspec.Struct, frozen=True, tag_field="is", tag="closed"):
    """A command is over: its exit status (-1 when it is not known) and its last words."""

    stream: int
    status: int
    why: str = ""


#: What concerns one stream, and what concerns the cluster.
StreamLine = Opened | Bytes | Closed
ClusterLine = Hello | Gone | NodesSeen | Groups | Launches | Held | Unheld | Head
Line = StreamLine | ClusterLine
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def read_line(line: bytes) -> Line:
    """Read what the bridge says; raises ProtocolError."""
    try:
        said = _DECODER.decode(line)
        check_bounds(said, "the bridge to the Ray cluster", _MOST_NUMBER)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"the bridge to the Ray cluster says what makes no sense: {error}") from None
    return said


def write_line(do: str, **words: Any) -> bytes:
    """Make a line for the bridge."""
    return msgspec.json.encode({"do": do, **words}) + b"\n"


def for_people(text: str) -> str:
    """What a cluster says, as one line."""
    return _CONTROL.sub(" ", text).strip()[:_MOST_LETTERS]
