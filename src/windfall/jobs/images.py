"""Images without a container engine: an image name stands for a directory and a command of this host.

Decides what an attempt's command line is. Must not look whether the directory exists: the agent finds out.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from windfall.jobs.definitions import ContainerSpec


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
    """What the agent is to run."""

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


def host_command(container: ContainerSpec, mappings: Iterable[ImageMapping]) -> HostCommand | None:
    """What to run on this host, or None when the image is not mapped and the job has no command of its own."""
    mapping = find_mapping(container.image, mappings)
    own = container.entrypoint
    if mapping is None:
        argv = (own or ()) + container.command
        return HostCommand(argv, None, container.environment) if argv else None
    argv = (mapping.entrypoint if own is None else own) + container.command
    if not argv:
        return None
    return HostCommand(argv, mapping.directory, {**mapping.environment, **container.environment})


def not_runnable_reason(image: str) -> str:
    """What a job is told whose image cannot be run here."""
    return (
        f"CannotPullContainerError: no directory of this host is mapped to image {image} and the job has no command;"
        f' run: windfall image add {image} --dir DIR --entrypoint "COMMAND"'
    )
