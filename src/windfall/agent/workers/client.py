"""The attempt's own process of a child in a warm worker: a shell of one line.

It says that it exists, waits for the exit code on its standard input, and exits with it. It does not heed SIGTERM
(the worker's process gets that too, and what it makes of it is the child's end); when it is killed, the keeper at the
other end of the socket sees it and kills the worker's process. Decides no more than that: a shell starts in a
millisecond and needs nothing of ours.
"""

from __future__ import annotations

#: A keeper that died without a word leaves no code: its child was killed.
_SCRIPT = "trap '' TERM HUP INT; echo go >&0; read -r code || code=137; exit \"$code\""

CLIENT = ["/bin/sh", "-c", _SCRIPT, "windfall-child"]
