"""How a courier or a feeder that was started as root leaves that behind, and what it takes along.

The directories on the way to the attempts' files and to the steward's socket may be closed to the job's user, so both
are opened before: the first becomes the working directory, the second stays open. The same holds for the code, so what
Python would load later is loaded before. Must not know what is moved.
"""

from __future__ import annotations

import importlib
import os

from windfall.agent.demotion import Identity, demote
from windfall.agent.steward.packets import SOCKET, make_door

#: What Python loads when it is first needed: codecs, what tarfile and http.server use, what shows an error.
_LOADED_LATE = (
    "bz2",
    "encodings.ascii",
    "encodings.idna",
    "encodings.iso8859_1",
    "encodings.latin_1",
    "encodings.utf_8",
    "email.errors",
    "gzip",
    "html",
    "logging",
    "lzma",
    "shutil",
    "tarfile",
    "traceback",
)


def leave_root(user: Identity, agent_directory: str, attempts_directory: str) -> str:
    """Become the user, in the attempts' directory; return the path of the steward's socket, for this process alone."""
    door = os.open(make_door(agent_directory), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    os.chdir(attempts_directory)
    for module in _LOADED_LATE:
        importlib.import_module(module)
    demote(user)
    return f"/proc/self/fd/{door}/{SOCKET}"
