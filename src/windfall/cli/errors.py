"""Why a command did not do what was asked. Each text says what happened and what to do next.

CliError                 shown as `windfall: <text>`, exit code 1
├── BadUsage             the command line itself is wrong, exit code 2
├── NoDaemon             nothing answers where the daemon should be
├── RequestRefused       the daemon answered with an error, whose code is kept
└── UnknownJob           no job, or more than one, goes by that name
"""

from __future__ import annotations


class CliError(Exception):
    """A command cannot go on; its text is for the user."""

    exit_code = 1


class BadUsage(CliError):
    """What was asked for cannot be meant."""

    exit_code = 2


class NoDaemon(CliError):
    """Nothing answers at the address, or no address is known."""


class RequestRefused(CliError):
    """The daemon's own refusal."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class UnknownJob(CliError):
    """The name does not lead to one job."""
