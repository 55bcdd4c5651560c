"""The daemon's end of the socket, and how the daemon starts an agent that outlives it.

Decides nothing about attempts: it carries messages. Batches are kept together, because one commit per
batch is what makes both sides fast.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence

from windfall.agent.errors import AgentRejected, AgentUnfit, AgentUnreachable
from windfall.agent.last_words import last_line, last_words, log_size
from windfall.agent.launching import (
    LOG_NAME,
    SOCKET_NAME,
    agent_environment,
    prepare_directories,
    warden_command,
)
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
from windfall.agent.socket_paths import short_path
from windfall.agent.warden import LOCK_NAME

_CHUNK_BYTES = 1 << 20
_ANSWER_WITHIN_S = 5.0
#: For a warden that is told to; one that still has attempts below it stays.
_END_WITHIN_S = 1.0
#: Longer than an agent needs that looks for a container engine which hangs.
_GREET_WITHIN_S = 60.0
_GONE = "the agent closed the connection; see agent.log beside its socket"
#: What to do when the system refuses what an agent needs.
_REMEDIES = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there, or raise the quota",
    errno.EROFS: "its file system is mounted read-only: mount it for writing",
    errno.EACCES: "it must belong to the user that runs the daemon",
    errno.ENOTDIR: "move away the file that is in its place",
    errno.EEXIST: "move away the file that is in its place",
    errno.EMFILE: "raise the limit of open files (ulimit -n) and start Windfall again",
    errno.ENFILE: "this machine has too many files open: end programs, or raise fs.file-max",
    errno.EAGAIN: "this user may have no more processes: end some, or raise the limit (ulimit -u)",
    errno.ENOMEM: "this machine has no memory left: end programs",
}


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

        Nothing is sent to an agent that is gone: the end of the iteration over the connection shows that.
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
        except OSError:
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
            raise AgentUnreachable(f"expected an Inventory from the agent, got {type(first).__name__}")
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
            except OSError:
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
        except OSError:
            return


async def connect(socket_path: str, epoch: int, within_s: float = _GREET_WITHIN_S) -> AgentConnection:
    """Connect to an agent and greet it; `inventory` is set on what is returned."""
    try:
        with short_path(socket_path) as path:
            reader, writer = await asyncio.open_unix_connection(path, limit=_CHUNK_BYTES)
    except OSError as error:
        raise AgentUnreachable(f"no agent answers at {socket_path}: {error.strerror or error}") from None
    connection = AgentConnection(reader, writer, epoch)
    try:
        async with asyncio.timeout(within_s):
            await connection.greet()
    except TimeoutError:
        writer.close()
        raise AgentUnreachable(
            f"the agent took the connection and has not answered for {within_s:g} s; is its process stopped?"
        ) from None
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
    log_path = os.path.join(settings.directory, LOG_NAME)
    since = log_size(log_path)
    try:
        prepare_directories(settings)
        warden = _start_warden(settings, log_path)
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "its directory must be one that the daemon can write")
        raise AgentUnreachable(
            f"an agent cannot be started in {settings.directory}: {error.strerror or error}; {remedy}"
        ) from None
    ended = False
    deadline = time.monotonic() + timeout_s
    while not await _answers(socket_path):
        ended = ended or _has_ended(warden)
        if (words := last_words(log_path, since)) is not None:
            raise await _given_up(settings.directory, warden, f"{words}; see {log_path}")
        if ended and not _tell(_guard_of(settings.directory), signal.SIGHUP):
            words = last_line(log_path, since) or "it says nothing"
            raise AgentUnreachable(f"the agent ended at once: {words}; see {log_path}")
        if time.monotonic() > deadline:
            raise AgentUnreachable(f"the agent does not answer within {timeout_s:.0f} s: see {log_path}")
        await asyncio.sleep(0.01)
    return socket_path


async def _given_up(directory: str, warden: int, words: str) -> AgentUnreachable:
    """Let no warden try for ever what has failed; the answer is what to raise.

    One of an earlier start may do so with other settings than ours, and makes room for them.
    """
    guard = _guard_of(directory)
    _tell(guard, signal.SIGTERM)
    deadline = time.monotonic() + _END_WITHIN_S
    while time.monotonic() < deadline:
        if _has_ended(warden) and (guard is None or _guard_of(directory) != guard):
            break
        await asyncio.sleep(0.01)
    if guard == warden:
        return AgentUnfit(f"the agent ends as soon as it is started: {words}")
    return AgentUnreachable(f"the agent of an earlier start ends as soon as it is started again: {words}")


def _start_warden(settings: AgentSettings, log_path: str) -> int:
    command = warden_command(settings)
    null_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    log_fd = -1
    try:
        log_fd = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
        os.close(null_fd)
        if log_fd >= 0:
            os.close(log_fd)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _guard_of(directory: str) -> int | None:
    """The process of the warden that guards a directory; None if nobody does."""
    try:
        with open(os.path.join(directory, LOCK_NAME), encoding="ascii") as file:
            pid = int(file.read())
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            arguments = file.read().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if directory.encode() in arguments else None


def _tell(warden: int | None, number: signal.Signals) -> bool:
    """Ask a warden to let its agent be (SIGTERM), or to start one if it has none (SIGHUP); False if it is gone."""
    try:
        if warden is not None:
            os.kill(warden, number)
    except OSError:
        return False
    return warden is not None


async def _answers(socket_path: str) -> bool:
    try:
        with short_path(socket_path) as path:
            reader, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    try:
        if not writer.is_closing():
            writer.write(encode([Ping()]))
        return bool(await asyncio.wait_for(reader.readline(), _ANSWER_WITHIN_S))
    except (OSError, TimeoutError):
        return False
    except ValueError:
        return True  # More than one line: the greeting will show what it is.
    finally:
        writer.close()
