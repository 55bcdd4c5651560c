"""The name by which a training job knows its host: SageMaker's `algo-1` must resolve inside of its sandbox.

Decides what the sandbox's /etc/hosts says. Must not know attempts.
"""

from __future__ import annotations

import os

TRAINING_HOST = "algo-1"
HOSTS = "/etc/hosts"


def write_hosts(directory: str) -> str | None:
    """Write this host's own names and the training host's; None where the host has no such file to cover."""
    if not os.path.isfile(HOSTS) or os.path.islink(HOSTS):
        return None
    with open(HOSTS, encoding="utf-8", errors="replace") as file:
        names = file.read()
    path = os.path.join(directory, "hosts")
    fresh = f"{path}.{os.getpid()}"
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(f"{names.rstrip()}\n127.0.0.1 {TRAINING_HOST}\n")
    os.chmod(fresh, 0o644)
    os.rename(fresh, path)
    return path
