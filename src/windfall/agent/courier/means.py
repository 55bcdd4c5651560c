"""What a courier cannot do by itself as the job's user: open object storage with the daemon's credentials, read a
credential for Git, and start and end feeders.

Decides who does it: this process, where it has the agent's own rights, or the steward. Must not know what is moved.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from windfall.agent.courier.feeder import Order, Told, spawn_feeder
from windfall.agent.courier.messages import Errand
from windfall.agent.courier.porters import kill_porters, porter_mark
from windfall.agent.courier.stores import Stores
from windfall.agent.directories import shared_directory
from windfall.agent.secrets import git_credential
from windfall.agent.settings import AgentSettings
from windfall.agent.steward.client import Door
from windfall.agent.sync.writers import FileId, open_for_writing
from windfall.objects.errors import Unreachable


class Means(Protocol):
    """What is done for one attempt."""

    #: Whether this process is another user than the agent, and so must not use the agent's home.
    apart: bool
    #: Where outputs of several nodes are put together.
    merge_directory: str

    def near(self, path: str) -> str:
        """Return how this process reaches a path of an attempt."""
        ...

    def stores(self) -> Stores:
        """Return the attempt's object storage."""
        ...

    def start_feeder(self, order: Order) -> None:
        """Start the process that feeds the attempt's pipes."""
        ...

    def kill_porters(self) -> None:
        """Kill what feeds the attempt's pipes or checks out its code."""
        ...

    def credential(self) -> str | None:
        """Return the credential for Git that the attempt's code may be fetched with."""
        ...

    def writers(self, files: Collection[FileId]) -> Mapping[FileId, bool]:
        """Return those of some files that are open for writing, and whether they are only appended to."""
        ...

    def close(self) -> None:
        """Nothing more is done for the attempt."""
        ...


class OwnMeans:
    """A process with the agent's own rights does everything itself."""

    apart = False

    def __init__(self, errand: Errand, settings: AgentSettings) -> None:
        self._errand = errand
        self._settings = settings
        self.merge_directory = settings.attempts_directory

    def near(self, path: str) -> str:
        """Return the path itself."""
        return path

    def stores(self) -> Stores:
        """Return stores that are opened here."""
        return Stores(self._settings.objects_file, self._errand.storage)

    def start_feeder(self, order: Order) -> None:
        """Start it with this process's own environment, and with the credentials that are in it."""
        mark = porter_mark(self._errand.token, self._settings.agent_id)
        spawn_feeder(Told(order), {**os.environ, **mark})

    def kill_porters(self) -> None:
        """Kill all that carry the attempt's mark."""
        kill_porters(self._errand.token, self._settings.agent_id)

    def credential(self) -> str | None:
        """Read it from the daemon's secrets."""
        return git_credential(self._settings.secrets_directory, self._errand.credential)

    def writers(self, files: Collection[FileId]) -> Mapping[FileId, bool]:
        """Look into all processes that this one may look into."""
        return open_for_writing(files)

    def close(self) -> None:
        """Nothing is kept open."""


class StewardMeans:
    """A process of the job's user asks the steward at `door`; its working directory is that of all attempts."""

    apart = True

    def __init__(self, errand: Errand, settings: AgentSettings, door: str) -> None:
        self._errand = errand
        self._attempts_directory = settings.attempts_directory
        self._door = Door(door, errand.token, errand.secret)
        self.merge_directory = self.near(shared_directory(settings.attempts_directory, os.getuid()))

    def near(self, path: str) -> str:
        """Return the path from here: the directories above may be closed to the job's user."""
        return path.removeprefix(f"{self._attempts_directory}/")

    def stores(self) -> Stores:
        """Return stores that the steward opens."""
        return Stores(None, self._errand.storage, self._door.open)

    def start_feeder(self, order: Order) -> None:
        """Have it started."""
        self._door.start_feeder(msgspec.json.encode(order))

    def kill_porters(self) -> None:
        """Have them killed; without a steward there is nobody to tell, and the agent kills what an attempt leaves."""
        try:
            self._door.end_porters()
        except Unreachable:
            return

    def credential(self) -> str | None:
        """Ask for it, if there can be one."""
        return self._door.credential() if self._errand.credential else None

    def writers(self, files: Collection[FileId]) -> Mapping[FileId, bool]:
        """Look into the processes of the job's user; those of a container may be anybody's, so the steward is asked."""
        if self._errand.is_foreign:
            return self._door.writers(list(files)) if files else {}
        return open_for_writing(files)

    def close(self) -> None:
        """Close the connections to the steward."""
        self._door.close()
