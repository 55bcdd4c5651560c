"""Which engines this daemon has, and how their agents are started: the one place besides engines/ that names an engine.

Decides settings of agents from the daemon's. A daemon can be put together without any one of them.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.reach import UnixReach
from windfall.agent.settings import AgentSettings
from windfall.control.ports import Engine, Sink
from windfall.daemon.directory import DataDirectory
from windfall.daemon.job_users import uids_for_tenants
from windfall.daemon.settings import Settings
from windfall.engines.local.engine import LocalEngine
from windfall.engines.simulated.engine import SimulatedEngine
from windfall.engines.simulated.settings import SimulatedSettings

#: Makes the engines of one term of leading: how they report, the epoch, and whether it comes with a lease. The first
#: serves environments that name none.
MakeEngines = Callable[[Sink, int, bool], dict[str, Engine]]

#: Engines that share out machines of one's own: they have no market price, and a job gets no more than they have.
_OWN_MACHINES = frozenset({LocalEngine.name})


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
    settings: Settings, directory: DataDirectory, files: AttemptDirectory, clock_ms: Callable[[], int]
) -> MakeEngines:
    """All engines of a daemon on this host."""
    own, fleet = UnixReach(_agent(settings, directory, files)), UnixReach(_fleet(settings, directory, files))

    def make(sink: Sink, epoch: int, leased: bool) -> dict[str, Engine]:
        local = LocalEngine(sink, own, files, epoch, leased=leased)
        simulated = SimulatedEngine(sink, fleet, files, epoch, _market(settings), clock_ms, leased=leased)
        engines: dict[str, Engine] = {engine.name: engine for engine in (local, simulated)}
        return {settings.engine: engines.pop(settings.engine), **engines}

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
        runtime=s.runtime,
        container_socket=s.container_socket,
        secrets_directory=str(directory.secrets),
        sample_every_s=s.sample_every_s,
        machine_samples=files.machine_samples,
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
        machine_samples=None,
    )


def _market(s: Settings) -> SimulatedSettings:
    return SimulatedSettings(
        boot_s=s.simulated_boot_s,
        mtbi_s=s.simulated_mtbi_s,
        notice_s=s.simulated_notice_s,
        speed=s.simulated_speed,
    )
