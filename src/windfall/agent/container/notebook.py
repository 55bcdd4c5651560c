"""The files between an agent and a keeper: what is to be done (`orders`), and how far it has come (`state`).

Both outlive either process, so a process that is started again knows where it was. Decides how they are written, so
that a reader sees a whole one; keepers.py and orders.py say what is in them. Imported by the keeper: nothing that needs
more than the standard library.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time

from windfall.agent.socket_paths import short_path

#: As typing has it: importing that would cost a keeper megabytes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ORDERS = "orders"
STATE = "state"
SECRETS = "secrets"
#: The pipes of a warm worker.
PIPES = "pipes"
#: What a keeper says of itself when it fails.
OWN_LOG = "keeper.log"
_LOCK = "lock"
_NUDGES, _NUDGE_EVERY_S = 40, 0.05


class Notebook:
    """The keeper's side."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        # Held until this process ends: of two keepers of one attempt the second waits, and then finds all done.
        self._lock_fd = os.open(f"{directory}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
        with open(f"{directory}/{ORDERS}", "rb") as file:
            self.orders: dict[str, Any] = json.load(file)
        self.state: dict[str, Any] = self._read_state()

    def write(self, **changes: object) -> None:
        """Write down what has changed, and tell the agent that something has."""
        self.state.update(changes)
        fresh = f"{self.directory}/{STATE}.new"
        with open(fresh, "w", encoding="utf-8") as file:
            json.dump(self.state, file)
        os.rename(fresh, f"{self.directory}/{STATE}")
        self._nudge()

    def _read_state(self) -> dict[str, Any]:
        try:
            with open(f"{self.directory}/{STATE}", "rb") as file:
                found = json.load(file)
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _nudge(self) -> None:
        """Say that there is news; an agent that is not there reads the file when it comes."""
        line = json.dumps({"type": "ContainerNews", "token": self.orders["token"]}) + "\n"
        for _ in range(_NUDGES):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as out:
                out.settimeout(2.0)
                try:
                    with short_path(self.orders["agent_socket"]) as path:
                        out.connect(path)
                    out.sendall(line.encode())
                except BlockingIOError:
                    # Its queue is full: many connect at once.
                    time.sleep(_NUDGE_EVERY_S)
                except OSError:
                    return
                else:
                    return
