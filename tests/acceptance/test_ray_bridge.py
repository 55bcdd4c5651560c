"""The bridge to a real Ray cluster: what it says, what it carries, and whom it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.ray_cluster import RayCluster
from windfall.agent.errors import AgentUnreachable
from windfall.engines.ray.bridge_client import BridgeSettings, RayBridge
from windfall.engines.ray.lines import ClusterLine, Held, Node, NodesSeen, Unheld

DEADLINE_S = 90.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster() as running:
        running.add("127.0.0.2", "--labels=windfall/type=box", '--resources={"wheel": 1}')
        yield running


class Heard:
    """What a bridge has said of its cluster."""

    def __init__(self) -> None:
        self.lines: list[ClusterLine] = []
        self._news = asyncio.Event()

    def take(self, line: ClusterLine) -> None:
        self.lines.append(line)
        self._news.set()

    async def until(self, condition: Callable[[ClusterLine], bool]) -> ClusterLine:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for line in self.lines:
                    if condition(line):
                        return line
                self._news.clear()
                await self._news.wait()

    async def node(self, ip: str) -> Node:
        line = await self.until(
            lambda line: isinstance(line, NodesSeen) and any(node.ip == ip for node in line.nodes)
        )
        assert isinstance(line, NodesSeen)
        return next(node for node in line.nodes if node.ip == ip)


@contextlib.asynccontextmanager
async def bridge_to(cluster: RayCluster, *, daemon: str = "test") -> AsyncIterator[tuple[RayBridge, Heard]]:
    heard = Heard()
    bridge = RayBridge(BridgeSettings(cluster.command, cluster.python, daemon=daemon), heard.take)
    task = asyncio.create_task(bridge.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            await bridge.stands.wait()
        yield bridge, heard
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def trouble_of(settings: BridgeSettings) -> str:
    """What keeps a bridge from standing."""
    bridge = RayBridge(settings, lambda _line: None)
    task = asyncio.create_task(bridge.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            await bridge.is_troubled.wait()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return bridge.trouble or ""


def test_a_command_on_a_node_has_its_bytes_and_its_status(cluster: RayCluster) -> None:
    async def play() -> None:
        async with bridge_to(cluster) as (bridge, heard):
            node = await heard.node("127.0.0.2")
            assert (node.cpus, node.state, node.labels["windfall/type"]) == (2.0, "ALIVE", "box")
            sent = bytes(range(256)) * 4000
            assert await bridge.ask(node.id, "cat", [sent, b"end"], DEADLINE_S) == sent + b"end"
            with pytest.raises(AgentUnreachable, match="no such thing"):
                await bridge.ask(node.id, "echo no such thing >&2; exit 3", [], DEADLINE_S)
            reader, writer = await bridge.stream(node.id, "echo ready; exec cat", b"ready\n")
            for number in range(50):
                writer.write(b"line %d\n" % number)
                assert await reader.readline() == b"line %d\n" % number
            writer.close()
            with pytest.raises(AgentUnreachable, match="not today"):
                await bridge.stream(node.id, "echo not today >&2; exit 1", b"ready\n")

    asyncio.run(play())


def test_commands_get_neither_the_token_nor_the_devices_of_ray(cluster: RayCluster) -> None:
    async def play() -> None:
        async with bridge_to(cluster) as (bridge, heard):
            node = await heard.node("127.0.0.2")
            environment = (await bridge.ask(node.id, "env; ps -o args= -p $PPID", [], DEADLINE_S)).decode()
            assert "PATH=" in environment
            assert "RAY_" not in environment
            assert "VISIBLE_DEVICES" not in environment
            assert "OMP_NUM_THREADS" not in environment

    asyncio.run(play())


def test_a_process_that_was_forked_away_outlives_its_door(cluster: RayCluster, tmp_path: Path) -> None:
    fork = f"(setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 1000' >/dev/null 2>&1 </dev/null &)"

    async def play() -> str:
        async with bridge_to(cluster, daemon="forks") as (bridge, heard):
            node = await heard.node("127.0.0.2")
            await bridge.ask(node.id, f"{fork}; while [ ! -s {tmp_path}/pid ]; do :; done", [], DEADLINE_S)
            return node.id

    node = asyncio.run(play())
    pid = int((tmp_path / "pid").read_text())
    cluster.run(
        "import ray, time\n"
        "ray.init(namespace='windfall-forks', log_to_driver=False)\n"
        f"door = ray.get_actor('door-{node}')\n"
        "ray.kill(door)\n"
        "deadline = time.time() + 60\n"
        "while time.time() < deadline:\n"
        f"    try: ray.get_actor('door-{node}')\n"
        "    except ValueError: break\n"
    )
    assert Path(f"/proc/{pid}").exists()
    os.kill(pid, signal.SIGKILL)


def test_a_hold_has_a_node_outlives_its_bridge_and_is_let_go(cluster: RayCluster) -> None:
    async def play() -> None:
        async with bridge_to(cluster, daemon="holds") as (bridge, heard):
            bridge.send("hold", hold="i-1", cpus=2, gpus=0, selector={"windfall/type": "box"})
            held = await heard.until(lambda line: isinstance(line, Held))
            assert isinstance(held, Held)
            assert held.node == (await heard.node("127.0.0.2")).id
        async with bridge_to(cluster, daemon="holds") as (bridge, heard):
            bridge.send("hold", hold="i-1", cpus=2, gpus=0, selector={"windfall/type": "box"})
            assert await heard.until(lambda line: line == held)
            # A hold that no daemon knows any more is let go, and another can have the node.
            bridge.send("keep", holds=[])
            bridge.send("hold", hold="i-2", cpus=2, gpus=0, selector={"windfall/type": "box"})
            await heard.until(lambda line: isinstance(line, Held) and line.hold == "i-2")
            cluster.run(
                "import ray\nray.init(namespace='windfall-holds', log_to_driver=False)\n"
                "ray.kill(ray.get_actor('hold-i-2'))"
            )
            await heard.until(lambda line: isinstance(line, Unheld) and line.hold == "i-2")

    asyncio.run(play())


def test_a_bridge_that_is_killed_is_started_again(cluster: RayCluster) -> None:
    async def play() -> None:
        async with bridge_to(cluster) as (bridge, heard):
            node = await heard.node("127.0.0.2")
            reader, writer = await bridge.stream(node.id, "echo ready; exec cat", b"ready\n")
            assert bridge._process is not None
            bridge._process.kill()
            assert await reader.read() == b""
            writer.close()
            with pytest.raises(AgentUnreachable, match="bridge"):
                await bridge.ask(node.id, "true", [], DEADLINE_S)
            async with asyncio.timeout(DEADLINE_S):
                await bridge.stands.wait()
            assert await bridge.ask(node.id, "echo again", [], DEADLINE_S) == b"again\n"

    asyncio.run(play())


def test_local_means_a_node_of_the_cluster_itself(
    cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for word in cluster.command.split()[1:]:
        monkeypatch.setenv(*word.split("=", 1))

    async def play() -> None:
        heard = Heard()
        bridge = RayBridge(BridgeSettings("local", cluster.python, daemon="local"), heard.take)
        task = asyncio.create_task(bridge.run())
        try:
            node = await heard.node("127.0.0.2")
            assert await bridge.ask(node.id, "echo here", [], DEADLINE_S) == b"here\n"
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    asyncio.run(play())


def test_a_cluster_without_a_token_and_one_whose_token_is_missing_are_refused(cluster: RayCluster) -> None:
    without = " ".join(word for word in cluster.command.split() if "TOKEN" not in word)
    missing = asyncio.run(trouble_of(BridgeSettings(f"{without} HOME=/nonexistent", cluster.python)))
    assert "asks for a token" in missing
    assert "/nonexistent/.ray/auth_token" in missing
    with RayCluster(token=False) as unguarded:
        refused = asyncio.run(trouble_of(BridgeSettings(unguarded.command, unguarded.python)))
        assert "RAY_AUTH_MODE=token" in refused
        assert "--ray-trusts-network" in refused

        async def accepted() -> None:
            bridge = RayBridge(
                BridgeSettings(unguarded.command, unguarded.python, trusts_network=True), lambda _line: None
            )
            task = asyncio.create_task(bridge.run())
            async with asyncio.timeout(DEADLINE_S):
                await bridge.stands.wait()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        asyncio.run(accepted())


def test_what_keeps_a_bridge_from_standing_is_said_with_what_to_do(cluster: RayCluster) -> None:
    def told(command: str, python: str = cluster.python) -> str:
        return asyncio.run(trouble_of(BridgeSettings(command, python)))

    assert "--ray-python" in told("local", "/nonexistent/python")
    assert "is it installed?" in told("no-such-program head")
    assert "status 1" in told("false")
