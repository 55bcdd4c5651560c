"""How this machine is connected: its address for other machines, the interface that has it, and how fast its card is.

Reads what the kernel says, and sends nothing. Decides nothing about jobs.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Iterator

_ROUTES = "/proc/net/route"
_CARDS = "/sys/class/net"
_UP = 0x1


#: An address that belongs to nobody (RFC 5737): only the way there is asked for.
_ANYWHERE = ("192.0.2.1", 9)
_SIOCGIFADDR = 0x8915


def own_address() -> str:
    """The IPv4 address that this machine has on its default route, else its first other one; empty without any."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.connect(_ANYWHERE)  # Sends nothing: a datagram's socket only chooses its way.
            return str(asking.getsockname()[0])
    except OSError:  # No default route, as in a private network.
        return next((found for _, found in _interfaces() if not found.startswith("127.")), "")


def interface_of(address: str) -> str:
    """The network interface that has an address; empty where none has."""
    return next((name for name, found in _interfaces() if found == address), "")


def _interfaces() -> Iterator[tuple[str, str]]:
    """All network interfaces with an IPv4 address, and the first of each."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asking, _SIOCGIFADDR, request)
            except OSError:
                continue  # It has no IPv4 address.
            yield name, socket.inet_ntoa(answer[20:24])


def find_network_mbits(routes: str = _ROUTES, cards: str = _CARDS) -> int | None:
    """How fast the card of the default route says that it is, in megabits a second; None when it is not known.

    What counts is the word of a real card, or of what binds or bridges real cards. Tunnels and the ends of virtual
    cables name speeds that nobody has measured; virtual machines mostly say nothing.
    """
    name = _default_card(routes)
    return None if name is None else _speed(f"{cards}/{name}")


def _default_card(routes: str) -> str | None:
    """The card of the IPv4 default route with the lowest metric."""
    try:
        with open(routes) as file:
            rows = [line.split() for line in file.readlines()[1:]]
        # Interface, destination, gateway, flags, two counters, metric (decimal), mask, ...
        found = [
            (int(row[6]), row[0])
            for row in rows
            if len(row) > 7 and int(row[1], 16) == int(row[7], 16) == 0 and int(row[3], 16) & _UP
        ]
    except (OSError, ValueError):
        return None
    return min(found)[1] if found else None


def _speed(card: str) -> int | None:
    try:
        parts = os.listdir(card)
        if "device" not in parts and "bonding" not in parts:
            # A bridge or a VLAN is as fast as what is below it.
            below = [_speed(f"{card}/{part}") for part in parts if part.startswith("lower_")]
            return max((speed for speed in below if speed is not None), default=None)
        with open(f"{card}/speed") as file:
            mbits = int(file.read())
    except (OSError, ValueError):
        return None
    return mbits if mbits > 0 else None
