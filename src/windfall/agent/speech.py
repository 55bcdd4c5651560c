"""The agent's log: one line on standard error, which the warden's starter
sent to a file.

A file that has grown large is put aside under its name with a number, and a few of those are kept. Every process that
writes to it goes on in the new one with its next line, so that no line is lost. Must not know what is said.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat

from windfall.agent.warden import follow_log, now_text

_STDERR = 2
SPEAKER = "windfall agent: "
#: Begins what an agent says that ends because it cannot do its work with what it was given.
CANNOT_SERVE = "cannot serve: "
#: A log of this size is put aside.
LOG_BYTES_MAX = 10 << 20
#: How many of the files that were put aside are kept.
LOGS_KEPT = 3
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def say(text: str) -> None:
    """Write one line to the agent's log; a full disk must not end the agent.

    A job chooses names that are in it: what would begin another line or steer a terminal is written as an escape.
    """
    line = _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)
    try:
        follow_log()
        # Not through sys.stderr: that keeps what it could not write, and makes the process end as if it had failed.
        os.write(_STDERR, f"{now_text()} {SPEAKER}{line}\n".encode(errors="replace"))
        put_aside_if_large(LOG_BYTES_MAX)
    except OSError:
        return


def put_aside_if_large(bytes_max: int) -> None:
    """Begin a new log where the one that standard error goes to is larger; terminals and pipes are left alone."""
    status = os.fstat(_STDERR)
    if not stat.S_ISREG(status.st_mode) or status.st_size < bytes_max:
        return
    # Of this process alone: processes that share the open file would share a lock of flock. Where another process
    # has it, that one begins the new log. It ends when the file is closed.
    fcntl.lockf(_STDERR, fcntl.LOCK_EX | fcntl.LOCK_NB)
    path = os.readlink(f"/proc/self/fd/{_STDERR}")
    if path.endswith(".log"):
        _begin_anew(path, stat.S_IMODE(status.st_mode))
    fcntl.lockf(_STDERR, fcntl.LOCK_UN)


def _begin_anew(path: str, mode: int) -> None:
    for number in range(LOGS_KEPT - 1, 0, -1):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}.{number}", f"{path}.{number + 1}")
    os.rename(path, f"{path}.1")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, mode))
    follow_log()
