"""What one agent is told at its start; handed down as one JSON argument. Decides defaults, knows nothing
else.
"""

from __future__ import annotations

import hashlib

import msgspec

from windfall import __version__


class AgentSettings(msgspec.Struct, frozen=True):
    """The settings of one agent."""

    #: The socket, the journal and the warden's files; mode 0700.
    directory: str
    #: Where private working directories are made.
    attempts_directory: str
    job_user: str = "nobody"
    #: Whether the daemon gives each tenant a user of its own (`Start.run_as`).
    tenants_have_users: bool = False
    #: auto, none, simulated:N or recorded:/PATH.
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
    #: A JSON object of variables (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL_S3, ...) that come before the agent's own when
    #: object storage is opened. A file, because an agent outlives what it was started with, and because all users can
    #: read command lines; it is read anew each time and may be missing.
    objects_file: str | None = None
    #: Whether EC2's own metadata address is given to the loopback interface and served to staged attempts.
    link_local_metadata: bool = False
    #: Where the notice of a spot interruption is looked for: auto (on EC2 instances), off, or an address.
    ec2_metadata: str = "auto"
    #: auto, process or container.
    runtime: str = "auto"
    #: The socket of the container engine; None looks in the usual places.
    container_socket: str | None = None
    #: Where secrets of containers are kept, a file each; None when there are none.
    secrets_directory: str | None = None
    #: Whether both are this agent's own, and the daemon sends what is to be in them (Provide).
    provided: bool = False
    #: The address by which other machines reach this one; empty takes that of the default route.
    address: str = ""
    #: Seconds between two samples of every attempt; 0 takes none.
    sample_every_s: float = 2.0
    #: Where samples of the host and of all its GPUs are kept; None keeps none.
    machine_samples: str | None = None
    #: Where the logs of attempts are written whose orders name no path; empty where every order names one.
    logs_directory: str = ""
    #: Whether logs and samples are sent to the daemon, which does not share this disk; they are removed at `Forget`.
    mirror: bool = False
    #: What the log of an attempt may have at most; 0 means no limit.
    log_limit_bytes: int = 0

    @property
    def agent_id(self) -> str:
        """What tells this agent from others on the machine, the same after every restart."""
        return hashlib.sha256(self.directory.encode()).hexdigest()[:12]

    @property
    def digest(self) -> str:
        """What tells an agent that was started with these settings, by this version, from any other."""
        # As the agent reads them: 4 vCPUs become 4.0 on the way.
        read = msgspec.json.decode(msgspec.json.encode(self), type=AgentSettings)
        return hashlib.sha256(__version__.encode() + msgspec.json.encode(read)).hexdigest()[:16]
