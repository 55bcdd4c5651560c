"""The names by which a training job knows its hosts: SageMaker's `algo-1` and on must resolve inside of its sandbox.

Decides what the sandbox's /etc/hosts says. Must not know attempts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from windfall.jobs.staging import Staging

TRAINING_HOST = "algo-1"
HOSTS = "/etc/hosts"
_ALONE = ((TRAINING_HOST, "127.0.0.1"),)


def training_hosts(staging: Staging | None) -> tuple[tuple[str, str], ...]:
    """The names and addresses of a training job's hosts: itself, where it has no others; none for other jobs."""
    if staging is None or not staging.wants_ml_root:
        return ()
    return staging.hosts or _ALONE


def write_hosts(directory: str, hosts: Iterable[tuple[str, str]] = _ALONE) -> str | None:
    """Write this host's own names and the training hosts'; None where the host has no such file to cover."""
    if not os.path.isfile(HOSTS) or os.path.islink(HOSTS):
        return None
    with open(HOSTS, encoding="utf-8", errors="replace") as file:
        names = file.read()
    path = os.path.join(directory, "hosts")
    fresh = f"{path}.{os.getpid()}"
    added = "".join(f"{address} {name}\n" for name, address in hosts)
    # Nobody else may have put something there that leads elsewhere.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(fresh, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(f"{names.rstrip()}\n{added}")
    os.chmod(fresh, 0o644)
    os.rename(fresh, path)
    return path
