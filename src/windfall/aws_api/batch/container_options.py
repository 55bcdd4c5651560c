"""containerProperties beyond image, command and amounts: what Docker and AWS call the container's own settings.

Decides which values are allowed and what they mean for the core, and from what AWS calls a secret (`valueFrom`) the
name under which this daemon keeps its own. The whole registration is kept and returned as it was sent. Must not know
which job runs as a container, what the host has, nor whether a secret exists.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from windfall.aws_api.batch.rejections import client_exception, shown
from windfall.jobs.containers import SECRET_NAME, ContainerOptions, Device, Mount, Secret, Tmpfs, Ulimit

SWAPPINESS_MAX = 100
_ULIMIT = re.compile(
    "core|cpu|data|fsize|locks|memlock|msgqueue|nice|nofile|nproc|rss|rtprio|rttime|sigpending|stack"
)
#: As AWS lists them; the last line may have values, as in `mode=1777`.
_TMPFS_OPTION = re.compile(
    "defaults|ro|rw|(no)?suid|(no)?dev|(no)?exec|sync|async|dirsync|remount|(no)?mand|(no)?(dir)?atime|(no)?relatime"
    "|(no)?strictatime|r?bind|(run|un)bindable|r?private|r?shared|r?slave"
    "|(mode|uid|gid|nr_inodes|nr_blocks|mpol)(=[^,]+)?"
)
_USER = re.compile(r"[a-z0-9_][a-z0-9_-]{0,30}")
_VOLUME = re.compile(r"[A-Za-z0-9_-]{1,255}")
_PERMISSIONS = {"READ": "r", "WRITE": "w", "MKNOD": "m"}
_NOT_ON_FARGATE = ("devices", "sharedMemorySize", "tmpfs", "maxSwap", "swappiness")
#: A GPU is asked for by resourceRequirements; a fixed device file would reach past what the job was given.
_GPU_DEVICES = "/dev/nvidia"

Sent = Mapping[str, Any]


def container_options(container: Sent, environment: Mapping[str, str], *, fargate: bool) -> ContainerOptions:
    """What containerProperties say about the container, all of it checked."""
    linux = container.get("linuxParameters") or {}
    if fargate:
        _check_fargate(container, linux)
    user = container.get("user")
    if user and _USER.fullmatch(user) is None:
        raise client_exception(f"User '{shown(user)}' does not match regex ^([a-z0-9_][a-z0-9_-]{{0,30}})$")
    max_swap = _not_negative(linux.get("maxSwap"), "maxSwap")
    swappiness = _not_negative(linux.get("swappiness"), "swappiness")
    if swappiness is not None and swappiness > SWAPPINESS_MAX:
        raise client_exception(f"swappiness must be between 0 and {SWAPPINESS_MAX}, got {swappiness}")
    tmpfs = tuple(_tmpfs(entry) for entry in linux.get("tmpfs", ()))
    mounts = _mounts(container.get("volumes", ()), container.get("mountPoints", ()))
    _check_paths([*(mount.path for mount in mounts), *(file_system.path for file_system in tmpfs)])
    return ContainerOptions(
        user=user or None,
        privileged=container.get("privileged", False),
        read_only_root=container.get("readonlyRootFilesystem", False),
        init=linux.get("initProcessEnabled", False),
        ulimits=_ulimits(container.get("ulimits", ())),
        mounts=mounts,
        tmpfs=tmpfs,
        devices=tuple(_devices(linux.get("devices", ()))),
        secrets=_secrets(container.get("secrets", ()), environment),
        max_swap_mib=max_swap,
        # As on AWS it says nothing without maxSwap.
        swappiness=None if max_swap is None else swappiness,
    )


def not_applied(options: ContainerOptions) -> list[str]:
    """The members of containerProperties that mean nothing to a job that runs as a process."""
    members = {
        "user": options.user,
        "privileged": options.privileged,
        "readonlyRootFilesystem": options.read_only_root,
        "ulimits": options.ulimits,
        "mountPoints": options.mounts,
        "linuxParameters.initProcessEnabled": options.init,
        "linuxParameters.tmpfs": options.tmpfs,
        "linuxParameters.devices": options.devices,
        "linuxParameters.maxSwap": options.max_swap_mib is not None,
    }
    return [member for member, value in members.items() if value]


def _check_fargate(container: Sent, linux: Sent) -> None:
    if container.get("privileged"):
        raise client_exception("privileged not applicable for Fargate.")
    for member in _NOT_ON_FARGATE:
        if linux.get(member):
            raise client_exception(f"{member} not applicable for Fargate.")
    if any((volume.get("host") or {}).get("sourcePath") for volume in container.get("volumes", ())):
        raise client_exception("host volume not applicable for Fargate.")


def _not_negative(value: int | None, member: str) -> int | None:
    if value is not None and value < 0:
        raise client_exception(f"{member} must be at least 0, got {value}")
    return value


def _ulimits(sent: Sequence[Sent]) -> tuple[Ulimit, ...]:
    ulimits: dict[str, Ulimit] = {}
    for entry in sent:
        name, soft, hard = entry["name"], entry["softLimit"], entry["hardLimit"]
        if _ULIMIT.fullmatch(name) is None:
            valid = _ULIMIT.pattern.replace("|", ", ")
            raise client_exception(f"Ulimit {shown(name)!r} is not valid, it must be one of {valid}")
        if name in ulimits:
            raise client_exception(f"Ulimit {name} is provided more than once")
        # -1 means unlimited.
        if soft < -1 or hard < -1 or (hard != -1 and (soft > hard or soft == -1)):
            raise client_exception(
                f"Ulimit {name} must have a softLimit ({soft}) of at most its hardLimit ({hard}), both at least -1"
            )
        ulimits[name] = Ulimit(name, soft, hard)
    return tuple(ulimits.values())


def _mounts(volumes: Sequence[Sent], points: Sequence[Sent]) -> tuple[Mount, ...]:
    sources: dict[str, str | None] = {}
    for volume in volumes:
        name = volume.get("name") or ""
        if _VOLUME.fullmatch(name) is None:
            raise client_exception(
                f"Volume name {shown(name)!r} must have 1 to 255 letters, digits, hyphens and underscores"
            )
        if name in sources:
            raise client_exception(f"Volume {name} is provided more than once")
        sources[name] = _source(name, volume)
    return tuple(_mount(point, sources) for point in points)


def _source(name: str, volume: Sent) -> str | None:
    """The directory of the host that a volume is; None for a fresh one."""
    for member in ("efsVolumeConfiguration", "s3filesVolumeConfiguration"):
        if volume.get(member):
            raise client_exception(
                f"Windfall does not support {member} (volume {name}): mount the file system on this host and name its"
                " directory in host.sourcePath. Nothing has been changed."
            )
    path = (volume.get("host") or {}).get("sourcePath")
    return _absolute(path, f"host.sourcePath of volume {name}") if path else None


def _mount(point: Sent, sources: Mapping[str, str | None]) -> Mount:
    name, path = point.get("sourceVolume") or "", point.get("containerPath") or ""
    if name not in sources:
        raise client_exception(
            f"Unknown volume '{shown(name)}'; the sourceVolume of a mount point must be the name of one of volumes"
        )
    return Mount(
        sources[name], _inside(path, f"containerPath of volume {name}"), point.get("readOnly", False)
    )


def _tmpfs(entry: Sent) -> Tmpfs:
    path, size, options = entry["containerPath"], entry["size"], tuple(entry.get("mountOptions", ()))
    if size < 1:
        raise client_exception(f"The size of tmpfs {shown(path)} must be at least 1 MiB, got {size}")
    for option in options:
        if _TMPFS_OPTION.fullmatch(option) is None:
            raise client_exception(
                f"mountOptions {shown(option)!r} of tmpfs {shown(path)} is not one that AWS Batch takes"
            )
    return Tmpfs(_inside(path, "containerPath of tmpfs"), size, options)


def _devices(sent: Sequence[Sent]) -> list[Device]:
    devices = []
    for entry in sent:
        host = _absolute(entry["hostPath"], "hostPath of a device")
        path = _absolute(entry.get("containerPath") or host, "containerPath of a device")
        if not host.startswith(_GPU_DEVICES):
            words = entry.get("permissions") or tuple(_PERMISSIONS)
            allowed = "".join(letter for word, letter in _PERMISSIONS.items() if word in words)
            devices.append(Device(host, path, allowed))
    return devices


def _secrets(sent: Sequence[Sent], environment: Mapping[str, str]) -> tuple[Secret, ...]:
    secrets: dict[str, Secret] = {}
    for entry in sent:
        secret = secret_of(entry["name"], entry["valueFrom"])
        if secret.name in environment or secret.name in secrets:
            # As ECS words it.
            raise client_exception(
                "The secret name must be unique and not shared with any new or existing environment variables set on"
                f" the container, such as '{secret.name}'"
            )
        secrets[secret.name] = secret
    return tuple(secrets.values())


def _check_paths(paths: Sequence[str]) -> None:
    for path in paths:
        if paths.count(path) > 1:
            raise client_exception(f"containerPath {shown(path)} is used more than once")


def _inside(path: str, what: str) -> str:
    """A place in the container where something can be mounted."""
    place = _absolute(path, what)
    if place == "/":
        raise client_exception(f"{what} must not be /, which is the image itself")
    return place


def _absolute(path: str, what: str) -> str:
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise client_exception(f"{what} must be an absolute path without .., got {shown(path)!r}")
    return posixpath.normpath("/" + path.lstrip("/"))


#: What a variable, and a file below /run/secrets, may be called.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,199}", re.ASCII)
#: What Secrets Manager puts behind a secret's own name; six lower-case letters are more likely to be a word of it.
_SUFFIX = re.compile(r"-(?![a-z]{6}$)[A-Za-z0-9]{6}$", re.ASCII)
_SECRETS_MANAGER = re.compile(r"arn:[a-z-]+:secretsmanager:[a-z0-9-]*:[0-9]*:secret:(.+)", re.ASCII)
_PARAMETER = re.compile(r"arn:[a-z-]+:ssm:[a-z0-9-]*:[0-9]*:parameter/(.+)", re.ASCII)
_CURRENT = "AWSCURRENT"
#: Variables that decide which GPUs a job sees and how its processes are found; a secret must not set them.
_RESERVED = ("AWS_BATCH", "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "WINDFALL_")


def secret_of(name: str, value_from: str) -> Secret:
    """The secret that an entry of `secrets` asks for: by Secrets Manager ARN, parameter ARN or plain name."""
    if _VARIABLE.fullmatch(name) is None or name.startswith(_RESERVED):
        raise client_exception(
            f"Secret name {shown(name)!r} cannot be an environment variable: use letters, digits and underscores, the"
            f" first no digit, and none of {', '.join(_RESERVED)} at the beginning"
        )
    key = ""
    if whole := _SECRETS_MANAGER.fullmatch(value_from):
        path, key = _secrets_manager(whole[1], value_from)
    elif parameter := _PARAMETER.fullmatch(value_from):
        path = parameter[1]
    elif value_from.startswith("arn:"):
        raise _not_valid(value_from, "it must be the ARN of a Secrets Manager secret or of an SSM parameter")
    else:
        path = value_from
    last = path.rstrip("/").rpartition("/")[2]
    if SECRET_NAME.fullmatch(last) is None:
        raise _not_valid(value_from, "its last part must consist of letters, digits, '_', '.' and '-'")
    return Secret(name, last, key)


def _secrets_manager(text: str, value_from: str) -> tuple[str, str]:
    """Path and JSON member of `NAME-SUFFIX[:key[:stage[:version]]]`."""
    path, *rest = text.split(":")
    key, stage, version = (*rest, "", "", "")[:3]
    if len(rest) > 3 or version or stage not in ("", _CURRENT):
        raise _not_valid(value_from, "Windfall keeps one version of a secret; leave out stage and version")
    return _SUFFIX.sub("", path), key


def _not_valid(value_from: str, why: str) -> Exception:
    return client_exception(f"valueFrom {shown(value_from)!r} is not valid: {why}")
