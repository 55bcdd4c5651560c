"""Why something cannot be staged. Failures of the store itself are `windfall.objects.errors`.

CourierError
├── CannotBring     what the attempt needs is not there, or is not what it should be; trying again does not help
│   ├── Replaced    what is to be stored is not where it was
│   └── BadArchive  an archive holds something that must not be unpacked
└── CalledOff       nobody wants it any more
"""

from __future__ import annotations

from windfall.agent.errors import AgentError


class CourierError(AgentError):
    """Something cannot be staged."""


class CannotBring(CourierError):
    """What the attempt needs is not there; the text is for the user."""


class Replaced(CannotBring):
    """The job has removed a directory that is to be stored, or put something else in its place."""


class BadArchive(CannotBring):
    """An archive holds something that must not be unpacked."""


class CalledOff(CourierError):
    """Nobody wants it any more."""
