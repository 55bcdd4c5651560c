"""A real steward process that a test is the agent of, and doors to it."""

from __future__ import annotations

import array
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tests.waiting import wait_until
from windfall.agent.demotion import Identity
from windfall.agent.launching import agent_environment
from windfall.agent.settings import AgentSettings
from windfall.agent.steward.client import Door
from windfall.agent.steward.messages import Admit, Answer, Dismiss, Hello, Request, answers, encode
from windfall.agent.steward.packets import make_door, new_socket, receive
from windfall.jobs.storage import Grant, StorageAccess


class StewardProcess:
    """The steward of an agent that has its directories below `root`."""

    def __init__(self, root: Path, variables: Mapping[str, str] | None = None) -> None:
        for name in ("agent", "attempts", "secrets"):
            (root / name).mkdir()
        self.settings = AgentSettings(
            str(root / "agent"), str(root / "attempts"), secrets_directory=str(root / "secrets")
        )
        self._line, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "windfall.agent.steward"]
        command.append(msgspec.json.encode(self.settings).decode())
        environment = {**agent_environment(), **(variables or {})}
        self.process = subprocess.Popen(command, stdin=theirs, env=environment)
        theirs.close()
        # The name of a socket must be short, and that of a test's directory is long.
        self._door = os.open(make_door(self.settings.directory), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.path = f"/proc/self/fd/{self._door}/steward"
        self.secrets: dict[str, str] = {}
        self._doors: list[Door] = []
        self._known: set[str] = set()

    def admit(self, token: str, *grants: Grant | None, uid: int | None = None, credential: str = "") -> Door:
        """Tell of an attempt of this test's user, with these grants (None: all there is); return a door for it."""
        secret = self.secrets.setdefault(token, secrets.token_hex(8))
        allowed = None if grants == (None,) else tuple(grant for grant in grants if grant is not None)
        user = Identity(os.getuid() if uid is None else uid, os.getgid())
        self._say(Admit(token, user, StorageAccess(allowed), secret, credential=credential))
        return self.door(token)

    def dismiss(self, token: str) -> None:
        self._say(Dismiss(token))

    def door(self, token: str, secret: str | None = None, patience_s: float = 60.0) -> Door:
        door = Door(self.path, token, secret or self.secrets[token], patience_s)
        self._doors.append(door)
        return door

    def line(self, token: str) -> HostileLine:
        """A connection for an attempt over which a test may say anything."""
        if token not in self._known:
            with self.door(token).line():
                self._known.add(token)  # It is admitted by now.
        line = HostileLine(self.path)
        assert line.ask(Hello(token, self.secrets[token])) is not None
        return line

    def _say(self, order: Admit | Dismiss) -> None:
        self._line.sendall(msgspec.json.encode(order) + b"\n")

    def close(self) -> None:
        for door in self._doors:
            door.close()
        self._line.close()
        self.process.wait(60)
        os.close(self._door)


class HostileLine:
    """A peer that keeps to no rule."""

    def __init__(self, path: str) -> None:
        self._socket = new_socket()
        self._socket.settimeout(60)
        wait_until(Path(path).exists, "the steward has begun to listen")
        self._socket.connect(path)

    def send(self, content: bytes, *descriptors: int) -> None:
        rights = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        )
        self._socket.sendmsg([content], rights)

    def hear(self) -> Answer | None:
        """The next answer; None when the steward has closed the connection."""
        try:
            content, _ = receive(self._socket)
        except ConnectionError:
            return None
        return answers.decode(content) if content else None

    def ask(self, request: Request, *descriptors: int) -> Answer | None:
        try:
            self.send(encode(request), *descriptors)
        except ConnectionError:
            return None
        return self.hear()

    def close(self) -> None:
        self._socket.close()
