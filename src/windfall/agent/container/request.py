"""What a container engine is asked to make for an attempt: the body of Docker's ContainerCreate.

Decides how each thing that a definition says is told the engine, and where engines differ. Pure: it must not ask the
engine, touch a file, or know the keeper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windfall.agent.container.finding import EngineFacts
from windfall.agent.container.worker_command import PIPES_SEEN
from windfall.jobs.containers import ContainerOptions, ContainerRun, Mount

#: Where a checkout is seen that belongs nowhere else.
WORK = "/workspace"
#: Where secrets are seen as files.
SECRETS_SEEN = "/run/secrets"
#: Where the server of a model listens in a container of its own network, and the variable with the host's address.
SERVED_PORT, SERVE_ADDRESS = "8080/tcp", "WINDFALL_SERVE_ADDRESS"
AGENT_LABEL = "windfall.agent"
TOKEN_LABEL = "windfall.attempt"  # noqa: S105 - a label's name
TASK_LABEL = "windfall.task"
#: Docker takes no less.
_LEAST_MEMORY_MIB = 6


class Wanted(msgspec.Struct, frozen=True):
    """One container, apart from what its definition says."""

    token: str
    task_id: str
    agent_id: str
    run: ContainerRun
    environment: Mapping[str, str]
    vcpus: float
    memory_mib: int
    #: Real devices alone.
    gpu_ids: Sequence[str] = ()
    shared_memory_mib: int | None = None
    #: Directories of the host and where they are seen.
    binds: Sequence[tuple[str, str]] = ()
    #: None keeps the image's own.
    work: str | None = None
    #: Whether it needs what only the host's network has: the instance's metadata at the loopback address.
    wants_host_network: bool = False
    #: The names and addresses by which the hosts of its job know one another, its own alone if it has no others.
    hosts: Sequence[tuple[str, str]] = ()
    hard_cpu_limit: bool = True
    #: Where the copies of its secrets are; None when it has none.
    secrets_directory: str | None = None
    #: Where the pipes of a warm worker are; None for anything else.
    pipes_directory: str | None = None


def network_of(engine: EngineFacts, options: ContainerOptions, *, wants_host: bool) -> str:
    """Return the network of a container: its own wish, else one of its own where there is any, else the host's."""
    if options.network is not None:
        return options.network
    if options.publishes is not None and engine.has_bridge:
        return "bridge"
    return "host" if wants_host or not engine.has_bridge else "bridge"


def is_published(network: str, options: ContainerOptions) -> bool:
    """Return whether a port of a container is found at another one of the host."""
    return options.publishes is not None and network not in ("host", "none")


def isolation_words(engine: EngineFacts, network: str, options: ContainerOptions) -> str:
    """Return what keeps the container apart, for people."""
    notes = [engine.words]
    if network == "host":
        notes.append("host network" if engine.has_bridge else "host network: the engine has no bridge")
    if options.privileged:
        notes.append("privileged")
    return f"container ({', '.join(notes)})"


def create_body(engine: EngineFacts, wanted: Wanted) -> dict[str, Any]:
    """Return the whole request."""
    run, options = wanted.run, wanted.run.options
    body: dict[str, Any] = {
        "Image": run.image,
        "Env": [f"{name}={value}" for name, value in wanted.environment.items()],
        "Labels": {AGENT_LABEL: wanted.agent_id, TOKEN_LABEL: wanted.token, TASK_LABEL: wanted.task_id},
        "Tty": False,
        "HostConfig": _host_config(engine, wanted),
    }
    # An entrypoint that is given, even an empty one, takes the image's command away, as `docker run` has it.
    if run.entrypoint is not None:
        body["Entrypoint"] = list(run.entrypoint) or [""]
    if run.command:
        body["Cmd"] = list(run.command)
    if options.user is not None:
        body["User"] = options.user
    if wanted.work is not None:
        body["WorkingDir"] = wanted.work
    network = body["HostConfig"]["NetworkMode"]
    if is_published(network, options):
        body["ExposedPorts"] = {SERVED_PORT: {}}
    if len(wanted.hosts) == 1 and network != "host":
        body["Hostname"] = wanted.hosts[0][0]
    return body


def _host_config(engine: EngineFacts, wanted: Wanted) -> dict[str, Any]:
    options = wanted.run.options
    host: dict[str, Any] = {
        "NetworkMode": network_of(engine, options, wants_host=wanted.wants_host_network),
        "RestartPolicy": {"Name": "no"},
        "AutoRemove": False,
        "LogConfig": _log_config(engine),
        "Privileged": options.privileged,
        "ReadonlyRootfs": options.read_only_root,
        **_limits(engine, wanted),
        **_files(wanted),
        **_devices(engine, wanted),
    }
    if host["NetworkMode"] == "host" and not options.privileged:
        # On the host's network it could read what others send over the loopback address.
        host["CapDrop"] = ["NET_RAW"]
    if is_published(host["NetworkMode"], options):
        address = wanted.environment.get(SERVE_ADDRESS, "127.0.0.1")
        host["PortBindings"] = {SERVED_PORT: [{"HostIp": address, "HostPort": str(options.publishes)}]}
    if options.init:
        host["Init"] = True
    if options.ulimits:
        host["Ulimits"] = [{"Name": one.name, "Soft": one.soft, "Hard": one.hard} for one in options.ulimits]
    if wanted.shared_memory_mib is not None:
        host["ShmSize"] = wanted.shared_memory_mib << 20
    if wanted.hosts:
        host["ExtraHosts"] = [f"{name}:{address}" for name, address in wanted.hosts]
    return host


def _log_config(engine: EngineFacts) -> dict[str, Any]:
    """The log is copied from the engine's own file, from its beginning, so that must neither be cut nor elsewhere."""
    if engine.kind == "podman":
        return {"Type": "k8s-file", "Config": {}}
    return {"Type": "json-file", "Config": {"max-size": "1000t", "max-file": "1", "compress": "false"}}


def _limits(engine: EngineFacts, wanted: Wanted) -> dict[str, Any]:
    options = wanted.run.options
    limits: dict[str, Any] = {}
    if wanted.memory_mib > 0:
        memory = max(wanted.memory_mib, _LEAST_MEMORY_MIB) << 20
        limits["Memory"] = memory
        if options.max_swap_mib is not None:
            limits["MemorySwap"] = memory + (options.max_swap_mib << 20)
            # Without a size of the swap it has no meaning (ECS), and cgroup v2 has no such thing.
            if options.swappiness is not None and engine.cgroup_version == "1":
                limits["MemorySwappiness"] = options.swappiness
    if wanted.vcpus > 0:
        limits["CpuShares"] = max(2, int(wanted.vcpus * 1024))
        # More CPUs than there are is an error to the engine, and no limit to anybody.
        if wanted.hard_cpu_limit and wanted.vcpus <= engine.cpus:
            limits["NanoCpus"] = int(wanted.vcpus * 1_000_000_000)
    return limits


def _files(wanted: Wanted) -> dict[str, Any]:
    options = wanted.run.options
    mounts = [Mount(real, seen) for real, seen in wanted.binds]
    mounts += options.mounts
    if wanted.secrets_directory is not None:
        mounts.append(Mount(wanted.secrets_directory, SECRETS_SEEN, read_only=True))
    if wanted.pipes_directory is not None:
        # A pipe can be written to all the same, and nothing can be put in its place.
        mounts.append(Mount(wanted.pipes_directory, PIPES_SEEN, read_only=True))
    # A bind makes a missing directory of the host, as ECS has it; but no path with a colon can be told that way.
    short = [one for one in mounts if one.host_path is not None and ":" not in one.host_path + one.path]
    files: dict[str, Any] = {"Binds": [_bind(one) for one in short]}
    others = [_mount(one) for one in mounts if one not in short]
    if others:
        files["Mounts"] = others
    if options.tmpfs:
        files["Tmpfs"] = {
            one.path: ",".join((f"size={one.size_mib}m", *one.options)) for one in options.tmpfs
        }
    return files


def _bind(mount: Mount) -> str:
    return f"{mount.host_path}:{mount.path}" + (":ro" if mount.read_only else "")


def _mount(mount: Mount) -> dict[str, Any]:
    told: dict[str, Any] = {"Target": mount.path, "ReadOnly": mount.read_only, "Type": "volume"}
    return told if mount.host_path is None else {**told, "Type": "bind", "Source": mount.host_path}


def _devices(engine: EngineFacts, wanted: Wanted) -> dict[str, Any]:
    asked: dict[str, Any] = {}
    # A GPU is had by being allotted, never by naming its device node: that would be somebody else's.
    devices = [one for one in wanted.run.options.devices if not one.host_path.startswith("/dev/nvidia")]
    if devices:
        asked["Devices"] = [
            {"PathOnHost": one.host_path, "PathInContainer": one.path, "CgroupPermissions": one.permissions}
            for one in devices
        ]
    if not wanted.gpu_ids:
        return asked
    if engine.gpus_by_cdi:
        names = [f"nvidia.com/gpu={gpu}" for gpu in wanted.gpu_ids]
        asked["DeviceRequests"] = [{"Driver": "cdi", "DeviceIDs": names}]
    else:
        ids = list(wanted.gpu_ids)
        asked["DeviceRequests"] = [{"Driver": "nvidia", "DeviceIDs": ids, "Capabilities": [["gpu"]]}]
    return asked
