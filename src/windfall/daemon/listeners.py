"""Whose process listens at a port of this host, so that one tenant's requests never go to another's program.

A replica's port is known before the replica listens there, and any process of the host could be first. Decides which
users may listen for a tenant. Must not know replicas.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENING = "0A"


def listener_uids(port: int) -> set[int]:
    """The users whose processes listen at a port of this host."""
    uids: set[int] = set()
    for table in _TABLES:
        try:
            uids |= uids_in(table.read_text().splitlines()[1:], port)
        except OSError:
            continue  # a kernel without IPv6
    return uids


def uids_in(lines: Iterable[str], port: int) -> set[int]:
    """The users in lines of the kernel's table that listen at a port."""
    uids = set()
    for line in lines:
        fields = line.split()
        if len(fields) > 7 and fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
            uids.add(int(fields[7]))
    return uids


def why_foreign(uids: Iterable[int], tenant: str, owners: Mapping[int, str]) -> str | None:
    """Why these users must not answer for a tenant; None when they may. `owners` has the tenants of all uids.

    A tenant with a uid of its own is answered for by that one. Otherwise by anybody but another tenant. Root, and the
    daemon's own user, listen for containers.
    """
    own = {uid for uid, owner in owners.items() if owner == tenant}
    for uid in set(uids) - own - {0, os.geteuid()}:
        if own or owners.get(uid, tenant) != tenant:
            return f"a process of another user ({uid}) listens at its port"
    return None
