"""Why the daemon does not start, or cannot do something. Each text says what to do.

DaemonError
├── BadSetting        a setting is missing, unknown or out of range
├── BadTarget         a schedule's target cannot be invoked
└── AlreadyRunning    another daemon holds the data directory
"""

from __future__ import annotations


class DaemonError(Exception):
    """The daemon cannot start or go on."""


class BadSetting(DaemonError):
    """A setting is unknown or out of range."""


class AlreadyRunning(DaemonError):
    """Another daemon holds the data directory."""


class BadTarget(DaemonError):
    """The target of a schedule cannot be invoked, now or later."""
