"""Ways to an agent that are not as good as a socket on one host: late, repeating themselves, or cut.

Everything above Reach must bear them. A line here is a message, because both sides end each with a newline.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import site
import socket
import subprocess
import sys
from pathlib import Path

from tests.tidy.tree import ROOT
from tests.waiting import wait_until
from windfall.agent.errors import AgentUnreachable
from windfall.agent.launching import LOG_NAME, agent_environment, prepare_directories, warden_command
from windfall.agent.line_reader import LineReader
from windfall.agent.reach import AHEAD_BYTES, Reach, Stream, UnixReach
from windfall.agent.settings import AgentSettings

NOBODY = 65534
#: A Python that another user can run; a virtual environment below root's home is not.
PYTHON = "/usr/bin/python3"


class DisturbedReach:
    """Another reach, through a proxy that delays and repeats messages, and that can be cut or stopped."""

    def __init__(self, inner: Reach, *, copies: int = 1, late_s: float = 0.0, seed: int = 0) -> None:
        self._inner = inner
        self._copies = copies
        self._late_s = late_s
        self._random = random.Random(seed)
        self._flows = asyncio.Event()
        self._flows.set()
        self._never = asyncio.Event()
        self._is_cut = False
        self._proxies: set[asyncio.Task[None]] = set()
        #: How many connections there were.
        self.dialled = 0

    @property
    def place(self) -> str:
        return self._inner.place

    @property
    def digest(self) -> str:
        return self._inner.digest

    def cut(self) -> None:
        """Break all connections, and let no new one come about."""
        self._is_cut = True
        for proxy in self._proxies:
            proxy.cancel()

    def heal(self) -> None:
        """Let connections come about again."""
        self._is_cut = False

    def hold(self) -> None:
        """Take what is sent and deliver nothing, as a network does that has lost its way."""
        self._flows.clear()

    def release(self) -> None:
        """Deliver what was held, and all that follows."""
        self._flows.set()

    async def bring_up(self) -> None:
        self._check()
        await self._inner.bring_up()

    async def dial(self) -> Stream:
        self._check()
        far = await self._inner.dial()
        self.dialled += 1
        ours, theirs = socket.socketpair()
        near = await asyncio.open_connection(sock=theirs)
        proxy = asyncio.create_task(self._join(near, far))
        self._proxies.add(proxy)
        proxy.add_done_callback(self._proxies.discard)
        return await asyncio.open_connection(sock=ours, limit=AHEAD_BYTES)

    def _check(self) -> None:
        if self._is_cut:
            raise AgentUnreachable("the network is down")

    async def _join(self, near: Stream, far: Stream) -> None:
        pumps = [
            asyncio.create_task(self._pump(near[0], far[1])),
            asyncio.create_task(self._pump(far[0], near[1])),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for _, writer in (near, far):
                writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = LineReader()
        with contextlib.suppress(OSError):
            while chunk := await reader.read(AHEAD_BYTES):
                for line in lines.feed(chunk).splitlines(keepends=True):
                    await self._flows.wait()
                    await self._delay()
                    writer.write(line * self._copies)
                    await writer.drain()

    async def _delay(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._random.uniform(0, self._late_s)):
                await self._never.wait()


class NobodysReach(UnixReach):
    """An agent that another user starts, as somebody on another machine would; only root can play that."""

    def __init__(self, settings: AgentSettings) -> None:
        super().__init__(settings)
        self._of_nobody = settings
        self._warden: subprocess.Popen[bytes] | None = None

    @staticmethod
    def missing() -> str | None:
        """What this machine lacks for it."""
        if os.geteuid() != 0:
            return "only root can become another user for this test"
        if shutil.which("setpriv") is None:
            return "setpriv is not installed"
        probe = [*_as_nobody(), PYTHON, "-c", "import windfall.agent.serve"]
        if subprocess.run(probe, env=_environment(), capture_output=True, cwd="/", check=False).returncode:
            return "another user cannot run Python with this repository's packages here"
        return None

    def _start(self) -> subprocess.Popen[bytes]:
        prepare_directories(self._of_nobody)
        for path in (self.place, self._of_nobody.attempts_directory):
            os.chown(path, NOBODY, NOBODY)
        command = [PYTHON if word == sys.executable else word for word in warden_command(self._of_nobody)]
        with Path(self.place, LOG_NAME).open("ab") as log:
            return subprocess.Popen(
                [*_as_nobody(), *command],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )

    async def bring_up(self) -> None:
        if self._warden is None:
            self._warden = self._start()
        await asyncio.to_thread(wait_until, lambda: self.was_up, "an agent of another user")

    def wait(self, timeout_s: float) -> None:
        """Wait for the warden to end, once its agent was told to."""
        if self._warden is not None:
            self._warden.wait(timeout_s)


def _as_nobody() -> list[str]:
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


def _environment() -> dict[str, str]:
    paths = f"{ROOT / 'src'}:{site.getsitepackages()[0]}"
    return {**agent_environment(), "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/"}
