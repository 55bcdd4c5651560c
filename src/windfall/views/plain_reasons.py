"""AWS's reasons in plain words: how attempts end, and why jobs wait.

The wire keeps AWS's texts, because programs match them; people who never used AWS read these. Must not know where a
text is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable

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
            r"\1 can use this host alone for it, and it is in use",
        ),
    )
)


def plainly(text: str) -> str:
    """A reason without AWS's terms."""
    return replaced(_REASONS, text)


def cannot_start(reason: str | None) -> bool:
    """Whether AWS's reason says that a waiting job never starts unless something is changed."""
    return bool(reason) and str(reason).startswith(("MISCONFIGURATION:", "ACTION_REQUIRED"))


def replaced(rules: tuple[Rule, ...], text: str) -> str:
    """A text after each rule in turn was applied to it."""
    for pattern, words in rules:
        text = pattern.sub(words, text)
    return text
