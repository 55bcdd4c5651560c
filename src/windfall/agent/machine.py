"""What this machine has and which isolation works on it, found out once at the agent's start.

Decides what is told the user in one line when something is missing. Must not know attempts.
"""

from __future__ import annotations

import os

import msgspec

from windfall.agent.cgroups import AttemptCgroup, CgroupTree, find_cgroups
from windfall.agent.container.finding import NO_ENGINE, EngineFinder
from windfall.agent.credentials import (
    JobUser,
    can_drop_in_one_thread,
    check_becoming,
    resolve_job_user,
    user_to_run_as,
)
from windfall.agent.devices.mps import DeviceShares
from windfall.agent.errors import AgentError
from windfall.agent.gpus import GpuDevice, find_gpus
from windfall.agent.job_credentials import JobCredentials
from windfall.agent.kernel_log import KernelLog, open_kernel_log
from windfall.agent.messages import OLDEST_PROTOCOL, PROTOCOL, AttemptStatus, Inventory
from windfall.agent.network import find_network_mbits, interface_of, own_address
from windfall.agent.sandbox import SandboxTools, find_tools
from windfall.agent.settings import AgentSettings
from windfall.jobs.job_users import RunAs


class Machine(msgspec.Struct, frozen=True):
    """The machine as this agent may use it."""

    settings: AgentSettings
    vcpus: float
    memory_mib: int
    #: Kept as they are now by the loop.
    gpus: list[GpuDevice]
    #: The user of jobs that have none of their own.
    user: JobUser
    tools: SandboxTools | None
    cgroups: CgroupTree | None
    warnings: list[str]
    #: How attempts get a part of a GPU; None where nobody can.
    shares: DeviceShares | None = None
    #: Who runs containers here; None when nobody is looked for.
    engine: EngineFinder | None = None
    #: As the inventory has it.
    network_mbits: int | None = None
    #: Where the driver lists its GPUs; None where that may not be read.
    kernel_log: KernelLog | None = None
    #: How programs of jobs reach object storage; None for a machine that starts none.
    credentials: JobCredentials | None = None

    @property
    def cgroup_words(self) -> str:
        """What the cgroups limit here, for the user; empty when they limit nothing."""
        if self.cgroups is None:
            return ""
        return self.cgroups.description(hard_cpu_limit=self.settings.hard_cpu_limit)

    def new_cgroup(self, token: str, memory_mib: int, vcpus: float) -> AttemptCgroup | None:
        """Make the limits of an attempt, None where there are none; raises CannotIsolate."""
        if self.cgroups is None:
            return None
        group = self.cgroups.group(token)
        group.make(memory_mib, vcpus if self.settings.hard_cpu_limit else None)
        return group

    def user_of(self, wanted: RunAs | None) -> JobUser:
        """Return the user of an attempt; raises CannotStart."""
        return self.user if wanted is None else user_to_run_as(wanted)

    def wants_sandbox(self, needs_sandbox: bool, shared_memory_mib: int | None) -> bool:
        """Tell whether an attempt gets a sandbox: it asks for one, or must not see hidden files."""
        if self.tools is None:
            return False
        hidden_only_so = bool(self.settings.hide) and self.user.uid != 0 and not self.user.drop
        return needs_sandbox or shared_memory_mib is not None or hidden_only_so

    def inventory(
        self, attempts: list[AttemptStatus], extra_warnings: list[str], machine_id: str, now: int
    ) -> Inventory:
        """Return what a daemon is told when it connects."""
        abilities = ["process"]
        if self.tools is not None:
            abilities.append(self.tools.words)
        if self.cgroups is not None:
            abilities.append(self.cgroup_words)
        engine = self.engine.look() if self.engine is not None else None
        if engine is not None:
            abilities.append(f"containers ({engine.words})")
        elif self.settings.runtime == "container":
            extra_warnings = [*extra_warnings, NO_ENGINE]
        address = self.settings.address or own_address()
        return Inventory(
            hostname=os.uname().nodename,
            agent_pid=os.getpid(),
            vcpus=self.vcpus,
            memory_mib=self.memory_mib,
            gpus=self.gpus,
            abilities=abilities,
            job_user=self.user.name,
            warnings=[*self.warnings, *extra_warnings],
            attempts=attempts,
            settings=self.settings.digest,
            containers=engine.words if engine is not None else "",
            network_mbits=self.network_mbits,
            keeps_standbys=True,
            any_user=os.geteuid() == 0 and can_drop_in_one_thread(),
            machine_id=machine_id,
            address=address,
            interface=interface_of(address),
            protocol=PROTOCOL,
            oldest_protocol=OLDEST_PROTOCOL,
            now=now,
        )


def survey(settings: AgentSettings, gpus: list[GpuDevice] | None = None) -> Machine:
    """Find out what there is; really runs a sandbox and moves a process into a cgroup to see if it works."""
    gpus = find_gpus(settings.gpus) if gpus is None else gpus
    user = resolve_job_user(settings.job_user)
    if user.drop and not can_drop_in_one_thread():
        raise AgentError(
            f"jobs cannot be run as {user.name} on {os.uname().machine}: "
            "run the agent as that user, or say --job-user root"
        )
    if user.drop:
        check_becoming(user)
    tools = find_tools(user) if settings.use_sandbox else None
    cgroups = find_cgroups(f"windfall-{settings.agent_id}") if settings.use_cgroups else None
    return Machine(
        settings=settings,
        vcpus=settings.vcpus or float(len(os.sched_getaffinity(0))),
        memory_mib=settings.memory_mib or _total_memory_mib(),
        gpus=gpus,
        user=user,
        tools=tools,
        cgroups=cgroups,
        warnings=_warnings(settings, user, tools, cgroups),
        shares=DeviceShares(gpus, settings.agent_id),
        engine=EngineFinder(settings.container_socket, os.environ),
        network_mbits=find_network_mbits(),
        kernel_log=open_kernel_log(),
        credentials=JobCredentials(settings.directory, settings.objects_file),
    )


def _warnings(
    settings: AgentSettings, user: JobUser, tools: SandboxTools | None, cgroups: CgroupTree | None
) -> list[str]:
    lines = []
    if user.uid == 0:
        lines.append(
            "jobs run as root and can read everything on this machine: use --job-user to name another user"
        )
    elif not user.drop and user.name != settings.job_user:
        lines.append(
            f"jobs run as {user.name}, as the daemon does, and can do what that user can; run the daemon as root to let"
            f" them run as {settings.job_user}"
        )
    if tools is None:
        lines.append(
            "no sandbox: namespaces are not permitted here, with or without bubblewrap, so jobs share /tmp and /dev/shm"
            + ("" if user.drop else " and can read the daemon's files")
            + (
                "; jobs of different tenants are kept apart by their users alone"
                if settings.tenants_have_users
                else "; jobs of a second tenant are refused: install bubblewrap, or run the daemon as root with"
                " --job-users"
            )
        )
    if cgroups is None:
        lines.append(
            "no cgroup can be written: memory limits are enforced once a second, vCPU limits not at all;"
            " run the daemon as root, or as a systemd service (`windfall service install`)"
        )
    elif "memory" not in cgroups.controllers:
        lines.append("the memory cgroup cannot be written: memory limits are enforced once a second")
    return lines


def _total_memory_mib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
