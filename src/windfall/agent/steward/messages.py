"""What is said to the steward: by the agent, as JSON lines, and by couriers and feeders, one packet a message.

Decides the shapes and their limits. Bulk content never travels in a packet: a descriptor travels with it.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from windfall.agent.demotion import Identity
from windfall.jobs.storage import StorageAccess

#: No packet is longer.
MOST_BYTES = 1 << 16
#: Content up to this length travels in the packet itself.
INLINE_BYTES = 32 << 10
#: An object that is put, or a range that is asked for, in one piece is no longer.
WHOLE_BYTES = 256 << 20
#: The most bytes of names in one packet.
NAMES_BYTES = 40 << 10
#: The most files that are asked about in one packet.
MOST_FILES = 1_000


class Admit(msgspec.Struct, frozen=True, tag=True):
    """From the agent: this attempt may be worked for, by a process of this user that knows the secret."""

    token: str
    user: Identity
    storage: StorageAccess
    secret: str
    #: Where its instance metadata are served on the loopback interface; 0 while they are not.
    port: int = 0
    #: The kept name of the credential that its code may be fetched with; empty for none, and once it was fetched.
    credential: str = ""


class Dismiss(msgspec.Struct, frozen=True, tag=True):
    """From the agent: nothing more is done for this attempt."""

    token: str


Order: TypeAlias = Admit | Dismiss


class Request(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """Base of what couriers and feeders ask."""


class Hello(Request, frozen=True, tag=True):
    """The first packet of a connection, which is for one attempt."""

    token: str
    secret: str


class Get(Request, frozen=True, tag=True):
    """Write an object, or the bytes from `start` up to `end`, into the file that travels with this packet."""

    uri: str
    key: str
    start: int = 0
    #: None asks for the whole object.
    end: int | None = None


class Put(Request, frozen=True, tag=True):
    """Make an object of `content`, or where that is None of the first bytes of the file that travels with it."""

    uri: str
    key: str
    create_only: bool
    content: bytes | None
    size: int


class Pour(Request, frozen=True, tag=True):
    """Make an object of what comes out of the pipe that travels with it, once `Poured` says that it was all."""

    uri: str
    key: str


class Poured(Request, frozen=True, tag=True):
    """The pipe of `Pour` is closed."""

    whole: bool


class List(Request, frozen=True, tag=True):
    """Answer with every object below a prefix, in as many packets as it takes."""

    uri: str
    prefix: str


class Head(Request, frozen=True, tag=True):
    """Answer with one object's entry."""

    uri: str
    key: str


class Copy(Request, frozen=True, tag=True):
    """Make a second object with the same content."""

    uri: str
    source: str
    target: str


class Delete(Request, frozen=True, tag=True):
    """Remove objects."""

    uri: str
    keys: tuple[str, ...]


class Feed(Request, frozen=True, tag=True):
    """Start a feeder for the attempt; its order is in the file that travels with this packet."""

    size: int


class EndPorters(Request, frozen=True, tag=True):
    """Kill the feeders and other porters of the attempt."""


class AskCredential(Request, frozen=True, tag=True):
    """Answer with the credential for Git that the attempt's code may be fetched with, if there is one."""


class AskWriters(Request, frozen=True, tag=True):
    """Answer which of some files (device, inode) are open for writing: only root sees the processes of a container."""

    files: tuple[tuple[int, int], ...]


class Reply(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Base of the steward's answers."""


class Done(Reply, frozen=True, tag=True):
    """It is done; `size` says how many bytes were moved, `content` has them where they are few."""

    size: int = 0
    content: bytes | None = None


class Writers(Reply, frozen=True, tag=True):
    """The files that are open for writing (device, inode), and whether they are only appended to."""

    files: tuple[tuple[int, int, bool], ...]


class Entries(Reply, frozen=True, tag=True):
    """A part of a listing: key, length, and when it was changed."""

    rows: tuple[tuple[str, int, int], ...]
    last: bool


class Failed(Reply, frozen=True, tag=True):
    """It cannot be done; `kind` is the name of an error of `windfall.objects.errors`."""

    kind: str
    text: str


class NotAdmitted(Reply, frozen=True, tag=True):
    """The agent has not announced this attempt, or not yet."""


Asked: TypeAlias = (
    Hello
    | Get
    | Put
    | Pour
    | Poured
    | List
    | Head
    | Copy
    | Delete
    | Feed
    | EndPorters
    | AskCredential
    | AskWriters
)
Answer: TypeAlias = Done | Entries | Writers | Failed | NotAdmitted

orders = msgspec.json.Decoder(Order)
requests = msgspec.msgpack.Decoder(Asked)
answers = msgspec.msgpack.Decoder(Answer)
encode = msgspec.msgpack.Encoder().encode
