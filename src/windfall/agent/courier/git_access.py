"""How git is given the credential for one host, for as long as it fetches.

A token is in memory that only git and what git starts can read, and git asks for it for that host alone: a redirection
to another host does not get it. A key for ssh is a file of the job's user that is removed afterwards. Neither is ever
an argument or a variable. Must not know what is fetched.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from windfall.agent.courier.errors import CannotBring
from windfall.agent.sandbox import DEFAULT_PATH, find_program
from windfall.jobs.git_credentials import DEFAULT_USERNAME, GitCredential, host_of

#: git starts it through a shell, with what it wants as an argument; the other wishes are to store and to erase.
_HELPER = '!f() { if [ "$1" = get ]; then cat /proc/self/fd/%d; fi; }; f'
_SSH = ("ssh", "-o", "BatchMode=yes")


@dataclass(frozen=True, slots=True)
class Access:
    """What a fetch is started with."""

    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    descriptors: tuple[int, ...] = ()


@contextlib.contextmanager
def opened(
    credential: GitCredential | None, url: str, scratch: str, owner: tuple[int, int] | None
) -> Iterator[Access]:
    """Have what a fetch from an address needs; nothing is left of it afterwards."""
    is_ssh = not url.startswith(("https:", "git:", "file:"))
    if is_ssh:
        _check_ssh(owner)
    if credential is None:
        yield Access()
        return
    if (credential.scheme == "ssh") != is_ssh:
        given, other = ("an SSH key", "ssh") if credential.scheme == "ssh" else ("a token", "https")
        raise CannotBring(
            f"the credential for {host_of(url)} is {given}: name the repository by {other}, or have it replaced with"
            f" `windfall secret git {host_of(url)}`"
        )
    with _by_key(credential, scratch, owner) if is_ssh else _by_token(credential, host_of(url)) as access:
        yield access


@contextlib.contextmanager
def _by_token(credential: GitCredential, host: str) -> Iterator[Access]:
    memory = os.memfd_create("git-credential", os.MFD_CLOEXEC)
    try:
        username = credential.username or DEFAULT_USERNAME
        os.write(memory, f"username={username}\npassword={credential.token}\n".encode())
        name = f"credential.https://{host}.helper"
        # The first takes away the helpers of the user's own configuration, which could keep the token.
        yield Access(("-c", f"{name}=", "-c", f"{name}={_HELPER % memory}"), descriptors=(memory,))
    finally:
        os.close(memory)


@contextlib.contextmanager
def _by_key(credential: GitCredential, scratch: str, owner: tuple[int, int] | None) -> Iterator[Access]:
    key, hosts = f"{scratch}/git-key", f"{scratch}/git-known-hosts"
    try:
        _write(key, credential.ssh_key.rstrip("\n") + "\n", owner)
        _write(hosts, credential.known_hosts, owner)
        settings = ["IdentitiesOnly=yes", "IdentityAgent=none"]
        if credential.known_hosts:
            settings += ["StrictHostKeyChecking=yes", "GlobalKnownHostsFile=/dev/null"]
            settings.append(f"UserKnownHostsFile={_quoted(hosts)}")
        else:
            # A host that nobody knows is taken for what it shows; those that the user or the machine knows are not.
            settings.append("StrictHostKeyChecking=accept-new")
            settings.append(f"UserKnownHostsFile={_quoted(hosts)} ~/.ssh/known_hosts")
        command = [*_SSH, "-i", key]
        for setting in settings:
            command += ["-o", setting]
        yield Access(variables={"GIT_SSH_COMMAND": shlex.join(command)})
    finally:
        for path in (key, hosts):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _quoted(path: str) -> str:
    """As ssh reads a path in a setting: with spaces kept, and a percent sign doubled."""
    return '"' + path.replace("%", "%%") + '"'


def _write(path: str, content: str, owner: tuple[int, int] | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # What a courier left that was killed.
    with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        if owner is not None:
            os.fchown(file.fileno(), *owner)
        file.write(content)


def _check_ssh(owner: tuple[int, int] | None) -> None:
    if find_program("ssh", os.environ.get("PATH") or DEFAULT_PATH) is None:
        raise CannotBring(
            "code from Git over ssh needs the program ssh on the machine that runs the job: install it, or name the"
            " repository by https"
        )
    uid = owner[0] if owner is not None else os.getuid()
    try:
        pwd.getpwuid(uid)
    except KeyError:
        raise CannotBring(
            f"ssh does not work for user {uid}, which has no account on this machine: name the repository by https"
        ) from None
