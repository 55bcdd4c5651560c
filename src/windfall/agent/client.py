"""The daemon's end of the socket, and how the daemon starts an agent that outlives it.

Decides nothing about attempts: it carries messages. Batches are kept together, because one commit per
batch is what makes both sides fast.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence

from windfall.agent.errors import AgentRejected, AgentUnreachable
from windfall.agent.launching import SOCKET_NAME, agent_environment, prepare_directories, warden_command
from windfall.agent.messages import (
    Hello,
    Inventory,
    LineReader,
    Message,
    Ping,
    Rejected,
    ToDaemon,
    decode_for_daemon,
    encode,
)
from windfall.agent.settings import AgentSettings
from windfall.agent.warden import LOCK_NAME

_CHUNK_BYTES = 1 << 20
_LOG_NAME = "agent.log"
_ANSWER_WITHIN_S = 5.0
_GONE = "the agent closed the connection; see agent.log beside its socket"


class AgentConnection:
    """A greeted connection; iterate it for batches of messages until the agent goes away."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, epoch: int) -> None:
        self._reader = reader
        self._writer = writer
        self._lines = LineReader()
        self._epoch = epoch
        self._early: list[ToDaemon] = []
        self.inventory: Inventory

    def write(self, messages: Sequence[Message]) -> None:
        """Send messages without waiting: what the agent has not yet taken is kept in memory.

        To an agent that is gone nothing is said: whoever iterates the connection learns of it by its end.
        """
        # Asked each time, because the event loops differ: uvloop raises where asyncio's own lets the bytes go.
        if not self._writer.is_closing():
            self._writer.write(encode(messages))

    async def send(self, messages: Sequence[Message]) -> None:
        """Send messages, waiting only while the agent is far behind; raises AgentUnreachable if it is gone."""
        if not messages:
            return
        self.write(messages)
        try:
            await self._writer.drain()
        except ConnectionError:
            raise AgentUnreachable(_GONE) from None

    async def greet(self) -> Inventory:
        """Say which daemon this is and hear what the machine has; raises AgentRejected for an old epoch."""
        await self.send([Hello(self._epoch)])
        batch = await self._receive()
        if not batch:
            raise AgentUnreachable(_GONE)
        first = batch[0]
        if isinstance(first, Rejected):
            raise AgentRejected(first.reason, first.epoch)
        if not isinstance(first, Inventory):
            raise AgentUnreachable(f"the agent did not say what it has but sent {type(first).__name__}")
        self.inventory = first
        self._early = batch[1:]
        return first

    async def __aiter__(self) -> AsyncIterator[list[ToDaemon]]:
        """Yield batches of messages as they arrive; ends when the connection does."""
        if self._early:
            batch, self._early = self._early, []
            yield batch
        while batch := await self._receive():
            yield batch

    async def _receive(self) -> list[ToDaemon]:
        while True:
            try:
                chunk = await self._reader.read(_CHUNK_BYTES)
            except ConnectionError:
                return []
            if not chunk:
                return []
            lines = self._lines.feed(chunk)
            if lines:
                return list(decode_for_daemon(lines))

    async def close(self) -> None:
        """End the connection; the agent and its attempts go on."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return


async def connect(socket_path: str, epoch: int) -> AgentConnection:
    """Connect to an agent and greet it; `inventory` is set on what is returned."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket_path, limit=_CHUNK_BYTES)
    except OSError as error:
        raise AgentUnreachable(f"no agent answers at {socket_path}: {error.strerror or error}") from None
    connection = AgentConnection(reader, writer, epoch)
    try:
        await connection.greet()
    except BaseException:
        writer.close()
        raise
    return connection


async def start_detached(settings: AgentSettings, timeout_s: float = 20.0) -> str:
    """Make sure that an agent serves this directory, starting one if none does; return its socket's path.

    The agent is in a session of its own: it outlives this process and whatever kills this process's group.
    """
    socket_path = os.path.join(settings.directory, SOCKET_NAME)
    if await _answers(socket_path):
        return socket_path
    prepare_directories(settings)
    log_path = os.path.join(settings.directory, _LOG_NAME)
    warden = _start_warden(settings, log_path)
    ended = False
    deadline = time.monotonic() + timeout_s
    while not await _answers(socket_path):
        ended = ended or _has_ended(warden)
        if ended and not _wake_warden(settings.directory):
            raise AgentUnreachable(f"the agent ended at once: see {log_path}")
        if time.monotonic() > deadline:
            raise AgentUnreachable(f"the agent does not answer within {timeout_s:.0f} s: see {log_path}")
        await asyncio.sleep(0.01)
    return socket_path


def _start_warden(settings: AgentSettings, log_path: str) -> int:
    log_fd = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    null_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    command = warden_command(settings)
    try:
        # Not subprocess: nobody waits for this child, it is meant to outlive its parent.
        return os.posix_spawn(
            command[0],
            command,
            agent_environment(),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, null_fd, 0),
                (os.POSIX_SPAWN_DUP2, log_fd, 1),
                (os.POSIX_SPAWN_DUP2, log_fd, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE),
        )
    finally:
        os.close(log_fd)
        os.close(null_fd)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _wake_warden(directory: str) -> bool:
    """Ask a warden whose agent was shut down while attempts ran for a new one; False if there is none."""
    try:
        with open(os.path.join(directory, LOCK_NAME), encoding="ascii") as file:
            pid = int(file.read())
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            arguments = file.read().split(b"\0")
        if directory.encode() not in arguments:
            return False
        os.kill(pid, signal.SIGHUP)
    except (OSError, ValueError):
        return False
    return True


async def _answers(socket_path: str) -> bool:
    try:
        reader, writer = await asyncio.open_unix_connection(socket_path)
    except OSError:
        return False
    try:
        writer.write(encode([Ping()]))
        return bool(await asyncio.wait_for(reader.readline(), _ANSWER_WITHIN_S))
    except (ConnectionError, TimeoutError):
        return False
    finally:
        writer.close()
