"""The daemon's side of sessions inside jobs, with a line to an agent that the test plays."""

from __future__ import annotations

import asyncio
import base64
import re
import select
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.builders import a_busy_world, a_job
from windfall.agent.inside.frames import INPUT, INPUT_END, OUTPUT, WINDOW, FrameReader, frame, read_ended
from windfall.agent.reach import UnixReach
from windfall.agent.settings import AgentSettings
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Key, Role
from windfall.aws_api.protocol.service import Call, Caller
from windfall.daemon import exec_sessions
from windfall.daemon.exec_sessions import Execs, ExecSessions
from windfall.jobs.submitters import Submitter

MEMBER = Caller("AKIAMEMBER", Role.SUBMIT, "default")
ADMIN = Caller("AKIAADMIN", Role.ADMIN, "default")
ALICE = Caller("AKIAALICE", Role.SUBMIT, "default", "alice")
SESSION = "0123456789abcdef" * 2


def a_key(caller: Caller) -> Key:
    return Key(caller.access_key_id, "secret", caller.role, caller.tenant, None, 0, user=caller.user)


class World:
    """A core with one running job, and an agent's socket."""

    def __init__(self, directory: Path, submitter: Submitter) -> None:
        reach = UnixReach(AgentSettings(str(directory), str(directory / "attempts")))
        self.socket = directory / "agent.sock"
        self.world = a_busy_world()
        self.world.submits(a_job("running").by(submitter))
        self.world.starts("running")
        self.keys = {caller.access_key_id: a_key(caller) for caller in (MEMBER, ADMIN, ALICE)}
        self.sessions = ExecSessions(lambda _engine, _instance: reach.dial(), self.keys.get)
        gate: Any = self
        self.execs = Execs(gate, self.sessions)
        self.arrivals: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self.begun: set[str] = set()
        self.lines: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def inspect(self, question: Any) -> Any:
        return question(self.world.state, {}, 0)

    async def read(self, _: Any) -> Any:
        return None

    async def ask(self, operation: str, caller: Caller = MEMBER, **params: Any) -> Any:
        handlers: dict[str, Callable[[Call], Awaitable[Any]]] = {
            "StartExec": self.execs.start,
            "ReadExec": self.execs.read,
            "WriteExec": self.execs.write,
            "EndExec": self.execs.end,
        }
        given = {"session": SESSION, **params}
        answer = await handlers[operation](Call("windfall", operation, given, caller, "r", "1", 0))
        if operation == "StartExec" and given["session"] not in self.begun:
            self.begun.add(given["session"])
            self.lines.append(await self.arrivals.get())
        return answer

    async def line(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The agent's end of the session, with what was asked taken off."""
        reader, writer = self.lines[-1]
        await reader.readline()
        return reader, writer


@asynccontextmanager
async def a_world(directory: Path, submitter: Submitter | None = None) -> AsyncIterator[World]:
    world = World(directory, submitter or Submitter())

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await world.arrivals.put((reader, writer))

    server = await asyncio.start_unix_server(welcome, str(world.socket))
    try:
        yield world
    finally:
        for _, writer in world.lines:
            writer.close()
            await writer.wait_closed()
        for _ in range(3):
            await asyncio.sleep(0)  # The loop closes the daemon's ends.
        server.close()
        await server.wait_closed()


def test_an_answer_that_got_lost_is_given_again(tmp_path):
    async def play() -> None:
        async with a_world(tmp_path) as world:
            await world.ask("StartExec", jobId="running")
            _, writer = await world.line()
            writer.write(frame(OUTPUT, b"first"))
            first = (await world.ask("ReadExec", position=0)).body
            again = (await world.ask("ReadExec", position=0)).body
            assert first == again == frame(OUTPUT, b"first")
            writer.write(frame(OUTPUT, b"second"))
            second = (await world.ask("ReadExec", position=len(first))).body
            assert second == frame(OUTPUT, b"second")
            with pytest.raises(ApiError, match="position must be"):
                await world.ask("ReadExec", position=0)
            assert (await world.ask("ReadExec", position=len(first + second), waitS=0)).body == b""
            writer.close()
            ((_, told),) = FrameReader().feed(
                (await world.ask("ReadExec", position=len(first + second))).body
            )
            assert "cut off" in str(read_ended(told)[1])
            await world.ask("EndExec")

    asyncio.run(play())


def test_input_that_is_sent_twice_arrives_once(tmp_path):
    async def play() -> None:
        async with a_world(tmp_path) as world:
            await world.ask("StartExec", jobId="running")
            reader, _ = await world.line()
            encoded = base64.b64encode(b"abcdef").decode()
            assert await world.ask("WriteExec", position=0, content=encoded) == {"position": 6}
            assert await world.ask("WriteExec", position=3, content=encoded) == {"position": 9}
            await world.ask("WriteExec", position=9, rows=5, columns=7, end=True)
            await world.ask("WriteExec", position=9, end=True)
            with pytest.raises(ApiError, match="at most"):
                await world.ask("WriteExec", position=10)
            await world.ask("EndExec")
            found = list(FrameReader().feed(await reader.read()))
            assert found == [(INPUT, b"abcdef"), (INPUT, b"def"), (WINDOW, b"\0\5\0\7"), (INPUT_END, b"")]

    asyncio.run(play())


def test_a_session_of_a_silent_client_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(exec_sessions, "SILENT_S", 0.0)
    monkeypatch.setattr(exec_sessions, "_LOOK_EVERY_S", 0.01)

    async def play() -> None:
        async with a_world(tmp_path) as world:
            await world.ask("StartExec", jobId="running")
            reader, _ = await world.line()
            assert await reader.read() == b"", "the daemon hangs up"
            with pytest.raises(ApiError, match="no such session"):
                await world.ask("ReadExec", position=0)

    asyncio.run(play())


def test_input_that_nobody_takes_does_not_keep_the_line_open(tmp_path, monkeypatch):
    monkeypatch.setattr(exec_sessions, "WAIT_MOST_S", 0.01)

    async def play() -> None:
        async with a_world(tmp_path) as world:
            await world.ask("StartExec", jobId="running")
            _, writer = await world.line()
            content, taken, before = base64.b64encode(bytes(500_000)).decode(), 0, -1
            while taken != before:
                before = taken
                taken = (await world.ask("WriteExec", position=taken, content=content))["position"]
            waiting = world.sessions.find(MEMBER, SESSION)
            assert waiting is not None
            for _ in range(100):
                await world.ask("WriteExec", position=taken, rows=5, columns=7)
            assert waiting.writer.transport.get_write_buffer_size() < 2 << 20
            await world.ask("EndExec")
            events = select.poll()
            events.register(writer.get_extra_info("socket").fileno(), 0)
            assert await asyncio.to_thread(events.poll, 30_000), "the daemon hangs up"

    asyncio.run(play())


@pytest.mark.parametrize("change", ["revoked", "other rights"])
def test_the_sessions_of_a_key_end_with_it(tmp_path, monkeypatch, change):
    monkeypatch.setattr(exec_sessions, "_LOOK_EVERY_S", 0.01)

    async def play() -> None:
        async with a_world(tmp_path) as world:
            await world.ask("StartExec", jobId="running")
            reader, _ = await world.line()
            waiting = asyncio.create_task(world.ask("ReadExec", position=0))
            await asyncio.sleep(0)
            if change == "revoked":
                del world.keys[MEMBER.access_key_id]
            else:
                world.keys[MEMBER.access_key_id] = a_key(replace(MEMBER, tenant="other"))
            assert await reader.read() == b"", "the daemon hangs up, without a request"
            with pytest.raises(ApiError, match="is not valid here"):
                await waiting

    asyncio.run(play())


def test_what_came_while_a_key_was_revoked_is_not_handed_out(tmp_path, monkeypatch):
    monkeypatch.setattr(exec_sessions, "_LOOK_EVERY_S", 1000)

    async def play() -> None:
        async with a_world(tmp_path) as world:
            await world.ask("StartExec", jobId="running")
            _, writer = await world.line()
            waiting = asyncio.create_task(world.ask("ReadExec", position=0))
            await asyncio.sleep(0)
            del world.keys[MEMBER.access_key_id]
            writer.write(frame(OUTPUT, b"secret"))
            with pytest.raises(ApiError, match="is not valid here"):
                await waiting
            assert world.sessions.find(MEMBER, SESSION) is None

    asyncio.run(play())


def test_too_many_sessions_of_a_tenant_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(exec_sessions, "MOST_PER_TENANT", 1)

    async def play() -> None:
        async with a_world(tmp_path) as world:
            await world.ask("StartExec", jobId="running")
            await world.ask("StartExec", jobId="running")  # The same one.
            with pytest.raises(ApiError, match="1 sessions of your tenant are open"):
                await world.ask("StartExec", jobId="running", session="f" * 32)
            with pytest.raises(ApiError, match="in use"):
                await world.ask("StartExec", ADMIN, jobId="running")
            await world.ask("EndExec")
            await world.ask("StartExec", jobId="running", session="f" * 32)
            await world.ask("EndExec", session="f" * 32)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("owner", "caller", "why"),
    [
        (Submitter(is_admin=True), MEMBER, "only an admin key"),
        (Submitter(user="alice"), MEMBER, "the account alice"),
        (Submitter(), Caller("AKIABOB", Role.SUBMIT, "default", "bob"), "not mapped to"),
        (Submitter(user="alice"), ALICE, None),
        (Submitter(user="alice"), ADMIN, None),
        (Submitter(), MEMBER, None),
    ],
)
def test_who_may_enter(tmp_path, owner, caller, why):
    async def play() -> None:
        async with a_world(tmp_path, owner) as world:
            if why is None:
                assert await world.ask("StartExec", caller, jobId="running") == {"session": SESSION}
                await world.ask("EndExec", caller)
                return
            with pytest.raises(ApiError, match=why) as refused:
                await world.ask("StartExec", caller, jobId="running")
            assert refused.value.status == 403
            assert not world.lines

    asyncio.run(play())


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"session": "x"}, "32 hexadecimal digits"),
        ({"command": "ls"}, "a list of texts"),
        ({"command": ["a\0b"]}, "without zero bytes"),
        ({"command": [""]}, "must not be empty"),
        ({"command": ["a" * 70_000]}, "may have 65,536 bytes"),
        ({"command": ["\ud800"]}, "UTF-8"),
        ({"shell": "bash"}, "absolute path"),
        ({"rows": -1}, "rows must be"),
        ({"columns": True}, "columns must be"),
        ({"jobId": ""}, "jobId is required"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, params, why):
    async def play() -> None:
        async with a_world(tmp_path) as world:
            with pytest.raises(ApiError, match=re.escape(why)):
                await world.ask("StartExec", **{"jobId": "running", **params})
            assert not world.lines

    asyncio.run(play())


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"position": -1}, "position is required"),
        ({"position": True}, "position is required"),
        ({"position": 0, "content": "no base64!"}, "content must be bytes"),
        ({"position": 0, "content": 5}, "content must be bytes"),
        ({"position": 0, "rows": 1 << 31, "columns": 1}, "rows must be"),
        ({"position": 0, "rows": 5}, "columns must be"),
    ],
)
def test_input_that_cannot_be_meant_is_refused_and_none_arrives(tmp_path, params, why):
    async def play() -> None:
        async with a_world(tmp_path) as world:
            await world.ask("StartExec", jobId="running")
            reader, _ = await world.line()
            with pytest.raises(ApiError, match=re.escape(why)):
                await world.ask("WriteExec", **params)
            await world.ask("EndExec")
            assert await reader.read() == b""

    asyncio.run(play())


@pytest.mark.parametrize("term", ["x=\n", "a" * 100, "../x", 5, "", None])
def test_a_terminal_of_a_strange_name_is_a_dumb_one(tmp_path, term):
    async def play() -> None:
        async with a_world(tmp_path) as world:
            await world.ask("StartExec", jobId="running", term=term)
            asked = await world.lines[-1][0].readline()
            assert b'"dumb"' in asked
            await world.ask("EndExec")

    asyncio.run(play())


def test_an_agent_that_is_away(tmp_path):
    async def play() -> None:
        world = World(tmp_path, Submitter())
        with pytest.raises(ApiError, match="does not answer") as refused:
            await world.ask("StartExec", jobId="running")
        assert refused.value.status == 503

    asyncio.run(play())


def test_sessions_that_are_asked_for_at_once_do_not_pass_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(exec_sessions, "MOST_PER_TENANT", 2)

    async def play() -> None:
        async with a_world(tmp_path) as world:
            asked = (world.ask("StartExec", jobId="running", session=f"{n:032x}") for n in range(6))
            answers = await asyncio.gather(*asked, return_exceptions=True)
            refused = [answer for answer in answers if isinstance(answer, ApiError)]
            assert len(refused) == 4
            assert all("close one of them first" in str(answer) for answer in refused)
            for n in range(6):
                await world.ask("EndExec", session=f"{n:032x}")

    asyncio.run(play())
