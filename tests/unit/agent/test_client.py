"""The daemon's end of the socket when the agent at the other end is killed: nothing raises where nobody expects it."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from tests.waiting import wait_until
from windfall.agent.client import AgentClock, AgentConnection, connect
from windfall.agent.errors import AgentUnfit, AgentUnreachable
from windfall.agent.launching import SOCKET_NAME, agent_environment, warden_command
from windfall.agent.messages import Message, Shutdown
from windfall.agent.reach import UnixReach
from windfall.agent.settings import AgentSettings
from windfall.agent.warden import LOCK_NAME

#: The daemon runs on uvloop, tests and simulations on asyncio's own; they treat a lost peer differently.
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
TOLD: list[Message] = [Shutdown(kill=False)]


@pytest.fixture(params=sorted(LOOPS))
def loop(request):
    loop = LOOPS[request.param]()
    yield loop
    loop.close()


async def a_killed_agent() -> AgentConnection:
    """A connection whose other end was closed without a word."""
    ours, agent = socket.socketpair(socket.AF_UNIX)
    connection = AgentConnection(*await asyncio.open_unix_connection(sock=ours), epoch=1)
    agent.close()
    return connection


def test_what_is_written_to_a_killed_agent_is_let_go_and_the_connection_ends(loop):
    async def write_on() -> list[object]:
        connection = await a_killed_agent()
        # The first finds the broken pipe, the next meet a transport that is closed and has not been heard of yet.
        for _ in range(3):
            connection.write(TOLD)
        heard: list[object] = [batch async for batch in connection]
        connection.write(TOLD)
        await connection.close()
        return heard

    assert loop.run_until_complete(write_on()) == []


def test_sending_to_a_killed_agent_says_that_it_is_gone(loop):
    async def send_on() -> None:
        connection = await a_killed_agent()
        while True:
            await connection.send(TOLD)

    with pytest.raises(AgentUnreachable, match="closed the connection"):
        loop.run_until_complete(asyncio.wait_for(send_on(), 120))


def _hang_up(listening: socket.socket) -> None:
    accepted, _ = listening.accept()
    accepted.close()


def _hear_and_hang_up(listening: socket.socket) -> None:
    accepted, _ = listening.accept()
    accepted.recv(1)
    accepted.close()


@pytest.mark.parametrize("agent", [_hang_up, _hear_and_hang_up])
def test_an_agent_that_dies_while_it_is_greeted_is_unreachable(
    loop, tmp_path: Path, agent: Callable[[socket.socket], None]
):
    settings = AgentSettings(str(tmp_path), str(tmp_path))
    path = str(tmp_path / SOCKET_NAME)

    async def greet() -> None:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen()
            served = loop.run_in_executor(None, agent, listening)
            with pytest.raises(AgentUnreachable):
                await connect(UnixReach(settings), epoch=1)
            await served

    loop.run_until_complete(greet())


def test_an_agent_that_cannot_serve_is_told_of_in_its_own_words_and_leaves_nobody_behind(
    loop, tmp_path: Path
):
    settings = AgentSettings(
        str(tmp_path), str(tmp_path / "attempts"), gpus="none", container_socket="none", use_sandbox=False
    )
    (tmp_path / "journal").mkdir()

    with pytest.raises(AgentUnfit, match=r"cannot serve: .*Is a directory.*journal.*; see .*agent\.log"):
        loop.run_until_complete(UnixReach(settings, timeout_s=60).bring_up())

    def is_free() -> bool:
        with open(tmp_path / LOCK_NAME, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    wait_until(is_free, "no warden that tries for ever")


def test_a_warden_that_fails_with_the_settings_of_an_earlier_start_makes_room_for_new_ones(
    loop, tmp_path: Path
):
    attempts = str(tmp_path / "attempts")
    gone = AgentSettings(str(tmp_path), attempts, gpus=f"recorded:{tmp_path}/gone")
    wanted = AgentSettings(str(tmp_path), attempts, gpus="none", container_socket="none", use_sandbox=False)
    command = warden_command(gone)
    with open(tmp_path / "agent.log", "wb") as log:
        guard = subprocess.Popen(command, env=agent_environment(), stderr=log)
    try:
        wait_until(lambda: "cannot serve" in (tmp_path / "agent.log").read_text(), "an agent that failed")

        reach = UnixReach(wanted, timeout_s=60)

        async def begin() -> None:
            with pytest.raises(AgentUnreachable, match=r"of an earlier start .*: cannot serve: .*gone"):
                await reach.bring_up()
            assert await asyncio.to_thread(guard.wait, 60) == 0
            await reach.bring_up()
            connection = await connect(reach, epoch=1)
            await connection.send([Shutdown(kill=True)])
            assert [batch async for batch in connection] == []
            await connection.close()

        loop.run_until_complete(begin())
    finally:
        guard.kill()
        guard.wait()


def test_an_agent_inherits_neither_key_of_a_shell_that_windfall_env_has_set(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "WNDFKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-api")
    monkeypatch.setenv("_WINDFALL_KEPT_AWS_SECRET_ACCESS_KEY", "of-the-user")
    assert not {"of-the-api", "of-the-user"} & set(agent_environment().values())


def test_a_clock_is_believed_to_agree_until_an_answer_proves_that_it_does_not():
    clock = AgentClock()
    clock.measure(1_000, 1_004, 1_008)
    clock.measure(1_000, 0, 9_000)  # an agent that does not say
    assert clock.ahead_ms == 0
    clock.measure(10_000, 15_010, 10_020)
    assert clock.ahead_ms == 5_000
    clock.measure(20_000, 26_000, 29_000)  # a slow answer, from which 5,000 ahead follows as well as 0
    assert clock.ahead_ms == 5_000
    clock.measure(30_000, 27_010, 30_020)
    assert clock.ahead_ms == -3_000
