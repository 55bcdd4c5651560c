"""The agent's end of its steward: which attempts it knows, and the secrets of the processes that work for them.

Decides the secrets: each is made of the attempt's token and a key that is kept in the agent's directory, so that a
feeder which outlives the agent is still known to the next steward. Must not know what is asked of the steward.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import sys
from collections.abc import Callable

import msgspec

from windfall.agent.companions import Companion, OnReadable
from windfall.agent.launching import agent_environment
from windfall.agent.settings import AgentSettings
from windfall.agent.steward.messages import Admit, Dismiss

_KEY_NAME = "steward.key"
_KEY_BYTES = 32


class StewardLink:
    """A steward that is there when an attempt needs it, and knows all of them."""

    def __init__(
        self, settings: AgentSettings, on_readable: OnReadable, on_started: Callable[[int], None]
    ) -> None:
        command = [sys.executable, "-P", "-m", "windfall.agent.steward"]
        command.append(msgspec.json.encode(settings).decode())
        self._companion = Companion("the steward", command, agent_environment, on_readable, on_started)
        self._companion.on_new = self._tell_all
        self._settings = settings
        self._admitted: dict[str, Admit] = {}
        self._key = b""

    def secret(self, token: str) -> str:
        """Return what proves that a process works for an attempt."""
        if not self._key:
            self._key = _read_key(os.path.join(self._settings.directory, _KEY_NAME))
        return hmac.new(self._key, token.encode(), "sha256").hexdigest()

    def admit(self, admit: Admit) -> None:
        """Announce an attempt, or what has changed about it."""
        if self._admitted.get(admit.token) != admit:
            self._admitted[admit.token] = admit
            self._companion.send(_line(admit))

    def dismiss(self, token: str) -> None:
        """An attempt needs nothing more."""
        if self._admitted.pop(token, None) is not None and self._companion.running:
            self._companion.send(_line(Dismiss(token)))

    @property
    def next_due(self) -> float | None:
        """When `tick` has something to do, on the monotonic clock."""
        return self._companion.next_due

    def tick(self) -> None:
        """Do what is due."""
        self._companion.tick()

    def _tell_all(self) -> None:
        for admit in self._admitted.values():
            self._companion.send(_line(admit))


def _line(order: Admit | Dismiss) -> bytes:
    return msgspec.json.encode(order) + b"\n"


def _read_key(path: str) -> bytes:
    """Return the key, made at the first time; it appears whole or not at all."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        key = file.read()
        if len(key) == _KEY_BYTES:
            return key
    key = secrets.token_bytes(_KEY_BYTES)
    fresh = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(key)
    os.rename(fresh, path)
    return key
