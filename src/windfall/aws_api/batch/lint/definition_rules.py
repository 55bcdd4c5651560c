"""Rules about job definitions: GPUs, shared memory, devices, spot capacity, images, secrets.

Each rule is a function from a definition to at most one finding, beside what it looks for. Must not do any I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from windfall.aws_api.batch.ecs_properties import first_essential
from windfall.aws_api.batch.job_fields import retry_strategy
from windfall.aws_api.batch.lint.context import LintContext
from windfall.aws_api.batch.lint.findings import Rule, Severity
from windfall.aws_api.protocol.errors import ApiError
from windfall.jobs.aws_texts import HOST_LOST, host_lost
from windfall.jobs.ids import InstanceId
from windfall.jobs.images import HOST_IMAGE
from windfall.jobs.retry import ONCE, Action, decide

Document = Mapping[str, Any]
#: What was seen, and what to write instead; None when all is well.
Check = Callable[[Document, Document, LintContext], tuple[str, str] | None]

#: Docker's own size of /dev/shm, and the least that loaders of training data are content with.
DEFAULT_SHARED_MIB, ENOUGH_SHARED_MIB = 64, 2048
CHECKPOINT_TAGS = ("windfall:checkpoint", "windfall-checkpoint")

_CUDA_IMAGE = re.compile(r"cuda|nvidia|nvcr\.io|[-_:.]gpu\b|\bgpu[-_:]", re.IGNORECASE)
_CPU_IMAGE = re.compile(r"[-_:.]cpu\b", re.IGNORECASE)
#: A reference to a parameter that is not an argument of its own.
_PLACEHOLDER_INSIDE = re.compile(r"(?<=.)Ref::[A-Za-z0-9_-]+", re.DOTALL)
_SECRET_NAME = re.compile(
    r"(^|_)(PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|PRIVATE_?KEY|CREDENTIALS?)($|_)|SECRET_ACCESS_KEY",
    re.IGNORECASE,
)


def gpus_of(container: Document) -> int:
    """How many GPUs a container asks for."""
    requested = (
        requirement["value"]
        for requirement in container.get("resourceRequirements", ())
        if requirement.get("type") == "GPU"
    )
    return sum(int(value) for value in requested if str(value).isdigit())


def _shared_memory(_: Document, container: Document, __: LintContext) -> tuple[str, str] | None:
    size = container.get("linuxParameters", {}).get("sharedMemorySize")
    if not gpus_of(container) or (size or 0) >= ENOUGH_SHARED_MIB:
        return None
    if not size and container.get("image") == HOST_IMAGE:
        return None  # No container: it has the host's own.
    has = f"sharedMemorySize is {size} MiB" if size else f"no sharedMemorySize: {DEFAULT_SHARED_MIB} MiB"
    return has, f"set linuxParameters.sharedMemorySize to {ENOUGH_SHARED_MIB} or more"


def _visible_devices(_: Document, container: Document, __: LintContext) -> tuple[str, str] | None:
    for entry in container.get("environment", ()):
        if entry.get("name") == "NVIDIA_VISIBLE_DEVICES":
            return (
                f"NVIDIA_VISIBLE_DEVICES={entry.get('value', '')} is set",
                "leave it out: the GPUs that were allotted are made visible by themselves",
            )
    return None


def _device_mapping(_: Document, container: Document, __: LintContext) -> tuple[str, str] | None:
    devices = container.get("linuxParameters", {}).get("devices", ())
    named = [
        device["hostPath"] for device in devices if str(device.get("hostPath", "")).startswith("/dev/nvidia")
    ]
    if not named:
        return None
    return f"{', '.join(named)} is mapped by hand", "leave it out, and ask for GPUs in resourceRequirements"


def _fargate(definition: Document, container: Document, __: LintContext) -> tuple[str, str] | None:
    if "FARGATE" not in (definition.get("platformCapabilities") or ()) or not gpus_of(container):
        return None
    return "GPUs are asked for on Fargate", "use platformCapabilities EC2 and an environment of GPU types"


def _spot_retry(definition: Document, _: Document, around: LintContext) -> tuple[str, str] | None:
    if not around.spot or "windfall:checkpoint" in definition.get("tags", {}):
        return None
    strategy = definition.get("retryStrategy") or {}
    try:
        read = retry_strategy(strategy) or ONCE
    except ApiError:
        return None  # It is refused as it stands.
    if decide(read, 1, host_lost(InstanceId("i-0")), None, None) is Action.RETRY:
        return None
    attempts = strategy.get("attempts", 1)
    if attempts < 2:
        return f"retryStrategy.attempts is {attempts}", "set it to 3 or more: an interruption uses one up"
    return (
        "no rule of evaluateOnExit retries a lost host",
        f'put {{"onStatusReason": "{HOST_LOST}*", "action": "RETRY"}} first',
    )


def _spot_checkpoint(definition: Document, _: Document, around: LintContext) -> tuple[str, str] | None:
    settings = {**definition.get("tags", {}), **definition.get("parameters", {})}
    if not around.spot or any(name in settings for name in CHECKPOINT_TAGS):
        return None
    return (
        "it may run on spot capacity and keeps no checkpoints",
        "tag it windfall:checkpoint=true and save into $WINDFALL_CHECKPOINT_DIR",
    )


def _cuda_without_gpu(_: Document, container: Document, __: LintContext) -> tuple[str, str] | None:
    image = container.get("image", "")
    if gpus_of(container) or not _CUDA_IMAGE.search(image):
        return None
    return (
        f"image {image} is built for GPUs and none is asked for",
        'add {"type": "GPU", "value": "1"} to resourceRequirements',
    )


def _gpu_without_cuda(_: Document, container: Document, __: LintContext) -> tuple[str, str] | None:
    image = container.get("image", "")
    if not gpus_of(container) or not _CPU_IMAGE.search(image):
        return None
    return f"GPUs are asked for and image {image} is a CPU build", "use the image's CUDA build"


def _too_large(_: Document, container: Document, around: LintContext) -> tuple[str, str] | None:
    gpus = gpus_of(container)
    if around.types is None or not gpus:
        return None
    most = max((instance_type.gpus for instance_type in around.types), default=0)
    if gpus <= most:
        return None
    return (
        f"GPUs asked for: {gpus}; the largest type of its environments has {most or 'none'}",
        "add a larger type, such as "
        + ("g5.12xlarge (4 GPUs)" if gpus <= 4 else "p4d.24xlarge (8 GPUs)")
        + ", or ask for fewer",
    )


def _no_timeout(definition: Document, container: Document, __: LintContext) -> tuple[str, str] | None:
    if not gpus_of(container) or definition.get("timeout", {}).get("attemptDurationSeconds"):
        return None
    return "a GPU job without a timeout", "set timeout.attemptDurationSeconds to well above its usual time"


def _privileged(_: Document, container: Document, __: LintContext) -> tuple[str, str] | None:
    if not container.get("privileged"):
        return None
    return "privileged is true", "leave it out; GPUs do not need it"


def _floating_image(_: Document, container: Document, __: LintContext) -> tuple[str, str] | None:
    image = container.get("image", "")
    name = image.rpartition("/")[2]
    if "@sha256:" in image or image == HOST_IMAGE or (":" in name and not name.endswith(":latest")):
        return None
    return f"image {image} names no version", "name a tag, or better the digest: image@sha256:..."


def _plain_secret(_: Document, container: Document, __: LintContext) -> tuple[str, str] | None:
    named = [
        variable["name"]
        for variable in container.get("environment", ())
        if _SECRET_NAME.search(variable.get("name", "")) and variable.get("value")
    ]
    if not named:
        return None
    return f"{', '.join(named)} stands in the definition", "move it to secrets, and keep the value elsewhere"


def _old_members(_: Document, container: Document, __: LintContext) -> tuple[str, str] | None:
    old = [name for name in ("vcpus", "memory") if name in container]
    if not old:
        return None
    return f"{' and '.join(old)} are deprecated by AWS", "use resourceRequirements VCPU and MEMORY"


def _placeholder_inside(_: Document, container: Document, __: LintContext) -> tuple[str, str] | None:
    for word in container.get("command", ()):
        match = _PLACEHOLDER_INSIDE.search(word)
        if match is not None and not word.startswith("Ref::"):
            return (
                f"{match[0]} stands inside a longer argument and is not replaced",
                f'make it an argument of its own, as in ["sh", "-c", "train --on $0", "{match[0]}"]',
            )
    return None


RULES: tuple[tuple[Rule, Check], ...] = (
    (
        Rule(
            "WL001",
            Severity.WARNING,
            "small shared memory",
            f"Containers get {DEFAULT_SHARED_MIB} MiB of /dev/shm unless told otherwise. Data loaders and NCCL pass"
            " tensors through it, and die with a bus error when it is full. It has nothing to do with GPU memory.",
        ),
        _shared_memory,
    ),
    (
        Rule(
            "WL002",
            Severity.WARNING,
            "NVIDIA_VISIBLE_DEVICES set by hand",
            "The value `all` means all GPUs of the host, not those that the job was given, and takes a neighbour's."
            " Windfall overwrites it; other places may not.",
        ),
        _visible_devices,
    ),
    (
        Rule(
            "WL003",
            Severity.WARNING,
            "GPU device mapped by hand",
            "A mapping of /dev/nvidia0 pins the job to the first GPU, whichever it was given, and is not needed"
            " beside a GPU in resourceRequirements. Windfall drops it.",
        ),
        _device_mapping,
    ),
    (
        Rule("WL004", Severity.ERROR, "GPU on Fargate", "Fargate has no GPUs."),
        _fargate,
    ),
    (
        Rule(
            "WL005",
            Severity.WARNING,
            "spot without retry",
            "An interruption ends the attempt. With one attempt it ends the job; with rules that do not match a lost"
            " host, too.",
        ),
        _spot_retry,
    ),
    (
        Rule(
            "WL006",
            Severity.WARNING,
            "spot without checkpoints",
            "After an interruption the job begins again from nothing.",
        ),
        _spot_checkpoint,
    ),
    (
        Rule(
            "WL007",
            Severity.WARNING,
            "GPU image without a GPU",
            "A GPU must be asked for explicitly; without that the job sees none, and often computes on the CPU"
            " without saying so.",
        ),
        _cuda_without_gpu,
    ),
    (
        Rule("WL008", Severity.WARNING, "GPU for a CPU image", "The GPU would be held and never used."),
        _gpu_without_cuda,
    ),
    (
        Rule(
            "WL009",
            Severity.ERROR,
            "more GPUs than any instance has",
            "A job runs on one instance; it would wait in RUNNABLE for ever.",
        ),
        _too_large,
    ),
    (
        Rule(
            "WL010",
            Severity.HINT,
            "no timeout",
            "A job that hangs holds its GPU until somebody looks. A timeout also lets it fill gaps that are reserved"
            " for later.",
        ),
        _no_timeout,
    ),
    (
        Rule("WL011", Severity.WARNING, "privileged container", "It has the host's own rights."),
        _privileged,
    ),
    (
        Rule(
            "WL012",
            Severity.HINT,
            "image without a version",
            "The next attempt may run another program than the last.",
        ),
        _floating_image,
    ),
    (
        Rule(
            "WL013",
            Severity.WARNING,
            "secret in plain text",
            "Everybody who may describe the definition can read it.",
        ),
        _plain_secret,
    ),
    (
        Rule(
            "WL014",
            Severity.HINT,
            "deprecated members",
            "resourceRequirements is what overrides and newer tools use.",
        ),
        _old_members,
    ),
    (
        Rule(
            "WL015",
            Severity.WARNING,
            "parameter inside a longer argument",
            "AWS Batch replaces `Ref::name` only where it is an argument of its own, and so does Windfall. Elsewhere"
            " the program gets these letters.",
        ),
        _placeholder_inside,
    ),
)


def check_definition(definition: Document, around: LintContext) -> Iterator[tuple[Rule, str, str]]:
    """What is found in one job definition: the rule, what was seen, what to do."""
    container = definition.get("containerProperties") or first_essential(definition.get("ecsProperties"))
    for rule, check in RULES:
        finding = check(definition, container, around)
        if finding is not None:
            yield rule, *finding
