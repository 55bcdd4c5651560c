"""One thing that a rule found: what, how bad, why, and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad it is."""

    #: It cannot work.
    ERROR = "error"
    #: It works until the day that it does not.
    WARNING = "warning"
    #: It could be better.
    HINT = "hint"


@dataclass(frozen=True, slots=True)
class Rule:
    """What is looked for; the code never changes, because users disable rules by it."""

    code: str
    severity: Severity
    title: str
    #: Why it matters, for the page of rules.
    why: str


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A rule that applies to one document."""

    rule: Rule
    #: `definition train:3`, `environment gpus` or `file Dockerfile`.
    subject: str
    #: What was seen, with its values.
    seen: str
    #: What to write instead.
    remedy: str
