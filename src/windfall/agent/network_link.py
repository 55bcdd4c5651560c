"""How fast this machine's network is, by the word of the card that the default route uses.

Decides whose word counts: a real card's, or that of what binds or bridges real cards. Tunnels and the ends of virtual
cables name speeds that nobody has measured; virtual machines mostly say nothing. Must not measure anything.
"""

from __future__ import annotations

import os

_ROUTES = "/proc/net/route"
_CARDS = "/sys/class/net"
_UP = 0x1


def find_network_mbits(routes: str = _ROUTES, cards: str = _CARDS) -> int | None:
    """Megabits a second; None when it is not known."""
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
