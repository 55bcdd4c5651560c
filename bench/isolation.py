"""What isolation costs: one attempt after another, from the message to an agent to the end that it reports.

Plain is a session of its own as the job user; a plain attempt is put under its cgroup limits only once it has
lived a little, so `true` never is; a sandbox is bubblewrap.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from bench.machine import cpu_s
from bench.results import Bench, Result, middle
from windfall.agent import messages
from windfall.agent.client import AgentConnection, connect
from windfall.agent.reach import UnixReach
from windfall.agent.settings import AgentSettings


def measure(bench: Bench) -> list[Result]:
    """Plain attempts without and with cgroups, then sandboxed ones without and with cgroups."""
    count = bench.count(200, 40)
    plain_ms = 0.0
    results = []
    for name, cgroups, sandbox in (
        ("plain", False, False),
        ("plain, cgroups allowed", True, False),
        ("bubblewrap", False, True),
        ("bubblewrap and cgroup", True, True),
    ):
        wall, cpu, isolation = asyncio.run(_run(_directory(bench.workspace), count, cgroups, sandbox))
        value = middle(wall)
        plain_ms = plain_ms or value
        bench.say(f"isolation, {name}: {value:.2f} ms from Start to Exited ({isolation})")
        results.append(
            Result(
                f"one attempt of `true`, {name}",
                value,
                "ms",
                plain_ms,
                "plain, ms",
                value / plain_ms,
                note=f"reported isolation: {isolation}; {cpu:.2f} ms of the agent's processor time",
                details={"runs": [round(it, 3) for it in wall]},
            )
        )
    return results


def _directory(workspace: Path) -> Path:
    data = Path(tempfile.mkdtemp(prefix="agent-", dir=workspace))
    data.chmod(0o711)  # jobs run as another user and pass through
    return data


async def _run(data: Path, count: int, cgroups: bool, sandbox: bool) -> tuple[list[float], float, str]:
    settings = AgentSettings(
        directory=str(data / "agent"),
        attempts_directory=str(data / "attempts"),
        gpus="none",
        vcpus=4,
        memory_mib=4096,
        use_cgroups=cgroups,
        use_sandbox=sandbox,
    )
    reach = UnixReach(settings)
    await reach.bring_up()
    connection = await connect(reach, epoch=1)
    await asyncio.sleep(0.5)
    stream = aiter(connection)
    found: list[float] = []
    isolation = ""
    before_s = cpu_s(connection.inventory.agent_pid)
    for _ in range(count):
        milliseconds, isolation = await _one(connection, stream, data, sandbox)
        found.append(milliseconds)
    agent_ms = (cpu_s(connection.inventory.agent_pid) - before_s) / count * 1000
    await connection.send([messages.Shutdown(kill=True, grace_s=1.0)])
    async for _ in stream:
        pass
    return found, agent_ms, isolation


async def _one(
    connection: AgentConnection,
    stream: AsyncIterator[list[messages.ToDaemon]],
    data: Path,
    sandbox: bool,
) -> tuple[float, str]:
    token = str(uuid.uuid4())
    start = messages.Start(
        token=token,
        task_id=token.replace("-", ""),
        argv=["/bin/true"],
        environment={},
        directory=None,
        log_path=os.fspath(data / f"{token}.log"),
        vcpus=1,
        memory_mib=64,
        gpu_ids=[],
        needs_sandbox=sandbox,
    )
    begin = time.perf_counter()
    connection.write([start])
    while True:
        for message in await anext(stream):
            if isinstance(message, messages.Refused):
                raise RuntimeError(message.reason)
            if isinstance(message, messages.Exited) and message.token == token:
                elapsed = (time.perf_counter() - begin) * 1000
                await connection.send([messages.Forget([token])])
                return elapsed, message.isolation
