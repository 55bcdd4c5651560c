"""How the agent speaks to whoever reads its log: one line on standard error, which the warden's starter
sent to a file.
"""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Write one line to the agent's log."""
    sys.stderr.write(f"windfall agent: {text}\n")
    sys.stderr.flush()
