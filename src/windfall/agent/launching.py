"""Brings an agent to life: makes its directories and the command of its warden. Decides where the files
are and nothing else.
"""

from __future__ import annotations

import os
import sys

import msgspec

import windfall
from windfall.agent import warden
from windfall.agent.settings import AgentSettings
from windfall.objects.credentials import KEPT, KEY_VARIABLES, is_api_key

#: Here and not in serve.py: the daemon asks for it, and must not load the agent for that.
SOCKET_NAME = "agent.sock"
#: Where the agent, its warden and its courier say what happens.
LOG_NAME = "agent.log"


def prepare_directories(settings: AgentSettings) -> None:
    """Make the agent's directory (nobody else may enter) and the attempts' (pass, but do not look)."""
    os.makedirs(settings.directory, 0o700, exist_ok=True)
    os.chmod(settings.directory, 0o700)
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
