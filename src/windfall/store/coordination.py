"""What several daemons on one store need of it: a lease that one holds, commands forwarded to it, values.

Only PostgreSQL has it. Must not know a driver, nor what commands mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Presence:
    """One daemon."""

    #: Made anew at each start.
    name: str
    address: str
    pid: int


@dataclass(frozen=True, slots=True)
class Lead:
    """Who leads, as the database has it."""

    epoch: int
    #: The name of the daemon; empty when nobody has led yet, or the last one let go.
    holder: str
    address: str
    #: Whether its lease is over by the database's clock.
    expired: bool

    @property
    def is_free(self) -> bool:
        """Whether anybody may take it."""
        return self.expired or not self.holder


@dataclass(frozen=True, slots=True)
class ForwardedCommand:
    """A command of a daemon that does not lead."""

    id: str
    command: Any
    #: On whose behalf it is done; None sees all tenants.
    tenant: str | None = None


class Lease(Protocol):
    """What a leader's loop asks before it tells something from memory alone."""

    @property
    def is_sure(self) -> bool:
        """Whether nobody else can have taken the lease yet."""

    def confirm(self) -> Sequence[str]:
        """Renew it; raises Superseded when it is another's, CommitFailed when the database does not say."""


class Leadership(Lease, Protocol):
    """Who leads. Called from worker threads."""

    def join(self, me: Presence, lease_s: float) -> None:
        """Be one of several from now on: commits are refused with Superseded unless this daemon has the lease."""

    def look(self) -> Lead:
        """Say that this daemon is there, and see who leads."""

    def take(self, at_least: int, gone: str = "") -> int | None:
        """Take the lease if it is free, or `gone` holds it, which is known to have ended.

        The answer is its epoch, which is not under `at_least`.
        """

    def release(self) -> None:
        """Give the lease back early, so that nobody waits for its end."""

    def leave(self) -> None:
        """Say that this daemon goes."""

    def daemons(self) -> list[tuple[Presence, bool]]:
        """All daemons that were seen lately, and which of them leads."""


class Inbox(Protocol):
    """Commands forwarded to the leader, and its replies. Called from worker threads."""

    def send(self, forwarded: ForwardedCommand) -> None:
        """Put a command where the leader finds it; sending it again changes nothing."""

    def commands(self) -> list[ForwardedCommand]:
        """The oldest commands that nobody has answered yet."""

    def replies(self, ids: Sequence[str]) -> Mapping[str, Any]:
        """The leader's replies to these commands, as far as there are any: values, and Rejected for refusals."""

    def listen(self, on_news: Callable[[str], None], until: Callable[[], bool]) -> None:
        """Say `inbox` or `leadership` when one of them may have changed, until told to end."""


@dataclass(frozen=True, slots=True)
class SharedValue:
    """One value that all daemons have; None where it was removed."""

    value: bytes | None
    #: Counts the changes of this value.
    version: int
    #: Milliseconds since the epoch.
    set_at: int


class SharedValues(Protocol):
    """Small values by name. Called from worker threads; all raise CommitFailed when the database does not answer."""

    def versions(self) -> dict[str, int]:
        """The version of each value, removed ones included."""

    def read(self, names: Sequence[str]) -> dict[str, SharedValue]:
        """Values by name; names that never had one are left out."""

    def put(self, name: str, value: bytes | None, set_at: int, before: int | None = None) -> bool:
        """Set a value, or remove it with None; whether it was done.

        With `before` it is done only if the value has that version still, 0 meaning that there never was one.
        """


@dataclass(frozen=True, slots=True)
class Coordination:
    """The part of a store that daemons share."""

    leadership: Leadership
    inbox: Inbox
    shared: SharedValues
    close: Callable[[], None]
