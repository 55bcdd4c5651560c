"""What a job that has a /tmp of its own sees of the host's.

People clone and make environments below /tmp, so a job sees there what its command line or its variables name by an
absolute path: the file, or the whole directory directly below /tmp. It is opened with the rights of the job's user and
known by its device and inode number, because the name may lead elsewhere by the time the sandbox is made. Where other
tenants have jobs, it must also belong to root, or to a user that only this tenant has. Must not know attempts.
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from windfall.agent.credentials import JobUser
from windfall.agent.entering import NoAnswer, is_hidden, see_as
from windfall.agent.errors import CannotStart
from windfall.agent.sandbox_mounts import TMP, Shown, is_within
from windfall.agent.spawner import errno_words

#: How many names are looked at: each takes a thread before the job starts.
_MOST = 32
_OPTION = re.compile(r"-[\w-]+=(?=/)")


class TmpView(msgspec.Struct, frozen=True):
    """What a job sees of the host's /tmp, and why it does not see the rest of what it names."""

    shown: tuple[Shown, ...] = ()
    reasons: Mapping[str, str] = {}

    def problem(self, program: str) -> str | None:
        """Why a program in the host's /tmp cannot be run, and what to do; None for one that the job sees."""
        reason = self.reasons.get(_top(program))
        if reason is None:
            return None
        return (
            f'exec: "{program}": this job has a /tmp of its own and does not see {_top(program)} of the host,'
            f" because {reason}"
        )


def view_of_tmp(
    paths: Iterable[str], user: JobUser, hidden: Sequence[str], *, owners: frozenset[int] | None
) -> TmpView:
    """What the job may see of what these paths name; `owners` are those whose files it may see, None means all."""
    shown: list[Shown] = []
    reasons: dict[str, str] = {}
    waiting = deque(_top(path) for path in paths if is_within(path, TMP) and not is_hidden(path, hidden))
    looked_at = {TMP}
    while waiting and len(looked_at) <= _MOST:
        path = waiting.popleft()
        if path in looked_at:
            continue
        looked_at.add(path)
        try:
            seen = _look(path, user, hidden, owners)
        except NoAnswer:
            raise
        except CannotStart as refused:
            reasons[path] = str(refused)
            continue
        shown.append(seen)
        if seen.target is not None and is_within(leads_to := os.path.join(TMP, seen.target), TMP):
            waiting.append(_top(leads_to))
    return TmpView(tuple(shown), reasons)


def named_paths(argv: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The absolute paths among the words of a command and the values of its variables, those in lists too."""
    words = [_OPTION.sub("", word) for word in argv]
    words += [part for value in environment.values() for part in value.split(":")]
    return [os.path.normpath(word) for word in words if word.startswith("/")]


def _top(path: str) -> str:
    """The file or directory directly below /tmp in which a path lies."""
    return "/".join(os.path.normpath(path).split("/")[:3])


def _look(path: str, user: JobUser, hidden: Sequence[str], owners: frozenset[int] | None) -> Shown:
    try:
        seen = see_as(user, path)
    except NoAnswer:
        raise
    except CannotStart as refused:
        raise CannotStart(f"{user.name} cannot enter it ({errno_words(refused.errno or 0)})") from None
    if seen.target is not None:
        return Shown(path, target=seen.target)
    mode, owner = seen.status.st_mode, seen.status.st_uid
    if is_hidden(seen.path, hidden) or not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise CannotStart("it is not a plain file or directory")
    if owners is not None and owner not in owners:
        raise CannotStart(f"other tenants have jobs here and it belongs to uid {owner}: move it out of /tmp")
    return Shown(path, seen.identity)
