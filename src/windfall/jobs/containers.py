"""How a container is to be run, beyond its image, command and resources: what Batch's containerProperties say.

Values only: the wire writes them, the core carries them, the agent gives them to the container engine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from windfall.jobs.submitters import DEFAULT_TENANT
from windfall.jobs.tenants import TENANT_NAME, split_name

#: What the daemon's own secrets are called. Each is a file of that name; see `secret_file`.
SECRET_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}", re.ASCII)


def secret_file(kept_name: str) -> str | None:
    """The file of a secret below the directory of all secrets, by its kept name; None if no secret can be called so.

    Other tenants than `default` have a directory each. No secret's name begins with an @.
    """
    tenant, name = split_name(kept_name)
    if SECRET_NAME.fullmatch(name) is None or TENANT_NAME.fullmatch(tenant) is None:
        return None
    return name if tenant == DEFAULT_TENANT else f"@{tenant}/{name}"


class Runtime(StrEnum):
    """What an attempt is: a process of the host, or a container. AUTO takes a container where an engine answers."""

    AUTO = "auto"
    PROCESS = "process"
    CONTAINER = "container"


class Pull(StrEnum):
    """When an image is fetched."""

    MISSING = "missing"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Ulimit:
    """One limit of `ulimit`."""

    name: str
    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory of the host, or a volume of the engine that lives as long as the container, seen at `path`."""

    #: None means a fresh volume.
    host_path: str | None
    path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Tmpfs:
    """Memory as a file system."""

    path: str
    size_mib: int
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Device:
    """A device node of the host."""

    host_path: str
    path: str
    #: Any of r, w, m.
    permissions: str = "rwm"


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret of the daemon's own store, by name; its value never leaves the agent except into the container."""

    #: The environment variable, and the name of the file under /run/secrets.
    name: str
    #: As it is kept: `<tenant>/<name>` for another tenant than `default`.
    secret: str
    #: The member of a secret that is a JSON object; empty means all of it.
    key: str = ""


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """All that a definition says about its container."""

    user: str | None = None
    privileged: bool = False
    read_only_root: bool = False
    init: bool = False
    ulimits: tuple[Ulimit, ...] = ()
    mounts: tuple[Mount, ...] = ()
    tmpfs: tuple[Tmpfs, ...] = ()
    devices: tuple[Device, ...] = ()
    secrets: tuple[Secret, ...] = ()
    #: MiB of swap beside the memory; None leaves the engine's default, 0 forbids it.
    max_swap_mib: int | None = None
    swappiness: int | None = None
    pull: Pull = Pull.MISSING
    #: None lets the engine choose; `host`, `bridge` and `none` are the engine's own words.
    network: str | None = None
    #: The port of the host at which its port 8080 is found; on the host's own network it listens there itself.
    publishes: int | None = None

    @property
    def reaches_host(self) -> bool:
        """Whether it opens the host to the container, so that root inside is as good as root outside."""
        return (
            self.privileged or bool(self.devices) or any(mount.host_path is not None for mount in self.mounts)
        )


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """What the agent asks the engine for, for one attempt."""

    image: str
    #: None keeps the image's own.
    entrypoint: tuple[str, ...] | None
    #: Empty keeps the image's own.
    command: tuple[str, ...]
    options: ContainerOptions = field(default_factory=ContainerOptions)
