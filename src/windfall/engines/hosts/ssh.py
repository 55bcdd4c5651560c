"""The system's ssh, with the user's own configuration, keys and known hosts: one question, or one stream of bytes.

Decides ssh's options and how long it may take. Nobody is ever asked for a password, and which host keys are accepted is
the user's choice alone. A connection is kept for a minute after its last use, so that the next one is quick. What a
host answers is read to a limit: it may be anything. Must not know what is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shlex
import socket
import stat
import tempfile
from collections.abc import Iterable

from windfall.agent.errors import AgentUnreachable
from windfall.agent.reach import AHEAD_BYTES, Stream
from windfall.engines.hosts.destinations import SshDestination
from windfall.engines.hosts.ssh_errors import SSH_FAILED, explain
from windfall.engines.programs import drained, kill, tail

_MOST_ANSWER_BYTES = 4 << 20
#: What a login shell may print before our own program speaks.
_MOST_NOISE_BYTES = 64 << 10
_CONNECT_S = 10
_DIAL_WITHIN_S = 30.0
#: How long the process of a shared connection may take to end.
_CLOSE_WITHIN_S = 5.0
_OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": str(_CONNECT_S),
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "TCPKeepAlive": "yes",
    "ControlMaster": "auto",
    "ControlPersist": "60",
    # What a user's configuration may have for sessions by hand.
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "PermitLocalCommand": "no",
    "EscapeChar": "none",
    "LogLevel": "ERROR",
    "SendEnv": "-*",
}


class Ssh:
    """How one daemon calls ssh."""

    def __init__(self, data: str, config: str | None = None, program: str = "ssh") -> None:
        """`data` is the daemon's directory; `config` replaces the user's ssh configuration."""
        self._data, self._config, self._program = data, config, program
        #: Keeps processes of streams from being forgotten before they end.
        self._watched: dict[asyncio.Task[None], asyncio.subprocess.Process] = {}

    def command(self, destination: SshDestination, remote: str) -> list[str]:
        """The command line; `remote` is what the login shell there is given."""
        options = _OPTIONS | {"ControlPath": os.path.join(self._control_directory(), "%C")}
        return [
            self._program,
            *([] if self._config is None else ["-F", self._config]),
            *(part for name, value in options.items() for part in ("-o", f"{name}={value}")),
            *destination.arguments[:-1],
            "--",
            destination.arguments[-1],
            remote,
        ]

    async def ask(
        self, destination: SshDestination, remote: str, parts: Iterable[bytes], within_s: float
    ) -> bytes:
        """Run a command with these parts as its input and return what it prints; raises AgentUnreachable."""
        pipe = asyncio.subprocess.PIPE
        process = await self._start(destination, remote, pipe, pipe)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        said = asyncio.create_task(tail(process.stderr))
        feeding = asyncio.create_task(_feed(process.stdin, parts))
        try:
            async with asyncio.timeout(within_s):
                answer = await _read_all(process.stdout, destination)
                status = await process.wait()
        except TimeoutError:
            raise AgentUnreachable(
                f"{destination.text} has not answered for {within_s:.0f} s; is it overloaded, or its disk stuck?"
            ) from None
        finally:
            feeding.cancel()
            if process.returncode is None:
                kill(process)
                await drained(process.stdout)
                await process.wait()
        words = await said
        if status:
            raise AgentUnreachable(explain(destination, status, words, self._config))
        return answer

    async def stream(self, destination: SshDestination, remote: str, greeting: bytes) -> Stream:
        """Open a stream to a command that first prints a line, the greeting; raises AgentUnreachable."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await self._start(destination, remote, theirs.fileno(), theirs.fileno())
            reader, writer = await asyncio.open_connection(sock=ours, limit=AHEAD_BYTES)
        except BaseException:
            ours.close()
            raise
        assert process.stderr is not None
        saying = asyncio.create_task(tail(process.stderr))
        try:
            async with asyncio.timeout(_DIAL_WITHIN_S):
                greeted = await _greeted(reader, greeting)
        except TimeoutError:
            greeted = False
        except BaseException:
            writer.close()
            kill(process)
            self._watch(process, saying)
            raise
        if not greeted:
            writer.close()
            if process.returncode is None and not saying.done():
                # It says why before it ends; one that does not end is ended.
                await asyncio.wait([saying], timeout=1.0)
            if process.returncode is None:
                kill(process)
            status, words = await process.wait(), await saying
            raise AgentUnreachable(
                explain(destination, status if status > 0 else SSH_FAILED, words, self._config)
            )
        self._watch(process, saying)
        return reader, writer

    async def _start(
        self, destination: SshDestination, remote: str, stdin: int, stdout: int
    ) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *self.command(destination, remote),
                stdin=stdin,
                stdout=stdout,
                stderr=asyncio.subprocess.PIPE,
                # Ctrl-C at the daemon's terminal is the daemon's affair.
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            )
        except FileNotFoundError:
            raise AgentUnreachable(
                "ssh is not installed on the daemon's machine: install it (Debian: openssh-client)"
            ) from None
        except OSError as error:
            raise AgentUnreachable(f"ssh cannot be started: {error.strerror or error}") from None

    def _watch(self, process: asyncio.subprocess.Process, saying: asyncio.Task[str]) -> None:
        async def until_it_ends() -> None:
            await saying
            await process.wait()

        task = asyncio.create_task(until_it_ends(), name="ssh")
        self._watched[task] = process
        task.add_done_callback(lambda task: self._watched.pop(task, None))

    async def close(self) -> None:
        """End all streams and the connections that they share, and remove the directory of their sockets."""
        for process in self._watched.values():
            kill(process)
        if self._watched:
            await asyncio.wait(list(self._watched))
        directory = kept_connections(self._data)
        with contextlib.suppress(OSError, TimeoutError):
            for name in os.listdir(directory):
                ending = await asyncio.create_subprocess_exec(
                    *(
                        self._program,
                        "-F",
                        "none",
                        "-O",
                        "exit",
                        "-o",
                        f"ControlPath={os.path.join(directory, name)}",
                    ),
                    "any",
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                )
                await asyncio.wait_for(ending.wait(), _CLOSE_WITHIN_S)
            os.rmdir(directory)

    def _control_directory(self) -> str:
        """A directory of this user alone with a short path: the kernel takes 107 bytes for a socket's."""
        path = kept_connections(self._data)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
                raise AgentUnreachable(
                    f"{path} belongs to somebody else, or others can enter it: remove it"
                ) from None
        except OSError as error:
            raise AgentUnreachable(f"{path} cannot be made: {error.strerror or error}") from None
        return path


def kept_connections(data: str) -> str:
    """Where a daemon with this data directory keeps the sockets of its connections."""
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:12]
    return os.path.join(tempfile.gettempdir(), f"windfall-ssh-{os.getuid()}-{digest}")


def quoted(command: Iterable[str]) -> str:
    """A command for the login shell of a host, whichever it is: every word in quotes that needs them."""
    return shlex.join(command)


async def _feed(stdin: asyncio.StreamWriter, parts: Iterable[bytes]) -> None:
    try:
        for part in parts:
            stdin.write(part)
            await stdin.drain()
        stdin.close()
    except OSError:
        return  # It has ended; its status says why.


async def _read_all(stdout: asyncio.StreamReader, destination: SshDestination) -> bytes:
    answer = b""
    while chunk := await stdout.read(1 << 16):
        answer += chunk
        if len(answer) > _MOST_ANSWER_BYTES:
            raise AgentUnreachable(f"{destination.text} answers with more than it was asked for")
    return answer


async def _greeted(reader: asyncio.StreamReader, greeting: bytes) -> bool:
    """Read lines up to the greeting; False if the stream ends, or says too much, before it."""
    read = 0
    while read < _MOST_NOISE_BYTES:
        try:
            line = await reader.readline()
        except (OSError, ValueError):
            return False
        if line == greeting:
            return True
        if not line:
            return False
        read += len(line)
    return False
