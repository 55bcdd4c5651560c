"""An agent behind the door of a Ray node, beside the same agent over its unix socket: the way of a start, and jobs/s.

The daemon is left out: what differs between reaches is the stream between it and the agent. The cluster is a real one
on loopback, with a token; without RAY_PYTHON, a Python that has Ray, nothing is measured.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from bench.machine import wait_until_quiet
from bench.results import Bench, Result, percentile
from tests.ray_cluster import RayCluster, ray_python
from tests.ray_reach import NODE, NodeBridge, RelayedReach
from windfall.agent import messages
from windfall.agent.client import AgentConnection, connect
from windfall.agent.reach import Reach, UnixReach
from windfall.agent.settings import AgentSettings

#: What one start may take, and how many jobs a core starts in a second (issue of many machines).
TARGET_MS, TARGET_RATE = 5.0, 1_000
_AT_ONCE, _BATCH = 200, 50


def measure(bench: Bench) -> list[Result]:
    """One start after another, then many at once, over both."""
    if not os.access(ray_python(), os.X_OK):
        bench.say("ray: RAY_PYTHON names no Python with Ray; nothing is measured")
        return []
    with RayCluster() as cluster:
        cluster.add(NODE)
        busy = wait_until_quiet()
        return asyncio.run(_both(bench, cluster, f"others used {busy:.0%} of the processors just before"))


async def _both(bench: Bench, cluster: RayCluster, note: str) -> list[Result]:
    bridge = NodeBridge(cluster, "bench")
    try:
        unix_ms, unix_rate = await _over(UnixReach(_settings(bench.workspace)), bench)
        door_ms, door_rate = await _over(RelayedReach(_settings(bench.workspace), bridge), bench)
    finally:
        await bridge.close()
    beside = "unix socket"
    one_ms, one_unix_ms = percentile(door_ms, 50), percentile(unix_ms, 50)
    return [
        Result(
            "Start to Started through Ray's door, p50",
            one_ms,
            "ms",
            one_unix_ms,
            f"{beside}, ms",
            one_ms / one_unix_ms,
            f"{TARGET_MS:.0f} ms",
            one_ms <= TARGET_MS,
            note,
            details={"runs": [round(value, 3) for value in door_ms]},
        ),
        Result(
            "jobs of `true` through Ray's door",
            door_rate,
            "jobs/s",
            unix_rate,
            f"{beside}, jobs/s",
            door_rate / unix_rate,
            f"{TARGET_RATE:,} jobs/s",
            door_rate >= TARGET_RATE,
            f"{_AT_ONCE} at once; {note}",
        ),
    ]


def _settings(workspace: Path) -> AgentSettings:
    data = Path(tempfile.mkdtemp(prefix="door-", dir=workspace))
    data.chmod(0o711)  # jobs run as another user and pass through
    return AgentSettings(
        directory=str(data / "agent"),
        attempts_directory=str(data / "attempts"),
        logs_directory=str(data / "logs"),
        gpus="none",
        vcpus=_AT_ONCE,
        memory_mib=_AT_ONCE * 64,
        use_cgroups=False,
        use_sandbox=False,
        sample_every_s=0,
    )


async def _over(reach: Reach, bench: Bench) -> tuple[list[float], float]:
    """Milliseconds from each of some starts to its answer, and jobs in a second with many under way."""
    await reach.bring_up()
    connection = await connect(reach, epoch=1)
    stream = aiter(connection)
    warm, count, many = 20, bench.count(200, 60), bench.count(3_000, 600)
    found = [await _one(connection, stream, number) for number in range(warm + count)]
    rate = await _many(connection, stream, many)
    bench.say(f"{type(reach).__name__}: start {percentile(found[warm:], 50):.2f} ms, {rate:,.0f} jobs/s")
    await connection.send([messages.Shutdown(kill=True, grace_s=1.0)])
    async for _ in stream:
        pass
    return found[warm:], rate


async def _one(
    connection: AgentConnection, stream: AsyncIterator[list[messages.ToDaemon]], number: int
) -> float:
    begin, started = time.perf_counter(), 0.0
    connection.write([_start(f"one{number}")])
    while True:
        for message in await anext(stream):
            if isinstance(message, messages.Refused):
                raise RuntimeError(message.reason)
            if isinstance(message, messages.Started):
                started = time.perf_counter()
            if isinstance(message, messages.Exited):
                connection.write([messages.Forget([message.token])])
                return (started - begin) * 1000


async def _many(
    connection: AgentConnection, stream: AsyncIterator[list[messages.ToDaemon]], many: int
) -> float:
    begin, sent, ended = time.perf_counter(), 0, 0
    while ended < many:
        while sent < many and sent - ended <= _AT_ONCE - _BATCH:
            connection.write([_start(f"many{sent + number}") for number in range(_BATCH)])
            sent += _BATCH
        over = [message.token for message in await anext(stream) if isinstance(message, messages.Exited)]
        connection.write([messages.Forget(over)] if over else [])
        ended += len(over)
    return many / (time.perf_counter() - begin)


def _start(name: str) -> messages.Start:
    return messages.Start(
        token=f"{name}#1",
        task_id=name,
        argv=["/bin/true"],
        environment={},
        directory=None,
        log_path="",
        vcpus=1,
        memory_mib=64,
        gpu_ids=[],
    )
