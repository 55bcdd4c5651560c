"""The container engine: whether one answers, and whether it can give containers GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from windfall.agent.checkup.host import Host
from windfall.agent.checkup.packages import install, system_of
from windfall.agent.checkup.verdicts import Verdict, doubtful, good, skipped
from windfall.agent.container.engine import Engine
from windfall.agent.container.errors import EngineError
from windfall.agent.container.finding import EngineFacts, find_engine, usual_places

ENGINE, GPUS_IN_CONTAINERS = "container engine", "GPUs in containers"
_TOOLKIT = "nvidia-container-toolkit"


def ask_for_facts(found: EngineFacts) -> Mapping[str, object]:
    """What the engine says of itself and its host; nothing when it does not want to."""
    try:
        return Engine(found.socket, found.api).facts()
    except EngineError:
        return {}


def check_engine(
    host: Host,
    socket: str | None,
    *,
    has_gpus: bool,
    find: Callable[[str | None], EngineFacts | None] = lambda socket: find_engine(socket, os.environ),
    facts: Callable[[EngineFacts], Mapping[str, object]] = ask_for_facts,
) -> Iterator[Verdict]:
    """Ask the engine that the agent would use."""
    if socket == "none":
        yield skipped(ENGINE, "not looked for (container_socket is none): jobs run as processes of this host")
        return
    found = find(socket)
    if found is None:
        looked = socket or ", ".join(usual_places(os.environ))
        yield doubtful(
            ENGINE,
            f"none answers at {looked}: jobs run as processes of this host",
            _how_to_have_one(host),
        )
        return
    said = facts(found)
    driver = said.get("Driver")
    words = f"{found.words} at {found.socket}" + (f", {driver} storage" if driver else "")
    if driver == "vfs":
        yield doubtful(
            ENGINE, words, "use the overlay2 storage driver: vfs copies every layer of every container"
        )
    else:
        yield good(ENGINE, words)
    if has_gpus:
        yield _gpus(host, found, said)


def _how_to_have_one(host: Host) -> str:
    podman = f"systemctl {'' if host.is_root else '--user '}enable --now podman.socket"
    if host.run("dockerd", "--version") is not None:
        return "sudo systemctl enable --now docker: it is installed and does not run"
    if host.run("podman", "--version") is not None:
        return f"{podman}: it is installed and its socket is off"
    return f"{install(host, 'docker.io', 'docker')}; or Podman: {podman}"


def _gpus(host: Host, found: EngineFacts, said: Mapping[str, object]) -> Verdict:
    runtimes = said.get("Runtimes")
    if found.gpus_by_cdi:
        return good(GPUS_IN_CONTAINERS, "by CDI")
    if isinstance(runtimes, Mapping) and "nvidia" in runtimes:
        return good(GPUS_IN_CONTAINERS, "by NVIDIA's runtime")
    if host.run("nvidia-container-runtime-hook", "--help") is not None or host.run("nvidia-ctk", "--version"):
        configure = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
        return doubtful(GPUS_IN_CONTAINERS, f"{_TOOLKIT} is here and {found.kind} does not use it", configure)
    install = (
        f"install {_TOOLKIT} from NVIDIA's repository" if system_of(host) else f"install NVIDIA's {_TOOLKIT}"
    )
    return doubtful(
        GPUS_IN_CONTAINERS,
        "containers would see no GPU",
        f"{install}, then: sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
    )
