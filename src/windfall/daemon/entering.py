"""CheckDirectories: whether a client's jobs may enter directories of this host, asked before it submits one.

Only the daemon knows which user the jobs of a key run as, and only a process of that user can test what the user may
do: it tries. Decides nothing; the agent tests again when a job starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from typing import TYPE_CHECKING, Any

from windfall.aws_api.protocol.errors import ApiError
from windfall.control.job_users import expected_user
from windfall.daemon.tenant_gateway import TenantGateway

if TYPE_CHECKING:
    from windfall.agent.credentials import JobUser
    from windfall.aws_api.protocol.service import Call

_MOST = 16
_ANSWERS_WITHIN_S, _DIES_WITHIN_S = 5.0, 1.0
#: A longer path names nothing on Linux, and many of them would be too long for one command.
_PATH_BYTES = 4096
#: Prints a line for each directory: whether it can be entered and written.
_TRY = """
for place; do
    if cd "$place" 2> /dev/null; then [ -w . ] && echo rw || echo r; else echo no; fi
done
"""
_WORDS = {"rw": (True, True), "r": (True, False)}


class Entering:
    """The handler, over the control loop."""

    def __init__(self, loop: TenantGateway, job_user: str) -> None:
        self._loop = loop
        self._job_user = job_user

    async def check(self, call: Call) -> dict[str, Any]:
        """Answer which user the caller's jobs run as, and which directories that user may enter and write."""
        paths = call.params.get("directories")
        if not isinstance(paths, list) or len(paths) > _MOST or not all(map(_is_directory, paths)):
            raise ApiError(
                "Invalid",
                f"directories must be a list of at most {_MOST} absolute paths of less than {_PATH_BYTES} bytes.",
            )
        submitter = call.caller.submitter
        wanted = await self._loop.inspect(lambda state, *_: expected_user(state, submitter))
        # Agent code, loaded only when this is called.
        from windfall.agent.credentials import resolve_job_user, user_to_run_as
        from windfall.agent.errors import AgentError

        try:
            user = resolve_job_user(self._job_user) if wanted is None else user_to_run_as(wanted)
        except AgentError as error:
            raise ApiError("Invalid", f"{error}.") from None
        rights = await asyncio.to_thread(_try_each, user, paths)
        return {
            "user": user.name,
            "host": os.uname().nodename,
            "directories": [
                {"path": path, "enters": enters, "writes": writes}
                for path, (enters, writes) in zip(paths, rights, strict=True)
            ],
        }


def _is_directory(path: object) -> bool:
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        return False
    try:
        return len(path.encode()) < _PATH_BYTES
    except UnicodeEncodeError:
        return False


def _try_each(user: JobUser, paths: list[str]) -> list[tuple[bool, bool]]:
    """Try the directories as the user; one that hangs counts as not enterable, as do all after it."""
    rights: dict[str, Any] = {}
    if user.drop:
        rights = {"user": user.uid, "group": user.gid, "extra_groups": user.groups}
    command = ["/bin/sh", "-c", _TRY, "sh", *paths]
    # Not as a context, which would wait for a process that hangs in a dead network mount and cannot be killed.
    process = subprocess.Popen(
        command, cwd="/", env={}, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, **rights
    )
    try:
        said, _ = process.communicate(timeout=_ANSWERS_WITHIN_S)
    except subprocess.TimeoutExpired as late:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_DIES_WITHIN_S)
        said = late.stdout or b""
    finally:
        assert process.stdout is not None
        process.stdout.close()
    lines = said.decode(errors="replace").split()
    lines += ["no"] * (len(paths) - len(lines))
    return [_WORDS.get(line, (False, False)) for line in lines]
