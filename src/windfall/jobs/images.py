"""What an image name stands for: a container, or a directory and a command of this host.

Decides whether an attempt is a container and what its command line is. Must not look whether the directory or the
image exists: the agent finds out.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from windfall.jobs.aws_texts import CANNOT_CREATE, CANNOT_PULL
from windfall.jobs.containers import ContainerOptions, ContainerRun, Pull, Runtime
from windfall.jobs.definitions import ContainerSpec

#: The name of no image: the host itself.
HOST_IMAGE = "windfall/host"


@dataclass(frozen=True, slots=True)
class ImageMapping:
    """What an image name (globs allowed) stands for on this host."""

    pattern: str
    #: Working directory of the attempt; None means a private, empty one.
    directory: str | None
    #: Put before the job's own command, as an image's ENTRYPOINT is.
    entrypoint: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostCommand:
    """What the agent is to run as a process."""

    argv: tuple[str, ...]
    directory: str | None
    environment: Mapping[str, str]


def find_mapping(image: str, mappings: Iterable[ImageMapping]) -> ImageMapping | None:
    """The mapping for an image: an exact name first, then the longest glob that matches."""
    best: ImageMapping | None = None
    for mapping in mappings:
        if mapping.pattern == image:
            return mapping
        if fnmatch.fnmatchcase(image, mapping.pattern) and (
            best is None or len(mapping.pattern) > len(best.pattern)
        ):
            best = mapping
    return best


def is_container(
    image: str, wish: Runtime | None, rule: Runtime, mappings: Iterable[ImageMapping], *, has_engine: bool
) -> bool:
    """Whether a job is to be a container: by its own wish, else by the daemon's rule.

    Asked for, it is one even where no engine answers, so that it fails rather than run as something else.
    """
    if wish is None and image == HOST_IMAGE:
        return False
    runtime = wish or rule
    if runtime is not Runtime.AUTO:
        return runtime is Runtime.CONTAINER
    return has_engine and image != HOST_IMAGE and find_mapping(image, mappings) is None


def container_run(container: ContainerSpec, pull: Pull | None) -> ContainerRun:
    """What the agent is to ask its container engine for."""
    options: ContainerOptions = container.options if pull is None else replace(container.options, pull=pull)
    return ContainerRun(container.image, container.entrypoint, container.command, options)


def host_command(container: ContainerSpec, mappings: Iterable[ImageMapping]) -> HostCommand | None:
    """What to run on this host, or None when the image is not mapped and the job has no command of its own."""
    mapping = find_mapping(container.image, mappings)
    own, program = container.entrypoint, container.on_host
    if mapping is not None:
        argv = (mapping.entrypoint if own is None else own) + container.command
        command = HostCommand(argv, mapping.directory, {**mapping.environment, **container.environment})
    elif program is not None:
        environment = {**container.environment, **program.environment}
        command = HostCommand(program.command, program.directory, environment)
    else:
        command = HostCommand((own or ()) + container.command, None, container.environment)
    return command if command.argv else None


def not_runnable_reason(container: ContainerSpec) -> str:
    """What a job is told whose image cannot be run here."""
    image = container.image
    if container.on_host is not None and container.on_host.refusal:
        return container.on_host.refusal
    return (
        f"{CANNOT_PULL}: as a process, image {image} needs a directory and a command of this host;"
        f' run: windfall image add {image} --dir DIR --entrypoint "COMMAND"'
    )


def no_engine_reason(image: str) -> str:
    """What a job is told that is to be a container where none can run."""
    if image == HOST_IMAGE:
        return (
            f"{CANNOT_CREATE}: {HOST_IMAGE} is this host and no image; name an image (windfall run --image"
            " IMAGE), or leave out windfall:runtime=container"
        )
    return (
        f"{CANNOT_CREATE}: no container engine answers here; start Docker or Podman (or name its socket with"
        " --container-socket) and then Windfall again, or leave out runtime=container"
    )
