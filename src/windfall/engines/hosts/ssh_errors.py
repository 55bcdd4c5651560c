"""What ssh says when it fails, as a sentence with what to do.

Decides by ssh's exit status (255 is its own) and by words that OpenSSH has had for many years; anything else is quoted.
"""

from __future__ import annotations

import re
import shlex

from windfall.engines.hosts.destinations import SshDestination

#: ssh's own failures; every other status is the command's.
SSH_FAILED = 255
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_NOISE = re.compile(
    r"^(Warning: Permanently added|debug\d:|Connection to \S+ closed|Shared connection|mux_client)"
)


def explain(destination: SshDestination, status: int, said: str, config: str | None = None) -> str:
    """Why ssh did not bring us there, and what to do; one line. `config` replaces the user's ssh configuration."""
    text = _plain(said)
    name = destination.text
    by_hand = shlex.join(["ssh", *([] if config is None else ["-F", config]), *destination.arguments, "true"])
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in said:
        return (
            f"the host key of {name} has changed: another machine may answer in its place. If you know that it was"
            f" installed anew, remove the old key with `{_forget(destination)}` and accept the new one with"
            f" `{by_hand}`"
        )
    if "Host key verification failed" in said or "host key is known" in said:
        return (
            f"the host key of {name} is not known to the daemon's user: run `{by_hand}` once as that user, compare"
            " the fingerprint with the host's, and answer yes"
        )
    if "Permission denied" in said and status == SSH_FAILED:
        return (
            f"{name} refuses this user's keys: `{by_hand}` must work without a password; copy a key there with"
            f" `ssh-copy-id {name}`, or start an agent that has one ({text})"
        )
    for words, remedy in _REMEDIES:
        if words in said:
            return f"{name}: {text}; {remedy}"
    if status == SSH_FAILED:
        return f"ssh does not reach {name}: {text or 'it says nothing'}; try `{by_hand}`"
    return f"{name}: the command there ended with {status}: {text or 'it says nothing'}"


_REMEDIES = (
    ("Could not resolve hostname", "name it in ~/.ssh/config or in the DNS, or give its address"),
    ("No route to host", "is it switched on, and in a network that this machine reaches?"),
    ("Network is unreachable", "is it in a network that this machine reaches?"),
    ("Connection refused", "does sshd run there, at this port (Port in ~/.ssh/config, or HOST:PORT)?"),
    ("timed out", "is it switched on, and does a firewall let ssh through?"),
    ("not responding", "is it switched on, and does a firewall let ssh through?"),
    ("Bad configuration option", "correct the ssh configuration of this user"),
    (
        "Bad owner or permissions",
        "correct the rights of that file: ssh takes only one that nobody else can write",
    ),
    (
        "Too many authentication failures",
        "name the key for it in ~/.ssh/config (IdentityFile, IdentitiesOnly yes)",
    ),
    ("No space left on device", "free some space there, or choose another place with --directory"),
    ("Disk quota exceeded", "free some space there, or choose another place with --directory"),
)


def _forget(destination: SshDestination) -> str:
    where = destination.host if destination.port is None else f"[{destination.host}]:{destination.port}"
    return shlex.join(["ssh-keygen", "-R", where])


def _plain(said: str) -> str:
    """The last lines that mean something, as one line without control characters."""
    lines = [_CONTROL.sub("", line).strip() for line in said.splitlines()]
    telling = [line for line in lines if line and not _NOISE.match(line) and not set(line) <= {"@"}]
    return "; ".join(telling[-2:])[:400]
