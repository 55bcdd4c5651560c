"""What names a host to ssh: `[user@]host[:port]`, checked letter by letter before it comes near a command line.

Decides which texts are taken. Must not know ssh's options.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Letters of names, addresses and users; nothing that a shell, ssh or a path understands otherwise.
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]{2,45}(%[A-Za-z0-9_.-]{1,15})?")
#: A host's name here, which is also a directory there and a label.
HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_PYTHON = re.compile(r"(/[A-Za-z0-9_./+-]{1,255}|[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63})")
_DIRECTORY = re.compile(r"/[A-Za-z0-9_./+@-]{1,200}")
_FORM = "give [USER@]HOST[:PORT], as in gpu1 or alice@gpu3:2222; an IPv6 address in brackets"


class BadDestination(ValueError):
    """The text cannot be given to ssh; it says what to write instead."""


@dataclass(frozen=True, slots=True)
class SshDestination:
    """Where ssh goes to."""

    host: str
    user: str | None = None
    port: int | None = None

    @property
    def text(self) -> str:
        """As people write it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = "" if self.user is None else f"{self.user}@"
        return f"{user}{host}" + ("" if self.port is None else f":{self.port}")

    @property
    def arguments(self) -> list[str]:
        """What stands on ssh's command line."""
        port = [] if self.port is None else ["-p", str(self.port)]
        user = [] if self.user is None else ["-l", self.user]
        return [*port, *user, self.host]


def parse_destination(text: str) -> SshDestination:
    """Read what a user wrote; raises BadDestination."""
    user, at, rest = text.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise BadDestination(f"{text[:100]!r} is not a host: {user[:70]!r} cannot be a user; {_FORM}")
    host, port = rest, ""
    if bracketed := re.fullmatch(r"\[([^\]]*)\](?::(.*))?", rest):
        host, port = bracketed[1], bracketed[2] or ""
        if not _IPV6.fullmatch(host):
            raise BadDestination(
                f"{text[:100]!r} is not a host: {host[:70]!r} is not an IPv6 address; {_FORM}"
            )
    else:
        host, colon, port = rest.partition(":")
        if not _HOST.fullmatch(host) or (colon and not port):
            raise BadDestination(f"{text[:100]!r} is not a host; {_FORM}")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BadDestination(f"{text[:100]!r} is not a host: {port[:20]!r} is not a port; {_FORM}")
    return SshDestination(host, user if at else None, int(port) if port else None)


def name_of(destination: SshDestination) -> str:
    """What a host is called if nobody says otherwise."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", destination.host).lstrip(".-")[:63]


def check_python(text: str) -> str:
    """A program's name or path that no shell understands otherwise; raises BadDestination."""
    if not _PYTHON.fullmatch(text):
        raise BadDestination(
            f"{text[:100]!r} cannot be a Python; give a name as python3.12, or an absolute path"
        )
    return text


def check_directory(text: str) -> str:
    """An absolute path without surprises; raises BadDestination."""
    if not _DIRECTORY.fullmatch(text) or ".." in text.split("/"):
        raise BadDestination(
            f"{text[:100]!r} cannot be a directory of a host; give an absolute path of letters, digits and ./_+@-"
        )
    return text.rstrip("/")
