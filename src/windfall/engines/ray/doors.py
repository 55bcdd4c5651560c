"""The actors that the bridge to a Ray cluster leaves on its nodes; a part of the text that is sent there (bridge.py).

A *door* runs a shell command on its node and carries the bytes of its standard input and output. Commands are started
without Ray's variables (the token is among them) and without the devices that Ray gave its worker. A *hold* takes the
CPUs and GPUs of a node: an autoscaler launches a node for it and keeps the node as long as the hold lives. Both are
detached and outlive their bridge. Must not know agents, jobs or instances.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import Any

#: Results of actor calls up to this size stay out of the object store.
CHUNK_BYTES = 64 << 10
_MOST_WORDS_BYTES = 16 << 10
_POLL_S = 20.0
_LAST_WORDS_S = 2.0
#: For a stream that no bridge reads any more.
_ABANDONED_S = 90.0
#: Variables that Ray adds for its workers, besides its own.
_ADDED = frozenset(
    {"OMP_NUM_THREADS", "PYTHONBREAKPOINT", "SPT_NOENV", "LD_PRELOAD", "PYTHONPATH", "PYTHONUNBUFFERED"}
)


class NodeHold:
    """Takes a node."""

    async def where(self) -> str:
        """The node that it has got."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    async def stay(self) -> None:
        """Does not return: its caller hears when the hold is gone."""
        import asyncio

        await asyncio.Event().wait()


class _Stream:
    """One command and the bytes that go to it and come from it."""

    def __init__(self, process: Any) -> None:
        self.process = process
        self.sent = self.polled = 0
        self.polled_s = time.monotonic()
        self.words = b""
        self.saying: Any = None


class Door:
    """Runs commands on its node for one bridge at a time."""

    def __init__(self) -> None:
        self.streams: dict[tuple[str, int], _Stream] = {}
        self.watching: Any = None
        self.draining: set[Any] = set()

    async def open(self, bridge: str, stream: int, command: str) -> None:
        """Start a command. What an earlier bridge has opened is closed: nobody reads it any more."""
        for key in [key for key in self.streams if key[0] != bridge]:
            self._close(key)
        if self.watching is None:
            self.watching = asyncio.ensure_future(self._watch())
        pipe = asyncio.subprocess.PIPE
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RAY_", "__MODIN"))
            and not name.endswith("_VISIBLE_DEVICES")
            and name not in _ADDED
        }
        home = os.path.expanduser("~")
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=environment,
            cwd=home if os.path.isdir(home) else "/",
            start_new_session=True,
            limit=1 << 20,
        )
        opened = self.streams[bridge, stream] = _Stream(process)
        opened.saying = asyncio.ensure_future(self._hear(opened))

    async def send(self, bridge: str, stream: int, number: int, data: bytes | None) -> bool:
        """Give bytes to a command, None for their end. After a gap the stream is closed: nothing was to be lost."""
        opened = self.streams.get((bridge, stream))
        if opened is None:
            return False
        if number != opened.sent:
            self._close((bridge, stream))
            return False
        opened.sent += 1
        try:
            if data is None:
                opened.process.stdin.close()
            else:
                opened.process.stdin.write(data)
                await opened.process.stdin.drain()
        except OSError:
            return True  # It has ended, or closed its input; the poll says what came of it.
        return True

    async def poll(self, bridge: str, stream: int, number: int) -> tuple[bytes, int | None, str] | None:
        """Bytes of a command; its status and last words at its end; None when it said nothing for a while."""
        opened = self.streams.get((bridge, stream))
        if opened is None:
            return b"", -1, "the stream is closed"
        if number != opened.polled:
            self._close((bridge, stream))
            return b"", -1, "a part of the stream was lost"
        opened.polled += 1
        opened.polled_s = time.monotonic()
        try:
            data = await asyncio.wait_for(opened.process.stdout.read(CHUNK_BYTES), _POLL_S)
        except TimeoutError:
            return None
        except asyncio.TimeoutError:  # noqa: UP041 - another class before Python 3.11, which a cluster may have
            return None
        if data:
            return data, None, ""
        # What it left behind may have its standard error, and a process has ended to asyncio only with its pipes.
        await asyncio.wait({opened.saying}, timeout=_LAST_WORDS_S)
        with contextlib.suppress(Exception):
            await asyncio.wait_for(opened.process.wait(), _LAST_WORDS_S)
        status = opened.process.returncode
        self._close((bridge, stream))
        return b"", -1 if status is None else status, opened.words.decode(errors="replace")

    async def close(self, bridge: str, stream: int) -> None:
        """End a command."""
        self._close((bridge, stream))

    def _close(self, key: tuple[str, int]) -> None:
        opened = self.streams.pop(key, None)
        if opened is not None:
            with contextlib.suppress(ProcessLookupError):
                opened.process.kill()
            # A pipe that is not read to its end stays open in this actor, which lives for long.
            draining = asyncio.ensure_future(_drained(opened.process.stdout))
            self.draining.add(draining)
            draining.add_done_callback(self.draining.discard)

    async def _hear(self, opened: _Stream) -> None:
        while chunk := await opened.process.stderr.read(4096):
            opened.words = (opened.words + chunk)[-_MOST_WORDS_BYTES:]

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(10)
            for key, opened in list(self.streams.items()):
                if time.monotonic() - opened.polled_s > _ABANDONED_S:
                    self._close(key)


async def _drained(stdout: Any) -> None:
    with contextlib.suppress(Exception):
        while await stdout.read(CHUNK_BYTES):
            pass
