"""Warm workers: one initialised process per place that runs the children of an array one after the other.

Values only: the tag says what is wanted, the agent keeps the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WorkerKind(StrEnum):
    """How a worker is told what to do."""

    #: `module:function`, called once per child with the array index.
    CALLABLE = "callable"
    #: The job's own command, which reads a JSON line per child and answers with one.
    LINES = "lines"


@dataclass(frozen=True, slots=True)
class Worker:
    """What an array asks for."""

    kind: WorkerKind
    #: `module:function` for a callable; empty for lines.
    target: str = ""
    #: An idle worker ends after this long.
    idle_s: float = 10.0
