"""The values of a job's secrets: read from the daemon's own files at the last moment, and kept nowhere else.

Decides what a missing or unreadable secret is called. Must stay small: the keeper of a container imports it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from windfall.agent.errors import AgentError
from windfall.jobs.containers import Secret, secret_file
from windfall.jobs.git_credentials import credential_file
from windfall.jobs.submitters import DEFAULT_TENANT
from windfall.jobs.tenants import given_name, split_name


class MissingSecret(AgentError):
    """A secret cannot be given to a job; the text is the whole reason, in AWS's form."""


def secret_values(directory: str | None, secrets: Sequence[Secret]) -> dict[str, str]:
    """Return the value of each secret by the name that the job wants it under; raises MissingSecret."""
    return {secret.name: _value(directory, secret) for secret in secrets}


def _value(directory: str | None, secret: Secret) -> str:
    text = _read(directory, secret.secret)
    if not secret.key:
        return text
    try:
        found = json.loads(text)[secret.key]
    except (ValueError, LookupError, TypeError):
        # The error's own text may quote the secret.
        raise _missing(
            f"secret {given_name(secret.secret)} is not a JSON object with a member {secret.key}"
        ) from None
    return found if isinstance(found, str) else json.dumps(found)


def _read(directory: str | None, name: str) -> str:
    path = secret_file(name)
    if path is None:
        raise _missing(f"there is no secret {name} here")
    tenant, given = split_name(name)
    option = "" if tenant == DEFAULT_TENANT else f" --tenant {tenant}"
    absent = f"there is no secret {given} here; an admin sets it with: windfall secret set {given}{option}"
    if directory is None:
        raise _missing(absent)
    try:
        fd = os.open(os.path.join(directory, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        raise _missing(absent) from None
    except (OSError, UnicodeDecodeError) as error:
        raise _missing(f"secret {given} cannot be read ({type(error).__name__})") from None


def git_credential(directory: str | None, kept: str) -> str | None:
    """Return the value of a credential for Git, by its kept name; None where there is none. Raises OSError."""
    return _text(directory, credential_file(kept))


def kept_secret(directory: str, kept: str) -> str | None:
    """Return the whole value of a secret or of a credential for Git; None where there is none. Raises OSError."""
    return _text(directory, kept_file(kept))


def kept_file(kept: str) -> str | None:
    """The file of a secret or of a credential for Git below the directory of all; None if none can be called so."""
    return secret_file(kept) or credential_file(kept)


def _text(directory: str | None, path: str | None) -> str | None:
    if directory is None or path is None:
        return None
    try:
        fd = os.open(os.path.join(directory, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        return file.read().decode(errors="replace")


def _missing(what: str) -> MissingSecret:
    return MissingSecret(f"ResourceInitializationError: unable to pull secrets or registry auth: {what}")
