"""What a machine without the daemon's disk is provided with, before an attempt there needs it.

Decides which secrets travel to a machine: those that a start names, in the same batch and before it, and none for a
name that only the machine says. Values are read anew for each start, so that a changed secret is what the next attempt
gets. So it is with sessions, which open of object storage what an attempt may use: one that is still being asked for
follows its start. Must not know how a machine is reached, nor how an agent keeps what it gets.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from windfall.agent.messages import Forget, Inventory, Message, Provide, Start
from windfall.agent.object_access import is_session_name, session_name
from windfall.agent.provisions import needed_secrets, needed_storage
from windfall.agent.secrets import kept_secret
from windfall.capacity.machines import LACKS_FACT, Machine
from windfall.jobs.storage import BUCKETS, FILES, StorageAccess

log = logging.getLogger(__name__)

#: The value of a secret by its kept name; None where there is none. Raises OSError.
ReadSecret = Callable[[str], str | None]
#: The variables that open object storage on another machine than the daemon's; None where it reaches none.
ReadObjects = Callable[[], Mapping[str, str] | None]


class Sessions(Protocol):
    """Short-lived credentials for what an attempt may use of object storage."""

    def value(self, access: StorageAccess, /) -> str | None:
        """The content of a session's file; None while it is being asked for. Does not block."""

    def listen(self, name: str, on_news: Callable[[], None], /) -> None:
        """Call this, on the event loop, when a session has come or was renewed; one listener for a name."""


def secrets_in(directory: Path) -> ReadSecret:
    """The secrets that the daemon keeps in a directory."""
    return lambda name: kept_secret(str(directory), name)


@dataclass(frozen=True, slots=True)
class SharedStock:
    """What a daemon has for machines that do not share its disk."""

    read_secret: ReadSecret = lambda _: None
    read_objects: ReadObjects = lambda: None
    #: None where the variables of storage hold its keys.
    sessions: Sessions | None = None

    def provisioner(self) -> Provisioner:
        """What one machine is given out of it."""
        return Provisioner(self.read_secret, self.read_objects, self.sessions)

    def listen(self, name: str, on_news: Callable[[], None]) -> None:
        """Call this when a session has come that an attempt waits for, or one was renewed."""
        if self.sessions is not None:
            self.sessions.listen(name, on_news)

    def described(self, machine: Machine) -> Machine:
        """A machine with what it does not reach: the daemon's files never, its S3 only where there is a way."""
        lacks = FILES if self.read_objects() is not None else f"{FILES} {BUCKETS}"
        return replace(machine, facts={**machine.facts, LACKS_FACT: lacks})


class Provisioner:
    """What one machine was given over the connection that it has now."""

    def __init__(
        self, read_secret: ReadSecret, read_objects: ReadObjects, sessions: Sessions | None = None
    ) -> None:
        self._read_secret = read_secret
        self._read_objects = read_objects
        self._sessions = sessions
        #: What the sessions that attempts there need are for.
        self._accesses: dict[str, StorageAccess] = {}
        #: What the machine has, not as text: this process need not keep values.
        self._sent: dict[str, bytes] = {}
        #: The attempts that need each secret there.
        self._users: dict[str, set[str]] = {}
        self._objects_sent: bytes | None = None

    def at_connection(self, inventory: Inventory) -> list[Message]:
        """What is sent first: how storage is opened, and which secrets an earlier daemon sent that are gone by now."""
        self._sent.clear()
        self._objects_sent = None
        gone = [name for name in inventory.secrets if not is_session_name(name) and self._value(name) is None]
        return [self._provide(set(self._users), gone)]

    def accompanied(self, messages: Sequence[Message]) -> list[Message]:
        """The messages for the machine, with what their starts need before them."""
        sent: list[Message] = []
        # One after the other, as the agent takes them: it removes a secret when all its attempts are forgotten.
        for message in messages:
            if isinstance(message, Forget):
                self._forget(message.tokens)
            elif isinstance(message, Start) and (needed := needed_secrets(message)):
                for name in needed:
                    self._users.setdefault(name, set()).add(message.token)
                if (access := needed_storage(message)) is not None:
                    self._accesses[session_name(access)] = access
                sent += _unless_empty(self._provide(set(needed)))
            sent.append(message)
        return sent

    def expect(self, token: str, access: StorageAccess) -> None:
        """Know of an attempt there, which an earlier daemon started, what it may use of object storage."""
        name = session_name(access)
        self._accesses[name] = access
        self._users.setdefault(name, set()).add(token)

    def renewed(self) -> list[Message]:
        """What has changed since it was sent; to be asked now and then, and when a secret was set or removed."""
        return _unless_empty(self._provide(set(self._users)))

    def _provide(self, names: set[str], gone: Sequence[str] = ()) -> Provide:
        objects = dict(self._read_objects() or {})
        mark = _mark(repr(sorted(objects.items())))
        news = mark != self._objects_sent
        self._objects_sent = mark
        secrets, withdrawn = {}, set(gone)
        for name in sorted(names):
            value = self._value(name)
            if value is None:
                # A session that is asked for again is still what opens storage there.
                if not is_session_name(name) and self._sent.pop(name, None) is not None:
                    withdrawn.add(name)
            elif self._sent.get(name) != (mark := _mark(value)):
                self._sent[name] = mark
                secrets[name] = value
        return Provide(objects if news else None, secrets, sorted(withdrawn))

    def _value(self, name: str) -> str | None:
        if is_session_name(name):
            access = self._accesses.get(name)
            return None if access is None or self._sessions is None else self._sessions.value(access)
        try:
            return self._read_secret(name)
        except OSError as error:
            log.warning("secret %s cannot be read (%s); jobs that need it fail", name, type(error).__name__)
            return None

    def _forget(self, tokens: Sequence[str]) -> None:
        """The agent removes a secret with the last attempt that needs it; then it has to be sent again."""
        for name, users in list(self._users.items()):
            users.difference_update(tokens)
            if not users:
                del self._users[name]
                self._accesses.pop(name, None)
                self._sent.pop(name, None)


def _unless_empty(provide: Provide) -> list[Message]:
    return [] if provide == Provide() else [provide]


def _mark(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()
