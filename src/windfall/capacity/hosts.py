"""A host that the user listed: how it is reached, where Windfall is on it, and whether it takes new jobs.

A value that the store keeps, so that a daemon that starts again reaches it again. Must not know ssh.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host."""

    name: str
    #: As ssh is given it: [USER@]HOST[:PORT].
    destination: str
    #: On the host: the Python that the agent runs with, the directory of everything, the agent's own.
    python: str
    base: str
    root: str
    labels: Mapping[str, str] = field(default_factory=dict)
    #: By which other machines reach it; None lets its agent find out.
    address: str | None = None
    #: Which GPUs its agent offers: auto, none or simulated:N.
    gpus: str = "auto"
    #: Whether nothing new is placed there.
    draining: bool = False
    added_at: int = 0
