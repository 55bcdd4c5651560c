"""AWS's words as the command line says them: how attempts end, why jobs wait, and which option to change.

The wire keeps AWS's texts, because programs match them; people who never used AWS read these. Must not know where a
text is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from windfall.aws_api.batch.run_definitions import DEFINITION

#: What AWS says of every process that ended by itself.
EXITED = "Essential container in task exited"

Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]

_REASONS: tuple[Rule, ...] = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (EXITED, "its process ended"),
        (r"Host EC2 \(instance ([^)]*)\) terminated\.?", r"its instance \1 was taken away or lost"),
        (r"Task failed to start[,;] (?=\w+Error: )", ""),
        (r"Task failed to start", "it did not start"),
        (r"Job attempt duration exceeded timeout", "it ran longer than its timeout"),
        (
            r"OutOfMemoryError: Container killed due to memory usage",
            "out of memory: it used more than it asked for",
        ),
        (r"CannotPullContainerError: ", "cannot get its image: "),
        (r"CannotCreateContainerError: ", "cannot create its container: "),
        (r"CannotStartContainerError: ", "cannot start its command: "),
        (r"ResourceInitializationError: ", "cannot prepare it: "),
        (r"Dependent Job failed", "a job that it depends on failed"),
        (r"Array Child Job failed", "a child of the array failed"),
        (
            r"Cross-share preemption triggered to reclaim borrowed capacity",
            "preempted: its share had borrowed capacity",
        ),
        (
            r"In-share preemption triggered by a job of higher priority",
            "preempted by a job of higher priority",
        ),
        (
            r"MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - .*",
            "cannot start: it asks for more than any instance has",
        ),
        (
            r"MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE - .*",
            "cannot start: its compute environment may not have that many vCPUs",
        ),
        (
            r"MISCONFIGURATION:SERVICE_ENVIRONMENT_MAX_RESOURCE - .*",
            "cannot start: its service environment may not have that much capacity",
        ),
        (
            r"MISCONFIGURATION:QUOTA_MANAGEMENT_LIMIT_EXCEEDED - .*",
            "cannot start: it exceeds the limits of its quota share",
        ),
        (r"CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - .*\[(.*)\]", r"no instance of type \1 is available now"),
        (r"ACTION_REQUIRED - CE\(s\) .*", "cannot start: no compute environment of its queue can be used"),
        (r"UNDETERMINED - .*", "waits; the reason is not known"),
        (
            r"no more instances of type local are available for (\S+) now",
            r"\1 has this host alone, and it is in use",
        ),
    )
)


def _memory(match: re.Match[str]) -> str:
    return f"use --memory {memory_size(int(match[1].replace(',', '')))}"


def memory_size(mib: int) -> str:
    """An amount of memory as `--memory` reads it: 16G, 512M."""
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"


_TAGS_WITH_OPTION = "checkpoint|git|budget-usd|runtime|pull|gpu-model|gpu-memory-gib|gpu-share|on-gpu-oom"
#: What is an option of `windfall run` and not a tag, and the fields of the API that options set.
_OPTIONS: tuple[Rule, ...] = (
    (re.compile(r"set resourceRequirements MEMORY to ([\d,]+) MiB"), _memory),
    (
        re.compile(r"with memory <= ([\d,]+) MiB"),
        lambda match: f"with --memory {memory_size(int(match[1].replace(',', '')))}",
    ),
    (re.compile(r"resourceRequirements MEMORY"), "--memory"),
    (re.compile(r"resourceRequirements VCPU"), "--vcpus"),
    (re.compile(r"set resourceRequirements GPU to (\d+)"), r"use --gpus \1"),
    (re.compile(r"resourceRequirements GPU"), "--gpus"),
    (re.compile(r"raise timeout\.attemptDurationSeconds"), "use a larger --timeout"),
    (re.compile(r"timeout\.attemptDurationSeconds"), "--timeout"),
    (re.compile(r"set retryStrategy\.attempts to (\d+)"), r"use --attempts \1"),
    (re.compile(r"retryStrategy\.attempts"), "--attempts"),
    (re.compile(r"(?:the )?(?:tag )?windfall:checkpoint=true"), "--checkpoint"),
    (
        re.compile(rf"(?:the )?(?:tag )?windfall:({_TAGS_WITH_OPTION})(?:=([^\s,;)]+))?"),
        lambda match: f"--{match[1]}" + (f" {match[2]}" if match[2] else ""),
    ),
    (re.compile(r"(?:the )?tag (windfall:[a-z-]+(?:=[^\s,;)]+)?)"), r"--tag \1"),
)


def plainly(text: str) -> str:
    """A reason without AWS's terms."""
    return _applied(_REASONS, text)


def with_options(text: str) -> str:
    """An advice that names options of `windfall run` instead of fields of the API."""
    return _applied(_OPTIONS, text)


def cannot_start(reason: str | None) -> bool:
    """Whether AWS's reason says that a waiting job never starts unless something is changed."""
    return bool(reason) and str(reason).startswith(("MISCONFIGURATION:", "ACTION_REQUIRED"))


def is_of_run(definition: str | None) -> bool:
    """Whether a job with this definition (name, name:revision or ARN) was submitted by `windfall run`."""
    name = (definition or "").rpartition("/")[2].partition(":")[0]
    return name == DEFINITION or name.startswith(f"{DEFINITION}-")


def _applied(rules: tuple[Rule, ...], text: str) -> str:
    for pattern, words in rules:
        text = pattern.sub(words, text)
    return text
