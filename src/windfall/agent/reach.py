"""How the daemon reaches an agent: makes sure that one of its version serves, and opens a byte stream to it.

Reach is the seam between one machine and many: everything above it speaks through a stream of bytes and knows neither
where the agent is nor how it came there. Here the agent is on this host: it is started as a process that outlives the
daemon, and a unix socket in a directory that nobody else may enter leads to it. Must not know messages beyond Ping.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import time
from typing import Protocol, TypeAlias

from windfall.agent.errors import AgentUnfit, AgentUnreachable
from windfall.agent.launching import (
    LOG_NAME,
    SOCKET_NAME,
    agent_environment,
    last_line,
    last_words,
    log_size,
    prepare_directories,
    warden_command,
)
from windfall.agent.messages import Ping, encode
from windfall.agent.settings import AgentSettings
from windfall.agent.socket_paths import short_path
from windfall.agent.warden import LOCK_NAME

#: Bytes in both directions.
Stream: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

#: What is read ahead of what is asked for.
AHEAD_BYTES = 1 << 18
_ANSWER_WITHIN_S = 5.0
#: For a warden that is told to; one that still has attempts below it stays.
_END_WITHIN_S = 1.0
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


class Reach(Protocol):
    """One agent, wherever its machine is. Both methods raise AgentUnreachable with what to do."""

    @property
    def place(self) -> str:
        """Where the agent keeps its files, for people."""

    @property
    def digest(self) -> str:
        """What tells an agent that was brought up with these settings, by this version, from any other."""

    async def bring_up(self) -> None:
        """Make sure that an agent serves there, starting one of this version if none does."""

    async def dial(self) -> Stream:
        """Open a byte stream to the agent that serves there."""


class UnixReach:
    """An agent on this host, as a process of its own behind a unix socket in its directory."""

    def __init__(self, settings: AgentSettings, timeout_s: float = 20.0) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._socket = os.path.join(settings.directory, SOCKET_NAME)

    @property
    def place(self) -> str:
        """The directory with its socket, journal and log."""
        return self._settings.directory

    @property
    def digest(self) -> str:
        """The digest of its settings."""
        return self._settings.digest

    @property
    def was_up(self) -> bool:
        """Whether an agent has served there, and may still do."""
        return os.path.exists(self._socket)

    async def bring_up(self) -> None:
        """Make sure that an agent serves the directory."""
        if not await _answers(self._socket):
            await _start_detached(self._settings, self._socket, self._timeout_s)

    async def dial(self) -> Stream:
        """Connect to its socket."""
        try:
            with short_path(self._socket) as path:
                return await asyncio.open_unix_connection(path, limit=AHEAD_BYTES)
        except OSError as error:
            raise AgentUnreachable(f"no agent answers at {self._socket}: {error.strerror or error}") from None


async def _start_detached(settings: AgentSettings, socket_path: str, timeout_s: float) -> None:
    """Start an agent in a session of its own: it outlives this process and whatever kills this process's group."""
    log_path = os.path.join(settings.directory, LOG_NAME)
    since = log_size(log_path)
    try:
        prepare_directories(settings)
        warden = start_warden(warden_command(settings), log_path)
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
        if ended and not tell_warden(guard_of(settings.directory), signal.SIGHUP):
            words = last_line(log_path, since) or "it says nothing"
            raise AgentUnreachable(f"the agent ended at once: {words}; see {log_path}")
        if time.monotonic() > deadline:
            raise AgentUnreachable(f"the agent does not answer within {timeout_s:.0f} s: see {log_path}")
        await asyncio.sleep(0.01)


async def _given_up(directory: str, warden: int, words: str) -> AgentUnreachable:
    """Let no warden try for ever what has failed; the answer is what to raise.

    One of an earlier start may do so with other settings than ours, and makes room for them.
    """
    guard = guard_of(directory)
    tell_warden(guard, signal.SIGTERM)
    deadline = time.monotonic() + _END_WITHIN_S
    while time.monotonic() < deadline:
        if _has_ended(warden) and (guard is None or guard_of(directory) != guard):
            break
        await asyncio.sleep(0.01)
    if guard == warden:
        return AgentUnfit(f"the agent ends as soon as it is started: {words}")
    return AgentUnreachable(f"the agent of an earlier start ends as soon as it is started again: {words}")


def start_warden(command: list[str], log_path: str) -> int:
    """Start a warden that outlives this process, with its output in a log; returns its process id."""
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


def guard_of(directory: str) -> int | None:
    """The process of the warden that guards a directory; None if nobody does."""
    try:
        with open(os.path.join(directory, LOCK_NAME), encoding="ascii") as file:
            pid = int(file.read())
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            arguments = file.read().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if directory.encode() in arguments else None


def tell_warden(warden: int | None, number: signal.Signals) -> bool:
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
