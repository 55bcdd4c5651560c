"""What is reported of an ended process beside its exit code: why it failed, and the files in its private directory.

Decides which files are worth telling: those that the program put there, up to a number, without caches and without what
is kept. No link is followed. Must not know what becomes of the attempt.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable

import msgspec

from windfall.agent.attempt import Attempt
from windfall.agent.machine import Machine
from windfall.agent.messages import Exited
from windfall.agent.walking import LOOK, entries_below
from windfall.jobs.kept_files import is_kept
from windfall.jobs.staging import LeftFiles

#: Nobody needs to know of more, and the agent has other things to do.
_LOOKED_AT = 2_000
#: Nor for longer than this: a job chooses how deep its directories are, and all other jobs wait meanwhile.
_LOOKS_FOR_S = 0.5
_NAMED, _LONGEST_NAME = 3, 80
_CACHES = ("__pycache__",)


def with_findings(attempt: Attempt, exited: Exited, machine: Machine) -> Exited:
    """Return the end of an attempt with why it failed, and with what goes with its private directory."""
    if exited.exit_code != 0:
        # Late, because it brings the texts of all failures: an agent starts without them.
        from windfall.agent.diagnosing import diagnosed

        exited = diagnosed(attempt, exited, machine)
    left = left_files(attempt)
    return exited if left is None else msgspec.structs.replace(exited, left=left)


def left_files(attempt: Attempt, clock: Callable[[], float] = time.monotonic) -> LeftFiles | None:
    """Return the files that go with an attempt whose processes have ended; None where there are none."""
    directories = attempt.intended.private_directories
    accepted = attempt.story.accepted
    staging = None if accepted is None else accepted.staging
    if (
        not directories
        or attempt.launcher.has_foreign_files
        or (staging is not None and staging.git is not None)
    ):
        return None
    patterns = [] if staging is None else [one for output in staging.outputs for one in output.patterns]
    try:
        directory = os.open(directories[0], LOOK)
    except OSError:
        return None
    try:
        return _counted(directory, patterns, clock)
    except OSError:
        return None  # A job may have closed a directory of its own to everybody.
    finally:
        os.close(directory)


def _counted(directory: int, patterns: list[str], clock: Callable[[], float]) -> LeftFiles | None:
    count = size = 0
    until = clock() + _LOOKS_FOR_S
    names: list[str] = []
    entries = entries_below(directory, _is_no_cache, lambda _path, _error: None)
    for looked_at, (path, status, _) in enumerate(entries):
        if looked_at >= _LOOKED_AT or clock() > until:
            return LeftFiles(count, size, tuple(names), more=True) if count else None
        if not stat.S_ISREG(status.st_mode) or not _is_no_cache(path) or is_kept(path, patterns):
            continue
        count, size = count + 1, size + status.st_size
        if len(names) < _NAMED:
            names.append(path.encode(errors="replace").decode()[:_LONGEST_NAME])
    return LeftFiles(count, size, tuple(names)) if count else None


def _is_no_cache(path: str) -> bool:
    """Whether a program means to keep what is there: the job's home is this directory, with all its hidden files."""
    return not path.startswith(".") and path.rpartition("/")[2] not in _CACHES
