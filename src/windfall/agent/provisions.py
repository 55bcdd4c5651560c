"""What the daemon provides to a machine that does not share its disk: how storage is opened, and values of secrets.

Both are files of the agent's own, for this user alone, where everything that reads such files looks for them. Nothing
of it is in the journal: the daemon provides it again at each connection, and before each start that needs it. Decides
when a secret is removed: when it is withdrawn, or when no attempt that names it is left. Must not know what reads the
files.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterable

from windfall.agent.messages import Provide, Start
from windfall.agent.object_access import SESSIONS_VARIABLE, is_session_name, session_name
from windfall.agent.secrets import kept_file
from windfall.agent.settings import AgentSettings
from windfall.agent.speech import say
from windfall.jobs.git_credentials import credential_of
from windfall.jobs.storage import StorageAccess
from windfall.jobs.submitters import DEFAULT_TENANT
from windfall.jobs.tenants import qualified


def needed_secrets(start: Start) -> frozenset[str]:
    """The kept names of all secrets that an attempt reads before it runs."""
    named = {secret.secret for secret in start.secrets}
    if start.container is not None:
        named |= {secret.secret for secret in start.container.options.secrets}
    if start.staging is not None and start.staging.git is not None:
        named.add(credential_of(start.staging.git.url, start.tenant))
    if (access := needed_storage(start)) is not None:
        named.add(session_name(access))
    return frozenset(name for name in named if provided_file(name) is not None)


def needed_storage(start: Start) -> StorageAccess | None:
    """What an attempt may use of object storage; None if nothing is opened for it."""
    access = start.storage
    if access is None or access.grants == () or not (start.staging is not None or access.for_programs):
        return None
    return access


def provided_file(name: str) -> str | None:
    """The file of a secret or of a session below the directory of secrets; None for what cannot be called so."""
    return name if is_session_name(name) else kept_file(name)


class Provisions:
    """The provided files of one agent; for an agent that reads the daemon's own files it does nothing."""

    def __init__(self, settings: AgentSettings, known: Collection[str]) -> None:
        """`known` are the attempts of an agent before this one: any of them may need what is there."""
        self._objects = settings.objects_file if settings.provided else None
        self._secrets = settings.secrets_directory if settings.provided else None
        #: The attempts that need each secret; of one that was just provided, none yet.
        self._users: dict[str, set[str]] = {name: set(known) for name in self._found()}

    @property
    def names(self) -> list[str]:
        """The secrets that are kept here."""
        return sorted(self._users)

    def take(self, provided: Provide) -> None:
        """Write what was sent, and remove what was withdrawn."""
        if provided.objects is not None and self._objects is not None:
            objects = dict(provided.objects)
            if objects.get(SESSIONS_VARIABLE):
                objects[SESSIONS_VARIABLE] = self._secrets or ""
            _replace(self._objects, json.dumps(objects))
        for name, value in provided.secrets.items():
            path = self._path(name)
            if path is not None and _replace(path, value):
                self._users.setdefault(name, set())
        self._remove(provided.withdrawn)

    def note_start(self, start: Start) -> None:
        """Keep what an attempt names for as long as it lives."""
        for name in needed_secrets(start):
            # A session may come after the start that needs it.
            if name in self._users or (is_session_name(name) and self._secrets is not None):
                self._users.setdefault(name, set()).add(start.token)

    def forget(self, tokens: Iterable[str]) -> None:
        """Remove the secrets whose last attempt the daemon has done with: it counts as this side does.

        One that no start has named yet is about to be named.
        """
        tokens, ended = set(tokens), []
        for name, users in self._users.items():
            if users and users <= tokens:
                ended.append(name)
            users -= tokens
        self._remove(ended)

    def begin_connection(self) -> None:
        """Remove what was provided for starts that never came: its connection is gone."""
        self._remove([name for name, users in self._users.items() if not users])

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._users.pop(name, None)
            path = self._path(name)
            if path is None:
                continue
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _path(self, kept: str) -> str | None:
        """Where a secret is; None for what cannot be the name of one."""
        file = provided_file(kept)
        return None if self._secrets is None or file is None else os.path.join(self._secrets, file)

    def _found(self) -> list[str]:
        """The secrets that an agent before this one left, with their kept names."""
        if self._secrets is None:
            return []
        names = []
        for tenant, directory in [(DEFAULT_TENANT, self._secrets), *_tenants(self._secrets)]:
            names += [qualified(tenant, file) for file in _listed(directory) if not file.startswith("@")]
        return [name for name in names if provided_file(name) is not None]


def _tenants(directory: str) -> list[tuple[str, str]]:
    return [(name[1:], os.path.join(directory, name)) for name in _listed(directory) if name.startswith("@")]


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _replace(path: str, text: str) -> bool:
    """Have a file with this text that nobody else can read, all or nothing; says why where that is not possible."""
    beside = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.new")
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(beside, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        say(f"what the daemon provides cannot be written to {os.path.dirname(path)}: {error.strerror}")
        return False
    return True
