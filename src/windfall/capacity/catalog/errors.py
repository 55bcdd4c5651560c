"""Why the catalog cannot answer. Each text says what to name instead.

Invalid (jobs)           a request that contradicts itself or a limit
└── UnknownInstanceType  a name that is neither a type, a family nor a word of AWS Batch's

BadFigures is different: the table itself cannot be read.
"""

from __future__ import annotations

from windfall.jobs.errors import Invalid


class UnknownInstanceType(Invalid):
    """A name that the catalog does not have, or has no longer."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


class BadFigures(Exception):
    """A line of the table of figures is not in the form that the table has."""
