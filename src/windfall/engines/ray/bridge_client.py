"""Keeps a bridge to a Ray cluster: starts it by the user's command, reads its lines, and opens streams through it.

The bridge is one text (bridge.py and its parts) that a shell at the far end of the command runs under the cluster's own
Python, so that the daemon needs neither Ray nor a port. Its death is ordinary: everything is told again to the next
one. Decides when a bridge is started again and what people are told; must not know machines or instances.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.resources
import itertools
import json
import logging
import os
import re
import shlex
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from windfall.agent.errors import AgentError, AgentUnreachable
from windfall.agent.reach import AHEAD_BYTES, Stream
from windfall.engines.programs import ended, tail
from windfall.engines.ray.errors import ending, refusal
from windfall.engines.ray.lines import (
    Bytes,
    Closed,
    ClusterLine,
    Gone,
    Hello,
    Opened,
    StreamLine,
    for_people,
    read_line,
    write_line,
)
from windfall.objects.credentials import KEPT, KEY_VARIABLES, is_api_key

log = logging.getLogger(__name__)

#: What is sent to the cluster, in this order, and what is taken out to make it one text.
_PARTS = ("doors.py", "cluster_look.py", "bridge.py")
_OWN_IMPORTS = re.compile(r"^from (__future__|windfall\.engines\.ray\.\w+) import .*\n", re.MULTILINE)
#: The command that is none: this host is a node of the cluster.
LOCAL = "local"
_LINE_BYTES = 8 << 20
_CHUNK_BYTES = 48 << 10
_MOST_ANSWER_BYTES = 4 << 20
#: What a login shell may print before the first line.
_MOST_NOISE_LINES = 200
_HELLO_WITHIN_S = 90.0
_OPEN_WITHIN_S = 60.0
_END_WITHIN_S = 2.0
_AGAIN_S, _AGAIN_MOST_S = 0.5, 15.0
#: What one stream may have waiting on this side.
_MOST_WAITING_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """How a cluster is reached."""

    #: A command that runs what follows it on a node of the cluster, such as `ssh ubuntu@head`; or `local`.
    command: str
    python: str = "python3"
    #: Whether a cluster without token authentication is accepted.
    trusts_network: bool = False
    #: What tells this daemon's actors from those of others.
    daemon: str = "windfall"


@dataclass(slots=True)
class _Carried:
    """One stream: our end of the socket, and what became of the command."""

    writer: asyncio.StreamWriter
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    status: int = -1
    words: str = ""


class RayBridge:
    """The bridge of one daemon to one cluster."""

    def __init__(self, settings: BridgeSettings, on_line: Callable[[ClusterLine], None]) -> None:
        self._settings = settings
        self._on_line = on_line
        self._process: asyncio.subprocess.Process | None = None
        self._streams: dict[int, _Carried] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        #: Set while the bridge stands.
        self.stands = asyncio.Event()
        #: Why it does not, for people; set with `is_troubled`.
        self.trouble: str | None = None
        self.is_troubled = asyncio.Event()

    async def run(self) -> None:
        """Keep a bridge until cancelled."""
        wait_s, logged = _AGAIN_S, ""
        while True:
            stood = False
            try:
                stood = await self._serve()
            except AgentError as error:
                self.trouble = str(error)
            if self.trouble and self.trouble != logged:
                log.warning("the Ray cluster cannot be used: %s; trying again", self.trouble)
            logged = self.trouble or ""
            self.is_troubled.set()
            wait_s = _AGAIN_S if stood else min(wait_s * 2, _AGAIN_MOST_S)
            await asyncio.sleep(wait_s)

    async def _serve(self) -> bool:
        """One bridge, from its start to its end; whether it stood."""
        process = self._process = await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        saying = asyncio.create_task(tail(process.stderr))
        stood = False
        try:
            process.stdin.write(self._program())
            async with asyncio.timeout(_HELLO_WITHIN_S):
                first = await self._first(process.stdout)
            if isinstance(first, Hello):
                stood, self.trouble = True, None
                self.stands.set()
                log.info("the bridge to the Ray cluster at %s stands (Ray %s)", first.address, first.ray)
                self._on_line(first)
                await self._read(process.stdout)
            elif isinstance(first, Gone):
                self.trouble = refusal(first.code, first.why)
                return False
        except TimeoutError:
            self.trouble = f"the bridge does not answer within {_HELLO_WITHIN_S:.0f} s"
            return False
        except OSError:
            pass  # It has ended; its status says why.
        finally:
            self.stands.clear()
            self._process = None
            self._close_all()
            # The end of its input ends it, also where only ssh is here.
            process.stdin.close()
            status, words = await ended(process, _END_WITHIN_S), await saying
        if stood:
            self._on_line(Gone("ended"))
        self.trouble = ending(self._settings.command, self._settings.python, status, words)
        return stood

    async def _start(self) -> asyncio.subprocess.Process:
        command = [*prefix_words(self._settings.command), "sh"]
        pipe = asyncio.subprocess.PIPE
        try:
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                limit=_LINE_BYTES,
                start_new_session=True,
                env=_environment(),
            )
        except OSError as error:
            raise AgentUnreachable(
                f"`{self._settings.command}` cannot be started ({command[0]}: {error.strerror or error}):"
                " is it installed?"
            ) from None

    def _program(self) -> bytes:
        """What the shell there is given. Nothing follows before the bridge has answered: a shell may read ahead."""
        options = {"daemon": self._settings.daemon, "trusts_network": self._settings.trusts_network}
        words = [self._settings.python, "-u", "-c", bridge_text(), json.dumps(options)]
        return f"exec {shlex.join(words)}\n".encode()

    async def _first(self, stdout: asyncio.StreamReader) -> Any:
        for _ in range(_MOST_NOISE_LINES):
            line = await _line(stdout)
            if not line or line.startswith(b'{"is"'):
                return read_line(line) if line else None
        raise AgentUnreachable(
            f"`{self._settings.command}` prints other things than the bridge: is its login shell talkative?"
        )

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        while line := await _line(stdout):
            said = read_line(line)
            if isinstance(said, Opened | Bytes | Closed):
                self._hear(said)
            else:
                self._on_line(said)

    # Streams --------------------------------------------------------------------------------------------

    def _hear(self, said: StreamLine) -> None:
        carried = self._streams.get(said.stream)
        if carried is None:
            return
        if isinstance(said, Opened):
            carried.opened.set()
        elif isinstance(said, Bytes):
            if not carried.writer.is_closing():
                carried.writer.write(said.data)
            if carried.writer.transport.get_write_buffer_size() > _MOST_WAITING_BYTES:
                self._end_stream(said.stream, -1, "it is read too slowly")
                self.send("close", stream=said.stream)
        else:
            self._end_stream(said.stream, said.status, said.why)

    def _end_stream(self, number: int, status: int, words: str) -> None:
        carried = self._streams.pop(number, None)
        if carried is not None:
            carried.status, carried.words = status, words
            carried.opened.set()
            carried.closed.set()
            carried.writer.close()

    def _close_all(self) -> None:
        for number in list(self._streams):
            self._end_stream(number, -1, "the bridge to the Ray cluster has ended")

    def send(self, do: str, **words: Any) -> None:
        """Tell the bridge, if one stands; what matters is told again to the next one."""
        if self._process is not None and self._process.stdin is not None and self.stands.is_set():
            self._process.stdin.write(write_line(do, **words))

    async def _open(self, node: str, command: str) -> tuple[Stream, _Carried, int]:
        if not self.stands.is_set():
            raise AgentUnreachable(self.trouble or "the bridge to the Ray cluster is being started")
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours, limit=AHEAD_BYTES)
        inner, outer = await asyncio.open_connection(sock=theirs, limit=AHEAD_BYTES)
        number = next(self._numbers)
        carried = self._streams[number] = _Carried(outer)
        self.send("open", stream=number, node=node, command=command)
        task = asyncio.create_task(self._pump(number, inner, carried), name="stream to a Ray node")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return (reader, writer), carried, number

    async def _pump(self, number: int, inner: asyncio.StreamReader, carried: _Carried) -> None:
        """Carry what is written to a stream to the bridge, until it is closed."""
        with contextlib.suppress(OSError):
            while chunk := await inner.read(_CHUNK_BYTES):
                if carried.closed.is_set() or self._process is None or self._process.stdin is None:
                    return
                self.send("bytes", stream=number, data=chunk)
                await self._process.stdin.drain()
        if not carried.closed.is_set():
            self.send("end", stream=number)

    async def stream(self, node: str, command: str, greeting: bytes) -> Stream:
        """A stream to a command on a node that first prints a line, the greeting; raises AgentUnreachable."""
        (reader, writer), carried, number = await self._open(node, command)
        try:
            async with asyncio.timeout(_OPEN_WITHIN_S):
                await carried.opened.wait()
                if await reader.readline() == greeting:
                    return reader, writer
        except TimeoutError:
            carried.words = f"it does not answer within {_OPEN_WITHIN_S:.0f} s"
        except (OSError, ValueError):
            carried.words = carried.words or "it answers what makes no sense"
        writer.close()
        with contextlib.suppress(TimeoutError):
            # What a command says at its end comes with its status.
            await asyncio.wait_for(carried.closed.wait(), 2)
        self.send("close", stream=number)
        raise AgentUnreachable(for_people(carried.words) or "the node closes the stream")

    async def ask(self, node: str, command: str, parts: Iterable[bytes], within_s: float) -> bytes:
        """Run a command on a node with these parts as its input and return what it prints."""
        (reader, writer), carried, number = await self._open(node, command)
        answer = b""
        try:
            async with asyncio.timeout(within_s):
                await carried.opened.wait()
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                writer.write_eof()
                while chunk := await reader.read(1 << 16):
                    answer += chunk
                    if len(answer) > _MOST_ANSWER_BYTES:
                        raise AgentUnreachable("the node answers with more than it was asked for")
                await carried.closed.wait()
        except TimeoutError:
            raise AgentUnreachable(f"the node has not answered for {within_s:.0f} s") from None
        except OSError:
            await carried.closed.wait()
        finally:
            writer.close()
            if not carried.closed.is_set():
                self.send("close", stream=number)
        if carried.status != 0:
            raise AgentUnreachable(
                for_people(carried.words) or f"the command ended with status {carried.status}"
            )
        return answer


def bridge_text() -> str:
    """The modules that make the bridge, as one program."""
    folder = importlib.resources.files("windfall.engines.ray")
    text = "\n".join(folder.joinpath(name).read_text("utf-8") for name in _PARTS)
    return "from __future__ import annotations\n" + _OWN_IMPORTS.sub("", text)


def prefix_words(command: str) -> list[str]:
    """The words of the user's command; none for `local`. Raises ValueError for one that cannot be read."""
    return [] if command == LOCAL else shlex.split(command)


def _environment() -> dict[str, str]:
    """Ours without what is Windfall's own: keys of its API are nothing to a cluster, nor are its Python's paths."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(KEPT) and name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    if is_api_key(variables.get(KEY_VARIABLES[0], "")):
        for name in KEY_VARIABLES:
            variables.pop(name, None)
    return variables


async def _line(stdout: asyncio.StreamReader) -> bytes:
    try:
        return await stdout.readline()
    except ValueError:
        raise AgentUnreachable("the bridge to the Ray cluster says a line that is too long") from None
