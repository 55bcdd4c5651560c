"""What object storage tells its callers when it cannot do as asked.

ObjectsError
├── BadUri          the URI, a key or an option cannot be used as it is
├── Unreachable     nobody answers, or the answer came too late: worth another try
├── NotFound        no such object, or no such bucket
├── AlreadyThere    a create-only put met an object of that name
├── Refused         credentials are missing, wrong, or not allowed to do this
└── Full            there is no room left where the object should go
"""

from __future__ import annotations


class ObjectsError(Exception):
    """Anything that goes wrong between Windfall and object storage."""


class BadUri(ObjectsError):
    """The URI, a key or an option cannot be used as it is."""


class Unreachable(ObjectsError):
    """Nobody answers, or the answer came too late. Trying again may help."""


class NotFound(ObjectsError):
    """There is no such object, or no such bucket."""


class AlreadyThere(ObjectsError):
    """An object of that name exists, and only a new one was wanted."""


class Refused(ObjectsError):
    """Credentials are missing or wrong, or do not allow this. Trying again does not help."""


class Full(ObjectsError):
    """There is no room left where the object should go."""
