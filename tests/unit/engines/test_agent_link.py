"""The link to an agent that cannot be started, talks nonsense or says nothing: told once, tried again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from windfall.agent import messages
from windfall.agent.launching import SOCKET_NAME
from windfall.agent.reach import UnixReach
from windfall.agent.settings import AgentSettings
from windfall.engines.agent_link import AgentLink, Patience

QUICK = Patience(
    again_s=0.005, again_most_s=0.01, ping_every_s=0.02, silent_s=0.05, quiet_s=0.5, retire_s=0.05
)
PONG = messages.encode([messages.Pong()])


def an_inventory(settings: AgentSettings, attempts: list[messages.AttemptStatus] | None = None) -> bytes:
    digest = settings.digest
    told = messages.Inventory("host", 4711, 2, 1024, [], [], "me", [], attempts or [], settings=digest)
    return messages.encode([told])


class FakeAgent:
    """Answers to a greeting what it is told to, and to a ping as long as it is awake."""

    def __init__(self, settings: AgentSettings) -> None:
        self.path = f"{settings.directory}/{SOCKET_NAME}"
        self.greeting = an_inventory(settings)
        self.hangs_up = False
        self.awake = True
        self.greeted = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                if b"Hello" in line:
                    self.greeted += 1
                    writer.write(self.greeting)
                    if self.hangs_up:
                        break
                elif self.awake or not self.greeted:
                    writer.write(PONG)
        writer.close()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_unix_server(self._serve, self.path)
        try:
            yield
        finally:
            server.close()


class Story:
    """A link that runs beside a fake agent."""

    def __init__(self, directory: Path) -> None:
        self.settings = AgentSettings(str(directory), str(directory / "attempts"))
        self.heard: list[messages.ToDaemon] = []
        self.link = AgentLink(UnixReach(self.settings), 1, lambda *_: None, self.heard.append, QUICK)
        self.link.wanted.set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.link.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def run(story: Callable[[], object]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(story(), 120))  # type: ignore[arg-type] # a coroutine function


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 (what is waited for is a log line, which sets no event)
        await asyncio.sleep(0)


def told(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if words in record.getMessage()]


@pytest.mark.parametrize(
    "greeting",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b'{"type":"Lost","token":"\xff\xfe","at":1}\n',
        b'{"type":"Message of another version"}\n',
        PONG,
        b'{"type":"Inven',
        b"x" * 200_000 + b"\n",
    ],
    ids=["other program", "no UTF-8", "other version", "no inventory", "half a line", "long line"],
)
def test_an_agent_that_talks_nonsense_is_told_of_once_and_asked_until_it_makes_sense(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, greeting: bytes
):
    story = Story(tmp_path)
    agent = FakeAgent(story.settings)
    sense, agent.greeting, agent.hangs_up = agent.greeting, greeting, True

    async def play() -> None:
        async with agent.serving(), story.running() as link:
            await until(lambda: agent.greeted > 5)
            assert not link.done()
            assert len(told(caplog, "does not answer")) < 3, "not once for each try"
            agent.greeting, agent.hangs_up = sense, False
            await story.link.connected.wait()
            assert told(caplog, "answers again")

    with caplog.at_level(logging.WARNING):
        run(play)


def test_nonsense_in_the_middle_ends_the_connection_and_not_the_link(tmp_path: Path):
    story = Story(tmp_path)
    agent = FakeAgent(story.settings)
    sense = agent.greeting
    agent.greeting = sense + b"\xff\n"

    async def play() -> None:
        async with agent.serving(), story.running() as link:
            await until(lambda: agent.greeted > 2)
            agent.greeting = sense
            await story.link.connected.wait()
            assert not link.done()

    run(play)


def test_an_agent_that_falls_silent_is_told_of_once_and_heard_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    story = Story(tmp_path)
    agent = FakeAgent(story.settings)

    async def play() -> None:
        async with agent.serving(), story.running() as link:
            await story.link.connected.wait()
            agent.awake = False
            await until(lambda: told(caplog, "kill -CONT 4711"))
            agent.awake = True
            story.link.write([messages.Ping()])  # what it is asked meanwhile lies in its socket
            await until(lambda: told(caplog, "answers again"))
            assert not link.done()
        # On a machine that is too busy it may seem silent once more.
        assert len(told(caplog, "kill -CONT")) <= len(told(caplog, "answers again")) + 1

    with caplog.at_level(logging.WARNING):
        run(play)


def test_it_says_why_the_agent_does_nothing(tmp_path: Path):
    story = Story(tmp_path)
    agent = FakeAgent(story.settings)
    assert story.link.away == "the agent is being started"

    async def play() -> None:
        async with agent.serving(), story.running():
            await story.link.connected.wait()
            await until(lambda: story.link.away is None)
            agent.awake = False
            await until(lambda: "kill -CONT 4711" in (story.link.away or ""))
            agent.awake = True
            story.link.write([messages.Ping()])
            await until(lambda: story.link.away is None)
        agent.greeting = b"nonsense\n"
        async with agent.serving(), story.running():
            await until(lambda: "does not answer" in (story.link.away or ""))

    run(play)


def test_an_agent_of_other_settings_that_does_not_end_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    story = Story(tmp_path)
    agent = FakeAgent(AgentSettings(str(tmp_path), str(tmp_path / "elsewhere")))

    async def play() -> None:
        async with agent.serving(), story.running() as link:
            await until(lambda: agent.greeted > 2)
            assert not link.done()
        assert len(told(caplog, "does not end")) == 1

    with caplog.at_level(logging.WARNING):
        run(play)


def test_what_keeps_an_agent_from_being_started_is_told_once_with_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    obstacle, aside = tmp_path / "file", tmp_path / "aside"
    obstacle.write_text("in the way")
    story = Story(obstacle / "agent")
    (aside / "agent").mkdir(parents=True)
    agent = FakeAgent(story.settings)
    agent.path = str(aside / "agent" / SOCKET_NAME)

    async def play() -> None:
        async with agent.serving(), story.running():
            await until(lambda: told(caplog, "cannot be started"))
            obstacle.unlink()
            aside.rename(obstacle)
            await story.link.connected.wait()
        (line,) = told(caplog, "cannot be started")
        assert "Not a directory; move away" in line

    with caplog.at_level(logging.WARNING):
        run(play)


def test_a_link_that_is_shut_down_does_not_wait_for_an_agent_that_does_not_come(tmp_path: Path):
    story = Story(tmp_path)
    (tmp_path / "agent.log").mkdir()
    story.link = AgentLink(
        UnixReach(story.settings), 1, lambda *_: None, story.heard.append, Patience(again_s=600)
    )

    async def play() -> None:
        story.link.wanted.set()
        async with story.running() as link:
            await until(lambda: story.link.trouble)
            await story.link.shut_down(kill=False)
            await asyncio.wait([link])
            assert link.cancelled()

    run(play)


def test_an_agent_of_a_version_that_cannot_be_understood_is_told_of_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    story = Story(tmp_path)
    agent = FakeAgent(story.settings)
    far = messages.Inventory("host", 4711, 2, 1024, [], [], "me", [], [], protocol=9, oldest_protocol=7)
    agent.greeting = messages.encode([far])

    async def play() -> None:
        async with agent.serving(), story.running() as link:
            await until(
                lambda: told(caplog, "the agent (pid 4711) speaks protocol 7 to 9, and this daemon 0 to")
            )
            assert "use the version of Windfall that started the agent" in str(story.link.away)
            agent.greeting = messages.encode([messages.Rejected("the daemon speaks 1", 9, incompatible=True)])
            await until(lambda: told(caplog, "the daemon speaks 1"))
            assert not link.done()

    with caplog.at_level(logging.WARNING):
        run(play)


def test_the_clock_of_an_agent_is_measured_and_what_it_says_is_told_in_ours(tmp_path: Path):
    story = Story(tmp_path)
    agent = FakeAgent(story.settings)
    inventories: list[messages.Inventory] = []
    reach = UnixReach(story.settings)
    story.link = AgentLink(reach, 1, lambda said, _: inventories.append(said), story.heard.append, QUICK)
    story.link.wanted.set()
    hour_ms = 3_600_000
    now = time.time_ns() // 1_000_000 + hour_ms
    running = messages.AttemptStatus("a#1", "t", "running", 1, now, "process")
    ahead = messages.Inventory(
        "host", 4711, 2, 1024, [], [], "me", [], [running], settings=story.settings.digest, now=now
    )
    agent.greeting = messages.encode([ahead, messages.Started("b#1", 2, now, "process")])

    async def play() -> None:
        async with agent.serving(), story.running():
            await until(lambda: story.heard)

    run(play)
    [inventory], [started] = inventories, story.heard
    assert isinstance(started, messages.Started)
    for at in (inventory.attempts[0].started_at, started.at):
        assert at is not None
        assert abs(at - (now - hour_ms)) < hour_ms / 2
    assert re.match(r"the clock of host is \d+\.\d s ahead of the daemon's", inventory.warnings[0])


def test_the_socket_of_an_agent_may_be_anything(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / SOCKET_NAME).mkdir()
    (tmp_path / "agent.log").mkdir()
    story = Story(tmp_path)

    async def play() -> None:
        async with story.running() as link:
            await until(lambda: told(caplog, "cannot be started"))
            assert not link.done()

    with caplog.at_level(logging.WARNING):
        run(play)


def test_another_machine_deposes_no_daemon_by_its_word(tmp_path: Path):
    settings = AgentSettings(str(tmp_path), str(tmp_path / "attempts"))
    agent = FakeAgent(settings)
    sense, agent.greeting = agent.greeting, messages.encode([messages.Rejected("a newer\x1b[2J\none", 7)])
    link = AgentLink(
        UnixReach(settings), 1, lambda *_: None, lambda _: None, QUICK, leased=True, is_afar=True
    )
    link.wanted.set()

    async def play() -> None:
        running = asyncio.create_task(link.run())
        async with agent.serving():
            await until(lambda: agent.greeted > 2)
            assert link.trouble is not None
            assert "refuses this daemon (a newer [2J one)" in link.trouble
            agent.greeting = sense
            await link.connected.wait()
            assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(play)


@pytest.mark.parametrize(
    "nonsense",
    [
        b'{"type":"Pong","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
        b'{"type":"Rejected","reason":"","epoch":' + b"9" * 400 + b"}\n",
        b"x" * (33 << 20),
    ],
    ids=["deep", "epoch", "endless line"],
)
def test_nothing_that_a_machine_says_ends_the_link(tmp_path: Path, nonsense: bytes):
    story = Story(tmp_path)
    agent = FakeAgent(story.settings)
    sense = agent.greeting
    agent.greeting = nonsense if b"Rejected" in nonsense else sense + nonsense

    async def play() -> None:
        async with agent.serving(), story.running() as link:
            await until(lambda: agent.greeted > 1)
            agent.greeting = sense
            await story.link.connected.wait()
            assert not link.done()

    run(play)


def test_a_clock_that_cannot_be_is_not_believed(tmp_path: Path):
    story = Story(tmp_path)
    agent = FakeAgent(story.settings)
    agent.greeting = agent.greeting.replace(b'"settings"', b'"now":' + b"9" * 400 + b',"settings"')

    async def play() -> None:
        async with agent.serving(), story.running() as link:
            await until(lambda: story.link.connected.is_set() or link.done())
            assert not link.done()

    run(play)


def test_an_agent_that_asks_and_never_reads_is_cut_off(tmp_path: Path):
    story = Story(tmp_path)
    agent = FakeAgent(story.settings)
    answer = messages.Forget(["x" * (1 << 20)])

    async def play() -> None:
        async with agent.serving(), story.running():
            await story.link.connected.wait()
            for _ in range(80):
                story.link.write([answer])
            await until(lambda: agent.greeted > 1)

    run(play)
