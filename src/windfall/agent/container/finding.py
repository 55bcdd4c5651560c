"""Which container engine answers on this machine, and what it can do.

Decides where it is looked for, and how it is called. Must not know attempts.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from windfall.agent.container.engine import Engine, negotiated, objects_in
from windfall.agent.container.errors import EngineError

#: An engine that hangs must not keep the agent from starting.
_ANSWERS_WITHIN_S = 5.0
NO_ENGINE = (
    "no container engine answers here: start Docker or Podman, or name its socket with --container-socket"
)
_NVIDIA_HOOK = "nvidia-container-runtime-hook"
_PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
_CDI_DIRECTORIES = ("/etc/cdi", "/var/run/cdi", "/run/cdi")


class EngineFacts(msgspec.Struct, frozen=True):
    """An engine as this agent may use it."""

    socket: str
    #: The version of the API to speak.
    api: str
    #: docker or podman.
    kind: str
    version: str
    #: What a CPU limit may not exceed.
    cpus: float
    cgroup_version: str = "1"
    #: Whether containers can have a network of their own that reaches out.
    has_bridge: bool = True
    #: Whether GPUs are asked for by CDI's names rather than from NVIDIA's hook.
    gpus_by_cdi: bool = False

    @property
    def gives_gpus(self) -> bool:
        """Whether a request for GPUs is honoured; Podman before 5.4 takes it and starts the container without."""
        numbers = [int(part) for part in self.version.split(".")[:2] if part.isdigit()]
        return self.kind != "podman" or numbers >= [5, 4]

    @property
    def words(self) -> str:
        """How it is called in an inventory."""
        return f"{self.kind} {self.version}"


def find_engine(setting: str | None, environment: Mapping[str, str]) -> EngineFacts | None:
    """Return the first engine that answers; with a setting only that one is asked, and for `none` nobody."""
    if setting == "none":
        return None
    places = [setting.removeprefix("unix://")] if setting else list(usual_places(environment))
    for path in places:
        try:
            if stat.S_ISSOCK(os.stat(path).st_mode):
                return _ask(path)
        except (OSError, EngineError):
            continue
    return None


def usual_places(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield where engines listen: what the user says, then the user's own, then the machine's."""
    said = environment.get("DOCKER_HOST", "")
    if said.startswith("unix://"):
        yield said.removeprefix("unix://")
    own = environment.get("XDG_RUNTIME_DIR")
    if own:
        yield from (f"{own}/docker.sock", f"{own}/podman/podman.sock")
    yield from ("/var/run/docker.sock", "/run/podman/podman.sock")


def _ask(path: str) -> EngineFacts:
    version = Engine(path, timeout_s=_ANSWERS_WITHIN_S).version()
    api = negotiated(str(version.get("ApiVersion", "")), str(version.get("MinAPIVersion", "")))
    engine = Engine(path, api, timeout_s=_ANSWERS_WITHIN_S)
    return describe(
        path, api, version, engine.facts(), engine.networks(), _has_nvidia_hook(), cdi_names_nvidia()
    )


def describe(
    path: str,
    api: str,
    version: Mapping[str, Any],
    facts: Mapping[str, Any],
    networks: Sequence[str],
    has_nvidia_hook: bool,
    has_cdi: bool,
) -> EngineFacts:
    """Make sense of an engine's answers."""
    names = [str(part.get("Name", "")) for part in objects_in(version.get("Components"))]
    cpus, runtimes = facts.get("NCPU"), facts.get("Runtimes")
    is_podman = any("podman" in name.lower() for name in names)
    by_hook = not is_podman and (
        has_nvidia_hook or "nvidia" in (runtimes if isinstance(runtimes, dict) else ())
    )
    # Docker says where it looks for CDI's files when it does; Podman always looks.
    knows_cdi = is_podman or bool(facts.get("CDISpecDirs"))
    return EngineFacts(
        socket=path,
        api=api,
        kind="podman" if is_podman else "docker",
        version=str(version.get("Version", "")).split("+")[0],
        cpus=float(cpus if isinstance(cpus, int) and cpus > 0 else os.cpu_count() or 1),
        cgroup_version=str(facts.get("CgroupVersion") or "1").removeprefix("v"),
        has_bridge="bridge" in networks or "podman" in networks,
        gpus_by_cdi=is_podman or (not by_hook and knows_cdi and has_cdi),
    )


def _has_nvidia_hook() -> bool:
    return any(os.access(f"{directory}/{_NVIDIA_HOOK}", os.X_OK) for directory in _PROGRAMS)


def cdi_names_nvidia(directories: Sequence[str] = _CDI_DIRECTORIES) -> bool:
    """Tell whether somebody has described this machine's GPUs for CDI (`nvidia-ctk cdi generate`)."""
    for directory in directories:
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        if any("nvidia" in name and name.endswith((".yaml", ".yml", ".json")) for name in names):
            return True
    return False


class EngineFinder:
    """The engine of this machine, looked for again as long as there is none: it may be started after the agent."""

    def __init__(self, setting: str | None, environment: Mapping[str, str]) -> None:
        self._setting = setting
        self._environment = environment
        self.facts: EngineFacts | None = None
        self.look()

    def look(self) -> EngineFacts | None:
        """Return the engine, after another look if none was found before."""
        if self.facts is None:
            self.facts = find_engine(self._setting, self._environment)
        return self.facts
