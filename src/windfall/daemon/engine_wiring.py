"""Which engines this daemon has, and how their agents are started: the one place besides engines/ that names an engine.

Decides settings of agents from the daemon's. A daemon can be put together without any one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.reach import UnixReach
from windfall.agent.settings import AgentSettings
from windfall.capacity.hosts import Host
from windfall.control.ports import Engine, Sink
from windfall.daemon.directory import DataDirectory
from windfall.daemon.job_users import uids_for_tenants
from windfall.daemon.settings import Settings
from windfall.engines.fleet.engine import FleetEngine
from windfall.engines.fleet.settings import FleetSettings
from windfall.engines.fleet.standing import Silence
from windfall.engines.hosts.destinations import parse_destination
from windfall.engines.hosts.reach import HostPlace, SshReach, agent_settings
from windfall.engines.hosts.ssh import Ssh
from windfall.engines.local.engine import LocalEngine
from windfall.engines.provisioning import SharedStock
from windfall.engines.ray.bridge_client import BridgeSettings
from windfall.engines.ray.engine import RayEngine, RaySettings
from windfall.engines.simulated.engine import SimulatedEngine
from windfall.engines.simulated.settings import SimulatedSettings

#: Makes the engines of one term of leading: how they report, the epoch, and whether it comes with a lease. The first
#: serves environments that name none.
MakeEngines = Callable[[Sink, int, bool], dict[str, Engine]]

#: The engine of a Ray cluster; there is one where `ray` says how the cluster is reached.
RAY = "ray"

#: Engines that share out machines of one's own: they have no market price, and a job gets no more than they have.
_OWN_MACHINES = frozenset({LocalEngine.name, "hosts"})


def unpriced_engines(settings: Settings) -> frozenset[str | None]:
    """The engines whose instances have no price of their own; None stands for the default engine."""
    return _OWN_MACHINES | ({None} if settings.engine in _OWN_MACHINES else set())


def trains_on_own_machines(settings: Settings) -> bool:
    """Whether training jobs get no more than this daemon's own machines have."""
    return training_engine(settings) in _OWN_MACHINES


def training_engine(settings: Settings) -> str:
    """The engine of training jobs."""
    return settings.training_engine or settings.engine


def wire_engines(
    settings: Settings,
    directory: DataDirectory,
    files: AttemptDirectory,
    clock_ms: Callable[[], int],
    stock: SharedStock = SharedStock(),  # noqa: B008 (frozen: nobody can change what others get)
    daemon_id: str = "windfall",
) -> MakeEngines:
    """All engines of a daemon on this host; `stock` is what other machines are provided with.

    The id tells this daemon's agents on other machines from those of others.
    """
    own, fleet = UnixReach(_agent(settings, directory, files)), UnixReach(_fleet(settings, directory, files))

    judged = FleetSettings(
        "hosts",
        Silence(lose_after_s=settings.lost_after_s),
        stock=stock,
        log_limit_bytes=settings.log_limit_bytes,
    )

    def make(sink: Sink, epoch: int, leased: bool) -> dict[str, Engine]:
        hosts = FleetEngine(
            sink,
            files,
            epoch,
            judged,
            leased=leased,
        )
        engines: dict[str, Engine] = {hosts.name: hosts}
        if not settings.hosts_only:
            local = LocalEngine(sink, own, files, epoch, leased=leased)
            market = _market(settings)
            simulated = SimulatedEngine(sink, fleet, files, epoch, market, clock_ms, leased=leased)
            engines = {local.name: local, simulated.name: simulated, **engines}
        if settings.ray is not None:
            bridge = BridgeSettings(settings.ray, settings.ray_python, settings.ray_trusts_network, daemon_id)
            ray = RaySettings(
                bridge, replace(judged, name=RAY), _on_any_machine(_agent(settings, directory, files))
            )
            engines[RAY] = RayEngine(sink, files, epoch, ray, clock_ms, leased=leased)
        return {settings.engine: engines.pop(settings.engine), **engines}

    return make


def _on_any_machine(agent: AgentSettings) -> AgentSettings:
    """The settings of an agent that takes what its machine has."""
    return msgspec.structs.replace(agent, gpus="auto", vcpus=None, memory_mib=None, container_socket=None)


def wire_hosts(
    settings: Settings, directory: DataDirectory, files: AttemptDirectory, ssh: Ssh
) -> Callable[[Host], SshReach]:
    """How the hosts that the user listed are reached."""

    def make(host: Host) -> SshReach:
        wanted = msgspec.structs.replace(
            _agent(settings, directory, files),
            gpus=host.gpus,
            vcpus=None,
            memory_mib=None,
            container_socket=None,
            address=host.address or "",
        )
        place = HostPlace(parse_destination(host.destination), host.python, host.base, host.root)
        return SshReach(ssh, place, agent_settings(host.root, wanted))

    return make


def _agent(s: Settings, directory: DataDirectory, files: AttemptDirectory) -> AgentSettings:
    return AgentSettings(
        directory=str(directory.agent),
        attempts_directory=str(directory.attempts),
        job_user=s.job_user,
        tenants_have_users=uids_for_tenants(s.job_users) is not None,
        gpus=s.gpus,
        vcpus=s.vcpus,
        memory_mib=s.memory_mib,
        hide=(str(directory.root),),
        objects_file=str(directory.objects_file),
        link_local_metadata=s.link_local_metadata,
        ec2_metadata=s.ec2_metadata,
        runtime=s.runtime,
        container_socket=s.container_socket,
        secrets_directory=str(directory.secrets),
        sample_every_s=s.sample_every_s,
        machine_samples=files.machine_samples,
        logs_directory=files.directory,
        log_limit_bytes=s.log_limit_bytes,
    )


def _fleet(s: Settings, directory: DataDirectory, files: AttemptDirectory) -> AgentSettings:
    """The agent that plays the simulated fleet: the host's size does not limit its instances."""
    return msgspec.structs.replace(
        _agent(s, directory, files),
        directory=str(directory.simulated_agent),
        attempts_directory=str(directory.simulated_attempts),
        hard_cpu_limit=False,
        # Only one agent per host can serve the address, and only one measures the host.
        link_local_metadata=False,
        # Its market takes instances away; the host itself is the other agent's affair.
        ec2_metadata="off",
        machine_samples=None,
    )


def _market(s: Settings) -> SimulatedSettings:
    return SimulatedSettings(
        boot_s=s.simulated_boot_s,
        mtbi_s=s.simulated_mtbi_s,
        notice_s=s.simulated_notice_s,
        speed=s.simulated_speed,
    )
