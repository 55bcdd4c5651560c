"""What one agent is told at its start; handed down as one JSON argument. Decides defaults, knows nothing
else.
"""

from __future__ import annotations

import hashlib

import msgspec


class AgentSettings(msgspec.Struct, frozen=True):
    """The settings of one agent."""

    #: The socket, the journal and the warden's files; mode 0700.
    directory: str
    #: Where private working directories are made.
    attempts_directory: str
    job_user: str = "nobody"
    #: auto, none or simulated:N.
    gpus: str = "auto"
    #: None takes what the machine has.
    vcpus: float | None = None
    memory_mib: int | None = None
    #: Directories that a sandboxed attempt must not see (the daemon's data).
    hide: tuple[str, ...] = ()
    #: Whether vCPUs are a ceiling (a CPU quota) or only what scheduling counts.
    hard_cpu_limit: bool = True
    use_cgroups: bool = True
    use_sandbox: bool = True

    @property
    def agent_id(self) -> str:
        """What tells this agent from others on the machine, the same after every restart."""
        return hashlib.sha256(self.directory.encode()).hexdigest()[:12]
