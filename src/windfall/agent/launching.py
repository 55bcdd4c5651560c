"""Brings an agent to life: makes its directories and the command of its warden, and says why one ends at once.

Decides where the files are, and when it is certain that an agent cannot be started: it says so in its log, or has ended
twice. One that is killed once is started again by its warden and is not reported.
"""

from __future__ import annotations

import os
import re
import sys

import msgspec

import windfall
from windfall.agent import warden
from windfall.agent.settings import AgentSettings
from windfall.agent.speech import CANNOT_SERVE, SPEAKER
from windfall.objects.credentials import KEPT, KEY_VARIABLES, is_api_key

#: Here and not in serve.py: the daemon asks for it, and must not load the agent for that.
SOCKET_NAME = "agent.sock"
#: Where the agent, its warden and its courier say what happens.
LOG_NAME = "agent.log"


def prepare_directories(settings: AgentSettings) -> None:
    """Make the agent's directory (nobody else may enter) and the attempts' (pass, but do not look)."""
    os.makedirs(settings.directory, 0o700, exist_ok=True)
    os.chmod(settings.directory, 0o700)
    if settings.logs_directory:
        os.makedirs(settings.logs_directory, 0o700, exist_ok=True)
    os.makedirs(settings.attempts_directory, 0o711, exist_ok=True)
    os.chmod(settings.attempts_directory, 0o711)  # noqa: S103 - jobs must reach their own directories in it


def warden_command(settings: AgentSettings) -> list[str]:
    """Return the command that runs the warden, which runs the agent."""
    agent = [sys.executable, "-P", "-m", "windfall.agent.serve", msgspec.json.encode(settings).decode()]
    return [sys.executable, "-I", "-S", os.path.abspath(warden.__file__), settings.directory, *agent]


def agent_environment() -> dict[str, str]:
    """Return an environment in which the agent finds this very package, wherever it is started.

    A key of Windfall's API is left out, and the user's own that it replaced: a shell with `eval "$(windfall env)"` has
    both, and no agent needs them.
    """
    root = os.path.dirname(os.path.dirname(os.path.abspath(windfall.__file__)))
    # Absolute, because the warden leaves the directory in which it was started.
    told = (path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)
    paths = [root, *(os.path.abspath(path) for path in told)]
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    found = {name: value for name, value in found.items() if not name.startswith(KEPT)}
    if is_api_key(found.get(KEY_VARIABLES[0], "")):
        for name in KEY_VARIABLES:
            found.pop(name, None)
    return found


_WARDEN = "windfall warden: "
#: With which a line begins.
_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")
_ENDED = f"{_WARDEN}the agent "
_CERTAIN_AFTER_ENDS = 2
#: The end of a longer text is what counts.
_READ_BYTES = 1 << 16


def log_size(path: str) -> int:
    """Where in the log that begins which is said from now on."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def last_words(path: str, since: int) -> str | None:
    """Why no agent will come, in its own words; None as long as one may."""
    lines = _lines(path, since)
    ends = [line for line in lines if line.startswith(_ENDED)]
    said = [line for line in lines if not line.startswith(_WARDEN)]
    if refusals := [line for line in said if line.startswith(SPEAKER + CANNOT_SERVE)]:
        return refusals[-1].removeprefix(SPEAKER)
    if len(ends) < _CERTAIN_AFTER_ENDS:
        return None
    # What a warden says after this changes from time to time, and a trouble is to be told once.
    own = ends[-1].removeprefix(_WARDEN).partition(" after ")[0].partition("; ")[0]
    return said[-1].removeprefix(SPEAKER) if said else own


def last_line(path: str, since: int) -> str:
    """The last line of the log."""
    return next(iter(reversed(_lines(path, since))), "")


def _lines(path: str, since: int) -> list[str]:
    end = log_size(path)
    if end < since:
        since = 0  # A new log was begun meanwhile.
    if end == since:
        return []  # Asked again and again: most often there is nothing new.
    try:
        with open(path, "rb") as file:
            file.seek(max(since, end - _READ_BYTES))
            text = file.read(_READ_BYTES).decode(errors="replace")
    except OSError:
        return []
    return [_TIME.sub("", line).strip() for line in text.splitlines() if line.strip()]
