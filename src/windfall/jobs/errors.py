"""Why the core refuses something. The wire turns these into AWS's codes and texts; nothing else does.

Rejected
├── Invalid                 the request contradicts itself or a limit
│   └── MissingParameter    a Ref:: in the command has no value
├── NotFound                it names something that does not exist
└── Conflict                it would break something that exists

IllegalMove is different: it is a defect of ours, not of a caller.
"""

from __future__ import annotations


class Rejected(Exception):
    """A command that is refused; nothing has been changed."""


class Invalid(Rejected):
    """The request contradicts itself or a limit."""


class MissingParameter(Invalid):
    """A `Ref::name` in the command has neither a submitted nor a default value."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Unable to substitute value. No parameter found for reference {name}")
        self.name = name


class NotFound(Rejected):
    """The request names something that does not exist."""


class Conflict(Rejected):
    """The request would break something that exists."""


class IllegalMove(Exception):
    """A job was asked to make a move that the state table does not have."""
