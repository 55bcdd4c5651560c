"""What ended attempts have left and no store has taken yet: kept, and tried until it is stored.

Each is a file beside the journal, which says what is to be stored from which directories; it outlives the attempt, the
agent and the daemon. Decides which directories must not be removed for it. Must not know how anything is stored.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence

import msgspec

from windfall.agent.courier.messages import Store
from windfall.agent.demotion import Identity
from windfall.agent.speech import say
from windfall.agent.walking import removed

_NAME = "unstored"


class _Kept(msgspec.Struct, frozen=True):
    """One record."""

    order: Store
    directories: list[str]
    #: Whose courier stores it; None means the agent's own.
    user: Identity | None = None


class Unstored:
    """The records of one agent."""

    def __init__(self, agent_directory: str, send: Callable[[Identity | None, Store], None]) -> None:
        """`send` reaches a user's courier."""
        self._directory = os.path.join(agent_directory, _NAME)
        self._send = send
        self._kept: dict[str, _Kept] = {}
        self._read()

    @property
    def directories(self) -> set[str]:
        """What must stay where it is."""
        return {path for kept in self._kept.values() for path in kept.directories}

    def has_for(self, user: Identity | None) -> bool:
        """Whether a user's courier has something to store."""
        return any(kept.user == user for kept in self._kept.values())

    def keep(self, order: Store, directories: Sequence[str], user: Identity | None) -> None:
        """Remember what is not stored, durably, and have it tried from now on."""
        # The secret by which a courier is known is made anew by every agent, and is nobody else's to read.
        errand = msgspec.structs.replace(order.errand, secret="")
        order = msgspec.structs.replace(order, errand=errand)
        kept = _Kept(order, list(directories), user)
        os.makedirs(self._directory, 0o700, exist_ok=True)
        path = self._path(order.errand.token)
        descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, msgspec.json.encode(kept))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(f"{path}.new", path)
        self._kept[order.errand.token] = kept
        where = order.errand.places.root
        say(f"{order.errand.token}: what it left is not stored; it is kept in {where} and tried again")
        self._send(user, order)

    def ask(self) -> None:
        """Have everything tried, by an agent that has just started."""
        for kept in self._kept.values():
            self._send(kept.user, kept.order)

    def ask_of(self, user: Identity | None) -> None:
        """Have everything tried by a user's courier that does not know of it."""
        for kept in self._kept.values():
            if kept.user == user:
                self._send(user, kept.order)

    def stored(self, token: str, user: Identity | None) -> bool:
        """Let go of what a user's courier has stored; False where that was not its to store."""
        kept = self._kept.get(token)
        if kept is None or kept.user != user:
            return False
        del self._kept[token]
        os.unlink(self._path(token))
        say(f"{token}: what it left is stored now")
        for path in kept.directories:
            # It may hold a million files.
            threading.Thread(target=removed, args=(path,), name="unstored", daemon=True).start()
        return True

    def _path(self, token: str) -> str:
        return os.path.join(self._directory, hashlib.sha256(token.encode()).hexdigest()[:32] + ".json")

    def _read(self) -> None:
        names = os.listdir(self._directory) if os.path.isdir(self._directory) else []
        for name in names:
            if not name.endswith(".json"):
                continue
            try:
                with open(os.path.join(self._directory, name), "rb") as file:
                    kept = msgspec.json.decode(file.read(), type=_Kept)
            except (OSError, msgspec.DecodeError) as error:
                say(
                    f"{self._directory}/{name} cannot be read: {error}; see what its attempt has left by hand"
                )
                continue
            self._kept[kept.order.errand.token] = kept
