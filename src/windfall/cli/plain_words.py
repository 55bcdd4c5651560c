"""Fields of AWS's API as options of `windfall run`: which option to change. Reasons are views/plain_reasons.py's."""

from __future__ import annotations

import re

from windfall.aws_api.batch.run_definitions import DEFINITION
from windfall.views.plain_reasons import Rule, replaced


def _memory(match: re.Match[str]) -> str:
    return f"use --memory {memory_size(int(match[1].replace(',', '')))}"


def memory_size(mib: int) -> str:
    """An amount of memory as `--memory` reads it: 16G, 512M."""
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"


_TAGS_WITH_OPTION = (
    "checkpoint|git|budget-usd|deadline|work(?!er)|runtime|pull|gpu-model|gpu-memory-gib|gpu-share|on-gpu-oom"
)
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


def with_options(text: str) -> str:
    """An advice that names options of `windfall run` instead of fields of the API."""
    return replaced(_OPTIONS, text)


def is_of_run(definition: str | None) -> bool:
    """Whether a job with this definition (name, name:revision or ARN) was submitted by `windfall run`."""
    name = (definition or "").rpartition("/")[2].partition(":")[0]
    return name == DEFINITION or name.startswith(f"{DEFINITION}-")
