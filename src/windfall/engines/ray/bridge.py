"""Runs on a node of a Ray cluster, under its own Python: says what Ray knows, and does what the daemon asks for.

The daemon sends this module, with doors.py and cluster_look.py, as one text (bridge_client.py), so they use nothing but
the standard library and Ray; nothing of Windfall is installed there for it. JSON lines on standard input and output. A
driver of Ray is ended from inside when the head is gone for a minute: then the daemon starts another bridge, and the
actors, which are detached, are found again. Must not know agents, jobs or instances.
"""

from __future__ import annotations

import asyncio
import base64
import collections
import contextlib
import json
import os
import sys
import time
from typing import Any

from windfall.engines.ray.cluster_look import ClusterLook, ClusterRefused, autoscaled_groups, check, probe
from windfall.engines.ray.doors import CHUNK_BYTES, Door, NodeHold

_LOOK_S = 1.0
_SILENT_S = 15.0
_OPEN_WITHIN_S = 60
_WHERE_WITHIN_S = 2
#: What a head says to those that it does not know.
_OTHER_CLUSTER = "WrongClusterID"
_MOST_WAITING_BYTES = 16 << 20


class Bridge:
    """One connection between a daemon and a cluster."""

    def __init__(self, ray: Any, address: str, say: Any) -> None:
        self._ray, self._say = ray, say
        self._look = ClusterLook(address)
        self._id = os.urandom(8).hex()
        self._door = ray.remote(Door)
        self._hold = ray.remote(NodeHold)
        self._doors: dict[str, Any] = {}
        self._holds: dict[str, Any] = {}
        self._inputs: dict[int, _Input] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def watch(self) -> None:
        """Say what changes in the cluster, until its head is another one."""
        groups: list[dict[str, Any]] = []
        heard_s, silence_told = time.monotonic(), False
        while True:
            try:
                for line in await asyncio.to_thread(self._look.look):
                    await self._say(line)
                if silence_told:
                    await self._say({"is": "head", "answers": True, "why": ""})
                heard_s, silence_told = time.monotonic(), False
            except Exception as error:  # noqa: BLE001 - whatever Ray raises, the head is asked again
                if _OTHER_CLUSTER in str(error):
                    return  # It was started without its memory, and takes no word from a driver of the old one.
                if not silence_told and time.monotonic() - heard_s > _SILENT_S:
                    silence_told = True
                    await self._say({"is": "head", "answers": False, "why": _words(error)})
            groups_now = await asyncio.to_thread(autoscaled_groups)
            if groups_now != groups:
                groups = groups_now
                await self._say({"is": "groups", "groups": groups})
            await asyncio.sleep(_LOOK_S)

    async def obey(self, line: dict[str, Any]) -> None:
        """Do what a line asks for."""
        what = line["do"]
        if what == "open":
            stream = int(line["stream"])
            self._inputs[stream] = _Input()
            self._begin(self._carry(stream, line["node"], line["command"]))
        elif what == "bytes":
            if (waiting := self._inputs.get(int(line["stream"]))) is not None:
                waiting.put(base64.b64decode(line["data"]))
        elif what == "end":
            if (waiting := self._inputs.get(int(line["stream"]))) is not None:
                waiting.put(None)
        elif what == "close":
            if (waiting := self._inputs.get(int(line["stream"]))) is not None:
                waiting.close()
        elif what in ("hold", "watch"):
            self._begin(self._keep(line))
        elif what == "release":
            self._begin(asyncio.to_thread(self._release, str(line["hold"])))
        elif what == "keep":
            self._begin(asyncio.to_thread(self._release_others, {str(name) for name in line["holds"]}))

    def _begin(self, doing: Any) -> None:
        task = asyncio.ensure_future(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Doors

    async def _carry(self, stream: int, node: str, command: str) -> None:
        """Run a command through the door of a node until either side ends it."""
        status, words, door, waiting = -1, "", None, self._inputs[stream]
        try:
            door = await asyncio.to_thread(self._door_of, node)
            await asyncio.wait_for(door.open.remote(self._id, stream, command), _OPEN_WITHIN_S)
            await self._say({"is": "opened", "stream": stream})
            giving = asyncio.ensure_future(self._give(door, stream, waiting))
            try:
                status, words = await self._take(door, stream, waiting)
            finally:
                giving.cancel()
        except Exception as error:  # noqa: BLE001 - whatever Ray raises, the stream is over
            self._doors.pop(node, None)
            words = _words(error) or "the door does not answer"
        finally:
            self._inputs.pop(stream, None)
            if door is not None and waiting.is_closed:
                door.close.remote(self._id, stream)
        await self._say({"is": "closed", "stream": stream, "status": status, "why": words})

    async def _give(self, door: Any, stream: int, waiting: _Input) -> None:
        number = 0
        while True:
            data = await waiting.get()
            if not await door.send.remote(self._id, stream, number, data):
                return
            number += 1

    async def _take(self, door: Any, stream: int, waiting: _Input) -> tuple[int, str]:
        number = 0
        closed = asyncio.ensure_future(waiting.closed.wait())
        try:
            while True:
                polling = asyncio.ensure_future(_result(door.poll.remote(self._id, stream, number)))
                await asyncio.wait({polling, closed}, return_when=asyncio.FIRST_COMPLETED)
                if closed.done():
                    polling.cancel()
                    return -1, waiting.why
                number += 1
                if (answer := polling.result()) is None:
                    continue
                data, status, words = answer
                if status is not None:
                    return status, words
                await self._say({"is": "bytes", "stream": stream, "data": base64.b64encode(data).decode()})
        finally:
            closed.cancel()

    def _door_of(self, node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if node not in self._doors:
            self._doors[node] = self._door.options(
                name=f"door-{node}",
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=1000,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            ).remote()
        return self._doors[node]

    # Holds

    async def _keep(self, line: dict[str, Any]) -> None:
        """Have a hold, say where it is when it has a node, and say when it has gone."""
        name = str(line["hold"])
        if name in self._holds:
            return
        try:
            hold = self._holds[name] = await asyncio.to_thread(self._hold_of, name, line)
            node = await hold.where.remote()
            await self._say({"is": "held", "hold": name, "node": node})
            await hold.stay.remote()
            why = "it has ended"
        except Exception as error:  # noqa: BLE001 - whatever Ray raises, the hold is gone
            why = _words(error)
        if self._holds.pop(name, None) is not None:
            await self._say({"is": "unheld", "hold": name, "why": why})

    def _hold_of(self, name: str, line: dict[str, Any]) -> Any:
        if line["do"] == "watch":
            return self._ray.get_actor(f"hold-{name}")
        return self._hold.options(
            name=f"hold-{name}",
            lifetime="detached",
            get_if_exists=True,
            num_cpus=line["cpus"],
            num_gpus=line["gpus"],
            label_selector=line["selector"],
            max_restarts=0,
            max_concurrency=1000,
        ).remote()

    def _release(self, name: str) -> None:
        """Let go of a node, with its door: a node with an actor on it is not idle to an autoscaler."""
        self._holds.pop(name, None)
        with contextlib.suppress(Exception):
            hold = self._ray.get_actor(f"hold-{name}")
            with contextlib.suppress(Exception):
                # One that has no node yet does not answer.
                node = self._ray.get(hold.where.remote(), timeout=_WHERE_WITHIN_S)
                self._doors.pop(node, None)
                self._ray.kill(self._ray.get_actor(f"door-{node}"))
            self._ray.kill(hold)

    def _release_others(self, wanted: set[str]) -> None:
        from ray.util import list_named_actors

        for actor in list_named_actors():
            if actor.startswith("hold-") and actor.removeprefix("hold-") not in wanted:
                self._release(actor.removeprefix("hold-"))


class _Input:
    """Bytes on their way to one command."""

    def __init__(self) -> None:
        self._parts: collections.deque[bytes | None] = collections.deque()
        self._size = 0
        self._there = asyncio.Event()
        self.closed = asyncio.Event()
        self.is_closed = False
        self.why = ""

    def put(self, data: bytes | None) -> None:
        self._parts.append(data)
        self._size += len(data or b"")
        self._there.set()
        if self._size > _MOST_WAITING_BYTES:
            self.close("the node takes nothing of what it is sent")

    def close(self, why: str = "") -> None:
        self.is_closed, self.why = True, self.why or why
        self.closed.set()

    async def get(self) -> bytes | None:
        """All that waits, up to a chunk."""
        while not self._parts:
            self._there.clear()
            await self._there.wait()
        data = self._parts.popleft()
        if data is not None:
            parts, size = [data], len(data)
            while (
                self._parts
                and (following := self._parts[0]) is not None
                and size + len(following) <= CHUNK_BYTES
            ):
                parts.append(following)
                size += len(following)
                self._parts.popleft()
            self._size -= size
            data = b"".join(parts)
        return data


async def _result(reference: Any) -> Any:
    return await reference


def _words(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


async def serve(options: dict[str, Any], output_fd: int) -> None:
    """Serve until the daemon closes its end."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(output_fd, "wb", 0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)

    async def say(line: dict[str, Any]) -> None:
        writer.write(json.dumps(line).encode() + b"\n")
        await writer.drain()

    try:
        address = check(await asyncio.to_thread(probe), trusts_network=bool(options["trusts_network"]))
        import ray

        ray.init(
            address=address,
            namespace=f"windfall-{options['daemon']}",
            log_to_driver=False,
            logging_level="ERROR",
            configure_logging=False,
        )
    except ClusterRefused as refusal:
        await say({"is": "gone", "code": refusal.code, "why": str(refusal)})
        return
    except Exception as error:  # noqa: BLE001 - whatever Ray raises, people are to read it
        await say({"is": "gone", "code": "no-answer", "why": _words(error)})
        return
    reader = asyncio.StreamReader(limit=8 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    await say({"is": "hello", "ray": ray.__version__, "address": address})
    bridge = Bridge(ray, address, say)

    async def obey_all() -> None:
        while line := await reader.readline():
            await bridge.obey(json.loads(line))

    doing = {asyncio.ensure_future(bridge.watch()), asyncio.ensure_future(obey_all())}
    await asyncio.wait(doing, return_when=asyncio.FIRST_COMPLETED)


def main() -> None:
    """Serve with the options of the command line. What Ray prints goes to the standard error."""
    output_fd = os.dup(1)
    os.dup2(2, 1)
    asyncio.run(serve(json.loads(sys.argv[1]), output_fd))
    sys.stderr.flush()
    os._exit(0)  # Ray's own end takes seconds, and its actors are to stay.


if __name__ == "__main__":
    main()
