"""How the agent speaks to whoever reads its log: one line on standard error, which the warden's starter
sent to a file.
"""

from __future__ import annotations

import os

_STDERR = 2
SPEAKER = "windfall agent: "
#: Begins what an agent says that ends because it cannot do its work with what it was given.
CANNOT_SERVE = "cannot serve: "


def say(text: str) -> None:
    """Write one line to the agent's log; a disk that is full must not end who tells of it."""
    try:
        # Not through sys.stderr: that keeps what it could not write, and makes the process end as if it had failed.
        os.write(_STDERR, f"{SPEAKER}{text}\n".encode(errors="replace"))
    except OSError:
        return
