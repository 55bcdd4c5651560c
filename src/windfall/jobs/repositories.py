"""Which addresses of Git repositories a job may name.

Decides by the text alone: only the transports that are documented, nothing that git could take for an option, and a
path of this host only where the job may read the host. Must not know whether a repository exists.
"""

from __future__ import annotations

import re

from windfall.jobs.git_urls import without_secrets

#: What git may speak for any job.
REMOTE_SCHEMES = ("https", "ssh", "git")
#: What it may speak besides for a job that an administrator submitted.
LOCAL_SCHEME = "file"
#: user@host:path, which git takes for ssh.
_SCP_LIKE = re.compile(r"[A-Za-z0-9_.-]+@[A-Za-z0-9.-]+:[^-].*\Z", re.ASCII)


def is_local(url: str) -> bool:
    """Whether an address is a path of the host."""
    return url.startswith(("/", f"{LOCAL_SCHEME}://"))


def repository_problem(url: str, *, local: bool) -> str | None:
    """Why git is not given an address; None when it is. `local` allows paths of the host."""
    if any(ord(letter) < 33 for letter in url):
        return _no_repository(url)
    if is_local(url):
        if not local:
            return (
                f'"{without_secrets(url)}" is a repository on this host, which only a job of an admin key may name:'
                " give https://, ssh://, git:// or user@host:path"
            )
        return None if url.removeprefix(f"{LOCAL_SCHEME}://").startswith("/") else _no_repository(url)
    scheme, separator, rest = url.partition("://")
    sound = bool(separator) and scheme in REMOTE_SCHEMES and bool(rest) and not rest.startswith("-")
    return None if sound or _SCP_LIKE.match(url) else _no_repository(url)


def _no_repository(url: str) -> str:
    return f'"{without_secrets(url)}" is not a repository: give https://, ssh://, git:// or user@host:path'
