"""Packets over a Unix socket, each with at most one descriptor beside it.

Decides what is not a packet: one that is too long, or that brings more than one descriptor. Must not know what is said.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket

from windfall.agent.errors import AgentError
from windfall.agent.steward.messages import MOST_BYTES

#: The directory of the socket, in the agent's own, which lets nobody else pass.
DOOR = "door"
SOCKET = "steward"
#: One descriptor, and room to notice that there were more.
_ANCILLARY_BYTES = socket.CMSG_SPACE(4 * array.array("i").itemsize)


class BadPacket(AgentError):
    """What came over the socket is not a packet."""


def make_door(directory: str) -> str:
    """Make the directory of the socket, with the agent's rights; return its path.

    Every user may pass through it, but only a process that has it open can: the agent's directory around it is closed.
    """
    door = os.path.join(directory, DOOR)
    os.makedirs(door, 0o711, exist_ok=True)
    os.chmod(door, 0o711)  # noqa: S103 - as is said above
    return door


def new_socket() -> socket.socket:
    """Return a socket of the kind that packets go over."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)


def send(line: socket.socket, content: bytes, descriptor: int | None = None) -> None:
    """Send one packet; OSError where nobody is there."""
    if len(content) > MOST_BYTES:
        raise BadPacket(f"a packet of {len(content)} bytes is too long")
    rights = []
    if descriptor is not None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
    line.sendmsg([content], rights, socket.MSG_NOSIGNAL)


def receive(line: socket.socket) -> tuple[bytes, int | None]:
    """Return the next packet and its descriptor, an empty one at the end of the line; BadPacket for anything else."""
    flags = socket.MSG_CMSG_CLOEXEC
    content, rights, told, _ = line.recvmsg(MOST_BYTES, _ANCILLARY_BYTES, flags)
    descriptors = array.array("i")
    for level, kind, received in rights:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(received[: len(received) - len(received) % descriptors.itemsize])
    if told & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or len(descriptors) > 1:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        raise BadPacket("a packet is too long, or brings several descriptors")
    return content, descriptors[0] if descriptors else None
