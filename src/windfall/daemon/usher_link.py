"""The daemon's end of the usher: starts the process where the route table has endpoints, and asks what it counted.

Decides when an usher is needed: from the first endpoint on. It outlives the daemon, so that requests go on, and is told
to end only when no endpoint is left or everything is killed. Must not know how endpoints come to their replicas.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from pathlib import Path

import msgspec

from windfall.agent import warden
from windfall.agent.reach import guard_of, start_warden, tell_warden
from windfall.agent.socket_paths import short_path
from windfall.hosting.traffic import UsherTraffic
from windfall.usher.process import SOCKET_NAME, UsherSettings, read_address
from windfall.usher.table_file import RouteWriter, TableFollower

LOG_NAME = "usher.log"
#: The port that is taken without being named; another one is meant exactly.
DEFAULT_PORT = 8472
#: How soon a table with endpoints is noticed, and how often it is checked that an usher answers.
LOOK_EVERY_S = 0.1
ASK_EVERY_S = 2.0
_ANSWER_WITHIN_S = 5.0
_START_WITHIN_S = 20.0
_LINE_BYTES_MAX = 64 << 20

log = logging.getLogger(__name__)


class UsherLink:
    """The usher of one data directory."""

    def __init__(self, directory: Path, keys_file: Path, host: str, port: int) -> None:
        self._directory = directory
        self._writer = RouteWriter(directory)
        exact = port not in (0, DEFAULT_PORT)
        self._settings = UsherSettings(
            str(directory.absolute()), str(keys_file.absolute()), host, port, exact
        )
        self._complained = False

    @property
    def url(self) -> str | None:
        """Where the usher listens; None before the first endpoint."""
        return read_address(self._directory)

    async def stats(self) -> UsherTraffic | None:
        """What the usher has counted; None if none answers."""
        try:
            with short_path(str(self._directory / SOCKET_NAME)) as path:
                reader, writer = await asyncio.open_unix_connection(path, limit=_LINE_BYTES_MAX)
        except OSError:
            return None
        try:
            writer.write(b"stats\n")
            line = await asyncio.wait_for(reader.readline(), _ANSWER_WITHIN_S)
            return msgspec.json.decode(line, type=UsherTraffic)
        except (OSError, TimeoutError, ValueError):
            return None
        finally:
            writer.close()

    async def watch(self) -> None:
        """Keep an usher running while there are endpoints, until cancelled: its warden may have been killed too."""
        follower, asked_at = TableFollower(self._directory), 0.0
        while True:
            now = asyncio.get_running_loop().time()
            if follower.changed() or now - asked_at >= ASK_EVERY_S:
                asked_at = now
                if follower.table.endpoints:
                    await self._keep_up()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _keep_up(self) -> None:
        try:
            await self._bring_up()
            self._complained = False
        except (OSError, TimeoutError) as error:
            if not self._complained:
                log_path = self._directory / LOG_NAME
                log.warning("the usher does not serve, trying again: %s; see %s", error, log_path)
            self._complained = True

    def end(self, *, kill: bool) -> None:
        """Let the usher end if nothing needs it any more; it finishes the requests that it has."""
        if kill or not self._writer.read().endpoints:
            tell_warden(guard_of(str(self._directory.absolute())), signal.SIGTERM)

    async def _bring_up(self) -> None:
        if await self.stats() is not None:
            return
        log_path = self._directory / LOG_NAME
        self._directory.mkdir(mode=0o700, exist_ok=True)
        if guard_of(self._settings.directory) is None:
            pid = start_warden(_command(self._settings), str(log_path))
            # Collected when it ends, so that it is not left as a zombie while this daemon lives.
            threading.Thread(target=_collect, args=(pid,), daemon=True, name="usher's warden").start()
        async with asyncio.timeout(_START_WITHIN_S):
            while await self.stats() is None:  # noqa: ASYNC110 (another process begins to serve)
                await asyncio.sleep(0.02)


def _command(settings: UsherSettings) -> list[str]:
    usher = [sys.executable, "-P", "-m", "windfall.usher.process", msgspec.json.encode(settings).decode()]
    return [sys.executable, "-I", "-S", str(Path(warden.__file__).absolute()), settings.directory, *usher]


def _collect(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return
