"""A real agent that shares no disk with the daemon: what it is provided with reaches its jobs, and leaves no trace."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.client import AgentConnection, connect
from windfall.agent.messages import Exited, Forget, Provide, Refused, Shutdown, Start
from windfall.agent.reach import UnixReach
from windfall.agent.settings import AgentSettings
from windfall.capacity.environments import ComputeEnvironment, Provisioning
from windfall.control.events import AgentConnected, AttemptExited, InstanceReady, Report
from windfall.control.instructions import ForgetAttempt, LaunchInstance, StartAttempt
from windfall.control.ports import Holdings
from windfall.engines.fleet.engine import FleetEngine
from windfall.engines.fleet.settings import FleetSettings
from windfall.engines.provisioning import Provisioner, SharedStock
from windfall.jobs.containers import Secret
from windfall.jobs.ids import AttemptToken, EnvironmentName, InstanceId, TaskId
from windfall.jobs.resources import Resources
from windfall.jobs.storage import FILES

DEADLINE_S = 150.0
VALUE, NEW_VALUE = "a-value-that-is-nowhere-else", "its-successor"


@pytest.fixture
def root() -> Iterator[Path]:
    # Not pytest's tmp_path: the path of a unix socket must be short.
    path = Path(tempfile.mkdtemp(prefix="windfall-provided-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def settings(root: Path) -> AgentSettings:
    return AgentSettings(
        str(root / "agent"),
        str(root / "attempts"),
        job_user=pwd.getpwuid(os.geteuid()).pw_name,
        gpus="none",
        use_cgroups=False,
        use_sandbox=False,
        objects_file=str(root / "objects.json"),
        secrets_directory=str(root / "secrets"),
        provided=True,
    )


def a_start(root: Path, number: int) -> Start:
    task = f"a{number}-1"
    log = str(root / f"{task}.log")
    command = ["/bin/sh", "-c", "echo $TOKEN"]
    return Start(
        f"a{number}#1", task, command, {}, None, log, 1.0, 64, [], secrets=(Secret("TOKEN", "token"),)
    )


async def ended(connection: AgentConnection, token: str) -> Exited | Refused:
    async with asyncio.timeout(DEADLINE_S):
        async for batch in connection:
            for message in batch:
                if isinstance(message, Exited | Refused) and message.token == token:
                    return message
    raise AssertionError(f"the agent went away before {token} ended")


def test_a_job_gets_its_secret_and_the_machine_keeps_nothing_of_it(root: Path):
    secrets, objects = {"token": VALUE}, {"AWS_REGION": "elsewhere"}
    machine = Provisioner(secrets.get, lambda: objects)

    async def story() -> None:
        reach = UnixReach(settings(root))
        await reach.bring_up()
        connection = await connect(reach, 1)
        try:
            await connection.send(machine.at_connection(connection.inventory))
            await connection.send(machine.accompanied([a_start(root, 1)]))
            await ended(connection, "a1#1")
            secrets["token"] = NEW_VALUE
            await connection.send(machine.accompanied([a_start(root, 2)]))
            await ended(connection, "a2#1")
            assert (root / "secrets" / "token").read_text() == NEW_VALUE
            assert '"elsewhere"' in (root / "objects.json").read_text()
            await connection.send(machine.accompanied([Forget(["a1#1", "a2#1"]), a_start(root, 3)]))
            await ended(connection, "a3#1")
            await connection.send([Provide(withdrawn=["token"]), a_start(root, 4)])
            refused = await ended(connection, "a4#1")
            assert "there is no secret token here" in str(refused.reason)
        finally:
            await connection.send([Shutdown(kill=True)])
            async for _ in connection:
                pass
            await connection.close()

    asyncio.run(story())
    logs = {path.name: path.read_text() for path in root.glob("*.log")}
    assert [logs[f"a{number}-1.log"].strip() for number in (1, 2, 3)] == [VALUE, NEW_VALUE, NEW_VALUE]
    assert not (root / "secrets" / "token").exists()
    for path in (root / "agent").rglob("*"):
        if path.is_file():
            assert VALUE.encode() not in path.read_bytes(), path
            assert NEW_VALUE.encode() not in path.read_bytes(), path


def test_a_job_of_a_fleet_gets_its_secret_before_it_starts_and_a_machine_is_known_to_lack_the_daemons_files(
    root: Path,
):
    secrets = {"token": VALUE}
    heard: list[Report] = []
    news = asyncio.Event()

    def hear(report: Report) -> None:
        heard.append(report)
        news.set()

    async def until(kind: type, count: int = 1) -> list[Any]:
        async with asyncio.timeout(DEADLINE_S):
            while len(matching := [report for report in heard if isinstance(report, kind)]) < count:
                news.clear()
                await news.wait()
        return matching

    async def story() -> None:
        files = AttemptDirectory(root / "daemon-logs")
        stock = SharedStock(secrets.get, lambda: {"AWS_REGION": "elsewhere"})
        fleet = FleetEngine(hear, files, 1, FleetSettings(stock=stock))
        environment = ComputeEnvironment(EnvironmentName("e"), Provisioning.EC2, 0, 64, uuid="u")
        fleet.adopt(Holdings([environment]))
        (root / "logs").mkdir()
        agent = msgspec.structs.replace(settings(root), logs_directory=str(root / "logs"))
        fleet.add("far", UnixReach(agent))
        running = asyncio.create_task(fleet.run())
        try:
            [connected] = await until(AgentConnected)
            assert connected.machine.lacks == {FILES}
            [offer] = fleet.offers(environment)
            assert offer.lacks == {FILES}
            fleet.carry_out([LaunchInstance(InstanceId("i-1"), EnvironmentName("e"), offer)])
            await until(InstanceReady)
            for number, value in ((1, VALUE), (2, NEW_VALUE)):
                secrets["token"] = value
                fleet.carry_out([_start_on("i-1", number)])
                await until(AttemptExited, number)
            assert json.loads((root / "objects.json").read_text()) == {"AWS_REGION": "elsewhere"}
            tokens = (AttemptToken("f1#1"), AttemptToken("f2#1"))
            fleet.carry_out([ForgetAttempt(token, InstanceId("i-1")) for token in tokens])
            logs = {path.name: path.read_text().strip() for path in (root / "logs").glob("f*.log")}
            assert logs == {"f1-1.log": VALUE, "f2-1.log": NEW_VALUE}
        finally:
            await fleet.shut_down(kill=True)
            await asyncio.wait([running], timeout=DEADLINE_S)
            running.cancel()

    asyncio.run(story())
    assert not (root / "secrets" / "token").exists()


def _start_on(instance: str, number: int) -> StartAttempt:
    return StartAttempt(
        AttemptToken(f"f{number}#1"),
        TaskId(f"f{number}-1"),
        InstanceId(instance),
        ("/bin/sh", "-c", "echo $TOKEN"),
        {},
        None,
        Resources(1, 64),
        (),
        None,
        secrets=(Secret("TOKEN", "token"),),
    )
