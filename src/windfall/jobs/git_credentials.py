"""Credentials for private Git repositories: one for each host and tenant, kept among the daemon's secrets.

Decides which credential an address may use, what one is called and what it holds. Its name has an @, so no job
definition can ask for it. Must not know where credentials are kept, nor how git is given one.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

from windfall.jobs.submitters import DEFAULT_TENANT
from windfall.jobs.tenants import TENANT_NAME, qualified, split_name

DEFAULT_USERNAME = "x-access-token"
#: A credential fits into one message between two processes.
SIZE_MAX_BYTES = 24 * 1024
_PREFIX = "git@"
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?=[^:]{{1,180}}(?::|\Z)){_LABEL}(?:\.{_LABEL})*(?::([1-9][0-9]{{0,4}}))?", re.ASCII)
_PORT_MAX = 65535
#: What stands between the scheme and the path: a user's name, perhaps with a password, and the host.
_AUTHORITY = re.compile(r"(https|ssh)://(?:[^@/?#\\\s]*@)?([^@/?#\\\s]+)(?:/.*)?", re.ASCII | re.DOTALL)
_SCP_LIKE = re.compile(r"[A-Za-z0-9_.-]+@([A-Za-z0-9.-]+):.*", re.ASCII | re.DOTALL)
_USUAL_PORTS = {"https": ":443", "ssh": ":22"}
#: What ends a line could add another line to what git is told.
_WORD = re.compile(r"[!-~]+", re.ASCII)
_KEY_BEGINS = "-----BEGIN "


class BadCredential(ValueError):
    """The text is not a credential; the message never quotes it."""


@dataclass(frozen=True, slots=True)
class GitCredential:
    """A name and a token for https, or a private key for ssh."""

    username: str = ""
    token: str = ""
    ssh_key: str = ""
    #: The host keys that are accepted, as in a known_hosts file; empty accepts a host that was not seen before.
    known_hosts: str = ""

    def __repr__(self) -> str:
        """Show its kind alone."""
        return f"GitCredential({self.scheme})"

    @property
    def scheme(self) -> str:
        """What git speaks with it."""
        return "ssh" if self.ssh_key else "https"


def checked_host(text: str, scheme: str) -> str:
    """Return a host, with its port where that is not the scheme's usual one; BadCredential for anything else."""
    host = text.strip().lower().removesuffix(_USUAL_PORTS[scheme])
    if not _is_host(host):
        raise BadCredential(
            f"{text[:100]!r} is not a host: give a name such as github.com, or git.example.com:8443, without a scheme,"
            " a user or a path"
        )
    return host


def credential_name(host: str) -> str:
    """The name of a host's credential among the secrets of a tenant."""
    return f"{_PREFIX}{host}"


def is_credential_name(name: str) -> bool:
    """Whether a secret of this name is a credential for Git."""
    return name.startswith(_PREFIX) and _is_host(name.removeprefix(_PREFIX))


def credential_file(kept_name: str) -> str | None:
    """The file of a credential below the directory of all secrets, by its kept name; None if none is called so."""
    tenant, name = split_name(kept_name)
    if not is_credential_name(name) or TENANT_NAME.fullmatch(tenant) is None:
        return None
    return name if tenant == DEFAULT_TENANT else f"@{tenant}/{name}"


def credential_of(url: str, tenant: str) -> str:
    """The kept name of the credential that a tenant's jobs use for an address; empty where there can be none."""
    host = host_of(url)
    return qualified(tenant, credential_name(host)) if host and TENANT_NAME.fullmatch(tenant) else ""


def host_of(url: str) -> str:
    """The host that an address of https or ssh names, with an unusual port; empty for any other address."""
    if match := _AUTHORITY.fullmatch(url):
        host = match[2].lower().removesuffix(_USUAL_PORTS[match[1]])
    elif "://" not in url and (short := _SCP_LIKE.fullmatch(url)):
        host = short[1].lower()
    else:
        return ""
    return host if _is_host(host) else ""


def advice(kept_name: str, doing: str = "give") -> str:
    """What an administrator can do about a repository that cannot be read."""
    tenant, name = split_name(kept_name)
    option = "" if tenant == DEFAULT_TENANT else f" --tenant {tenant}"
    return f"an admin can {doing} a credential: windfall secret git {name.removeprefix(_PREFIX)}{option}"


def encode_credential(credential: GitCredential) -> str:
    """The value of the secret; BadCredential where git could not be given it."""
    _check(credential)
    return json.dumps({name: value for name, value in asdict(credential).items() if value})


def decode_credential(text: str) -> GitCredential:
    """Read the value of the secret; BadCredential where it is something else."""
    try:
        members = json.loads(text)
        credential = GitCredential(**members)
    except (ValueError, TypeError):
        raise BadCredential(
            "this secret is a credential for Git: set it with `windfall secret git HOST`"
        ) from None
    if not all(isinstance(value, str) for value in asdict(credential).values()):
        raise BadCredential("each member of a credential for Git is a text")
    _check(credential)
    return credential


def _check(credential: GitCredential) -> None:
    if bool(credential.token) == bool(credential.ssh_key):
        raise BadCredential("a credential for Git is either a token or an SSH key")
    if credential.ssh_key:
        if not credential.ssh_key.startswith(_KEY_BEGINS) or "PRIVATE KEY" not in credential.ssh_key:
            raise BadCredential(
                "this is not an SSH private key, which begins with -----BEGIN ... PRIVATE KEY-----"
            )
        if credential.username:
            raise BadCredential("an SSH key has no user name: the address of the repository has it")
    else:
        if credential.known_hosts:
            raise BadCredential("known hosts are for SSH keys")
        if not _WORD.fullmatch(credential.token):
            raise BadCredential("a token is one word of printable ASCII characters")
        if not _WORD.fullmatch(credential.username or DEFAULT_USERNAME):
            raise BadCredential("a user name is one word of printable ASCII characters")
    size = sum(len(value.encode()) for value in asdict(credential).values())
    if size > SIZE_MAX_BYTES:
        raise BadCredential(f"a credential for Git has at most {SIZE_MAX_BYTES} bytes, this one {size}")


def _is_host(text: str) -> bool:
    match = _HOST.fullmatch(text)
    return match is not None and int(match[1] or 1) <= _PORT_MAX
