"""The daemon's end of the socket when the agent at the other end is killed: nothing raises where nobody expects it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from windfall.agent.client import AgentConnection, connect
from windfall.agent.errors import AgentUnreachable
from windfall.agent.messages import Message, Shutdown

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
        loop.run_until_complete(asyncio.wait_for(send_on(), 10))


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
    path = str(tmp_path / "socket")

    async def greet() -> None:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen()
            served = loop.run_in_executor(None, agent, listening)
            with pytest.raises(AgentUnreachable):
                await connect(path, epoch=1)
            await served

    loop.run_until_complete(greet())
