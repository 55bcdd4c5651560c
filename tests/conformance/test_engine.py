"""One suite for every engine: real agents, real processes, every instruction twice, and kill -9.

An engine passes when the core can believe it: what runs is known, every end is told with its token until it is
forgotten, and neither a new agent nor a new daemon loses or repeats anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pwd
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from tests.conformance.disturbed_reach import DisturbedReach
from tests.ray_cluster import RayCluster
from tests.ray_reach import NODE, NodeBridge, RelayedReach
from tests.waiting import wait_until
from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.reach import Reach, UnixReach
from windfall.agent.settings import AgentSettings
from windfall.capacity.environments import ComputeEnvironment, Provisioning
from windfall.capacity.machines import Instance, InstanceState
from windfall.control.events import (
    AgentConnected,
    AttemptExited,
    AttemptLost,
    AttemptStarted,
    InstanceLost,
    InstanceReady,
    Report,
)
from windfall.control.instructions import (
    ForgetAttempt,
    Instruction,
    InterruptAttempt,
    LaunchInstance,
    RecommendRebalance,
    StartAttempt,
    StopAttempt,
    TerminateInstance,
)
from windfall.control.ports import Engine, Holdings
from windfall.engines.fleet.engine import FleetEngine
from windfall.engines.fleet.settings import FleetSettings
from windfall.engines.local.engine import LocalEngine
from windfall.engines.simulated.engine import SimulatedEngine
from windfall.engines.simulated.settings import SimulatedSettings
from windfall.jobs.ids import AttemptToken, EnvironmentName, InstanceId, TaskId
from windfall.jobs.resources import Resources

R = TypeVar("R")
DEADLINE_S = 150.0
NEEDS = Resources(1, 64)
ENDS = AttemptExited | AttemptLost


class World:
    """A host with one engine after the other, as daemons come and go."""

    def __init__(self, kind: str, root: Path) -> None:
        self.kind, self.root = kind, root
        #: The machines of a fleet.
        self.names: tuple[str, ...] = ("one", "two")
        #: Through whose doors agents are reached, if through any.
        self.cluster: RayCluster | None = None
        self._bridge: NodeBridge | None = None
        #: What a log may have at most, on the machines and in the daemon's copies.
        self.log_limit_bytes = 0
        #: How the agent is reached, if not as usual.
        self.reach: Reach | None = None
        self.said: list[Report] = []
        self._news = asyncio.Event()
        self._epochs = itertools.count(1)
        self.environment = ComputeEnvironment(
            EnvironmentName("e"), Provisioning.SPOT, 0, 64, instance_types=("m5.large",), uuid="u"
        )
        #: What a store would know.
        self.instances: dict[InstanceId, Instance] = {}
        self.attempts: dict[AttemptToken, InstanceId] = {}
        self.engine: Engine
        self._running: asyncio.Task[None]

    def settings(self, job_user: str | None = None) -> AgentSettings:
        """Those of the agent on this host."""
        return AgentSettings(
            str(self.root / "agent"),
            str(self.root / "attempts"),
            job_user=job_user or pwd.getpwuid(os.geteuid()).pw_name,
            gpus="none",
            use_cgroups=False,
            use_sandbox=False,
            log_limit_bytes=self.log_limit_bytes,
        )

    def begin(self) -> None:
        """A daemon starts: a new engine takes over what there is."""
        for name in ("logs", "agent", "attempts"):
            (self.root / name).mkdir(exist_ok=True)
        agent = self.settings()
        self.said.clear()
        files, epoch = AttemptDirectory(self.root / "logs"), next(self._epochs)
        if self.kind == "local":
            self.engine = LocalEngine(self._hear, self.reach or UnixReach(agent), files, epoch)
        elif self.kind == "disturbed":
            self.reach = DisturbedReach(UnixReach(agent), copies=2, late_s=0.03)
            self.engine = LocalEngine(self._hear, self.reach, files, epoch)
        elif self.kind.startswith("fleet"):
            self.engine = self._fleet(files, epoch)
        else:
            settings = SimulatedSettings(boot_s=0, mtbi_s=1e6, rebalance=0)
            self.engine = SimulatedEngine(self._hear, UnixReach(agent), files, epoch, settings, _now)
        self.engine.adopt(self.holdings())
        self._running = asyncio.create_task(self.engine.run())

    def holdings(self) -> Holdings:
        """What a store would know."""
        tasks = {token: token.replace("#", "-") for token in self.attempts}
        return Holdings([self.environment], list(self.instances.values()), dict(self.attempts), (), tasks)

    def _fleet(self, files: AttemptDirectory, epoch: int) -> FleetEngine:
        """An engine over two machines, of which the environment means one; the other is there to be kept apart."""
        fleet = FleetEngine(self._hear, files, epoch, FleetSettings(log_limit_bytes=self.log_limit_bytes))
        own = msgspec.structs.replace(
            self.settings(), logs_directory=str(self.root / "own-logs"), mirror=True
        )
        other = msgspec.structs.replace(
            own,
            directory=str(self.root / "other"),
            attempts_directory=str(self.root / "other-attempts"),
            logs_directory=str(self.root / "other-logs"),
        )
        reaches: list[Reach] = [UnixReach(own), UnixReach(other)]
        if self.cluster is not None:
            self._bridge = NodeBridge(self.cluster, "conformance")
            reaches = [RelayedReach(own, self._bridge), RelayedReach(other, self._bridge)]
        if self.kind == "fleet, disturbed":
            reaches = [DisturbedReach(reach, copies=2, late_s=0.03) for reach in reaches]
        fleet.add("one", reaches[0], {"type": "m5.large"})
        fleet.add("two", reaches[1], {"type": "m5.xlarge"})
        return fleet

    def _all_answer(self) -> bool:
        """Whether an agent can be told to end on every machine of a fleet that was not removed."""
        assert isinstance(self.engine, FleetEngine)
        troubles = []
        for name in self.names:
            with contextlib.suppress(KeyError):
                troubles.append(self.engine.trouble_of(name))
        return not any(troubles)

    async def end(self) -> None:
        """The daemon is killed: nobody says goodbye to the agent."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        if self._bridge is not None:
            await self._bridge.close()

    async def close(self) -> None:
        """Stop everything that was started."""
        if isinstance(self.engine, FleetEngine):
            # An agent that is still being started is not told to end, and would outlive the test.
            await asyncio.to_thread(wait_until, self._all_answer, "the agents of all machines to end")
        await self.engine.shut_down(kill=True)
        await asyncio.wait([self._running], timeout=DEADLINE_S)
        await self.end()

    def _hear(self, report: Report) -> None:
        self.said.append(report)
        self._news.set()

    async def until(self, wanted: Callable[[], R]) -> R:
        """The first true answer, asked again whenever the engine says something."""
        async with asyncio.timeout(DEADLINE_S):
            while not (answer := wanted()):
                self._news.clear()
                await self._news.wait()
        return answer

    def heard(self, kind: Any, token: str | None = None) -> list[Any]:
        """What was said of a kind, about one attempt if asked."""
        return [
            report
            for report in self.said
            if isinstance(report, kind) and token in (None, getattr(report, "token", None))
        ]

    async def first(self, kind: Any, token: str | None = None) -> Any:
        """The first report of a kind, waited for."""
        return (await self.until(lambda: self.heard(kind, token)))[0]

    async def reconnected(self) -> AgentConnected:
        """What the agent of the instance's machine says when it is reached the next time."""
        machines = {instance.machine for instance in self.instances.values()}
        heard: list[AgentConnected] = await self.until(
            lambda: [report for report in self.heard(AgentConnected) if report.machine.id in machines]
        )
        return heard[0]

    def is_of_its_machine(self, report: Report) -> bool:
        """Whether a report is not about another machine of the same engine."""
        machines = {instance.machine for instance in self.instances.values()}
        return not isinstance(report, AgentConnected) or report.machine.id in machines

    async def place(self) -> InstanceId:
        """An instance that is ready."""
        await asyncio.wait_for(self.engine.settle(), DEADLINE_S)
        offer = (await self.until(lambda: self.engine.offers(self.environment)))[0]
        instance = Instance(
            InstanceId("i-1"), self.environment.name, offer.type, offer.resources, launched_at=_now()
        )
        self.instances[instance.id] = instance
        launch = LaunchInstance(instance.id, self.environment.name, offer)
        self.carry_out(launch, launch)
        ready = await self.first(InstanceReady)
        instance.state, instance.machine = InstanceState.READY, ready.machine.id
        assert NEEDS.fits_in(ready.machine.total)
        return instance.id

    def carry_out(self, *instructions: Instruction) -> None:
        self.engine.carry_out(instructions)

    def start(self, token: str, place: InstanceId, script: str) -> StartAttempt:
        """Start a shell script as an attempt."""
        start = StartAttempt(
            AttemptToken(token),
            TaskId(token.replace("#", "-")),
            place,
            ("sh", "-c", script),
            {},
            None,
            NEEDS,
            (),
            None,
        )
        self.attempts[start.token] = place
        self.carry_out(start)
        return start

    async def over(self, token: str, place: InstanceId) -> Any:
        """How an attempt ended; it is forgotten, as the core does when it has written it down."""
        ended = await self.first(ENDS, token)
        self.attempts.pop(AttemptToken(token), None)
        self.carry_out(ForgetAttempt(AttemptToken(token), place), ForgetAttempt(AttemptToken(token), None))
        return ended

    async def until_file(self, name: str, ending: str = "") -> None:
        """Wait for a file that a job writes; jobs have no other way to speak."""
        path = self.root / name
        await asyncio.to_thread(
            wait_until, lambda: path.exists() and path.read_text().endswith(ending), f"{name} written"
        )

    @property
    def agent_pid(self) -> int:
        """The agent that serves this host now."""
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                arguments = (entry / "cmdline").read_bytes().decode(errors="replace")
                if f"{self.root}/agent" in arguments and "warden.py" not in arguments:
                    return int(entry.name)
        raise AssertionError("no agent runs")


def _now() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A real Ray cluster with one node."""
    with RayCluster() as running:
        running.add(NODE)
        yield running


@pytest.fixture(
    params=[
        "local",
        "disturbed",
        "simulated",
        "fleet",
        "fleet, disturbed",
        pytest.param("fleet, through Ray", marks=pytest.mark.slow),
    ]
)
def play(request: pytest.FixtureRequest) -> Iterator[Callable[[Callable[[World], Awaitable[None]]], None]]:
    """Runs a story on each engine, on a host of its own; once over a line that is late and says everything twice."""
    # Not pytest's tmp_path: the path of a unix socket must be short.
    root = Path(tempfile.mkdtemp(prefix="windfall-engine-"))

    def run(story: Callable[[World], Awaitable[None]]) -> None:
        async def whole() -> None:
            world = World(request.param, root)
            world.cluster = cluster
            world.begin()
            try:
                await story(world)
            finally:
                await world.close()

        asyncio.run(whole())

    cluster = request.getfixturevalue("cluster") if request.param == "fleet, through Ray" else None
    yield run
    shutil.rmtree(root, ignore_errors=True)


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)]
)
def test_an_end_is_told_with_its_exit_code(play, script, code):
    async def story(world: World) -> None:
        place = await world.place()
        world.start("a#1", place, script)
        ended = await world.over("a#1", place)
        assert ended.exit_code == code
        assert ended.started_at <= ended.at
        assert ended.reason is None

    play(story)


def test_what_cannot_be_started_says_why(play):
    async def story(world: World) -> None:
        place = await world.place()
        missing = StartAttempt(
            AttemptToken("a#1"), TaskId("t"), place, ("no-such-program",), {}, None, NEEDS, (), None
        )
        world.carry_out(missing)
        ended = await world.over("a#1", place)
        assert (ended.exit_code, ended.started_at) == (None, None)
        assert "no-such-program" in ended.reason

    play(story)


def test_a_stopped_attempt_has_its_grace_and_then_dies(play):
    async def story(world: World) -> None:
        place = await world.place()
        world.start("kind#1", place, "trap 'exit 3' TERM; touch ready; while :; do sleep 0.05; done")
        world.start("deaf#1", place, "trap '' TERM; touch ready; while :; do sleep 0.05; done")
        await world.first(AttemptStarted, "kind#1")
        await world.first(AttemptStarted, "deaf#1")
        await world.until_file("attempts/kind-1/ready")
        await world.until_file("attempts/deaf-1/ready")
        for _ in range(2):
            world.carry_out(StopAttempt(AttemptToken("kind#1"), place, 60))
            world.carry_out(StopAttempt(AttemptToken("deaf#1"), place, 0))
        assert (await world.over("kind#1", place)).exit_code == 3
        assert (await world.over("deaf#1", place)).exit_code == 137

    play(story)


def test_notice_is_heard_by_those_who_listen_and_the_deadline_by_all(play):
    async def story(world: World) -> None:
        place = await world.place()
        world.start("kind#1", place, "trap 'exit 3' TERM; touch ready; while :; do sleep 0.05; done")
        world.start("deaf#1", place, "trap '' TERM; touch ready; while :; do sleep 0.05; done")
        await world.until_file("attempts/kind-1/ready")
        await world.until_file("attempts/deaf-1/ready")
        for token, seconds in (("kind#1", 600), ("deaf#1", 2)):
            advice = RecommendRebalance(AttemptToken(token), place, _now())
            notice = InterruptAttempt(AttemptToken(token), place, _now() + seconds * 1000, "drill")
            world.carry_out(advice, advice, notice, notice)
        assert (await world.over("kind#1", place)).exit_code == 3
        assert (await world.over("deaf#1", place)).exit_code == 137

    play(story)


def test_every_instruction_may_come_twice(play):
    async def story(world: World) -> None:
        place = await world.place()
        start = world.start("a#1", place, f"echo ran >> {world.root}/ran")
        world.carry_out(start, start)
        await world.over("a#1", place)
        # Until it is forgotten, the same end is told again; afterwards nothing of it is known.
        world.carry_out(StopAttempt(AttemptToken("a#1"), place, 0))
        await world.first(AttemptLost, "a#1")
        assert {ended.exit_code for ended in world.heard(AttemptExited, "a#1")} == {0}
        assert (world.root / "ran").read_text() == "ran\n"
        world.carry_out(TerminateInstance(place), TerminateInstance(place))
        world.start("b#1", await world.place(), "exit 4")
        assert (await world.over("b#1", place)).exit_code == 4

    play(story)


def test_an_attempt_that_nobody_knows_is_lost(play):
    async def story(world: World) -> None:
        place = await world.place()
        world.carry_out(StopAttempt(AttemptToken("ghost#1"), place, 1))
        assert isinstance(await world.first(ENDS, "ghost#1"), AttemptLost)

    play(story)


def test_a_killed_agent_comes_back_and_knows_what_runs(play):
    async def story(world: World) -> None:
        place = await world.place()
        world.start("a#1", place, f"while [ ! -e {world.root}/go ]; do sleep 0.05; done; exit 5")
        await world.first(AttemptStarted, "a#1")
        world.said.clear()
        os.kill(world.agent_pid, signal.SIGKILL)
        connected = await world.reconnected()
        assert next(filter(world.is_of_its_machine, world.said)) is connected
        assert [started.token for started in connected.running] == ["a#1"]
        (world.root / "go").touch()
        assert (await world.over("a#1", place)).exit_code == 5
        assert not world.heard(InstanceLost)

    play(story)


def test_a_new_daemon_takes_over_what_runs_and_learns_what_ended(play):
    async def story(world: World) -> None:
        place = await world.place()
        world.start("long#1", place, f"while [ ! -e {world.root}/go ]; do sleep 0.05; done; exit 6")
        world.start("short#1", place, f"exit 9 & echo > {world.root}/short; exit 8")
        await world.first(AttemptStarted, "long#1")
        await world.first(AttemptExited, "short#1")
        await world.end()
        world.begin()
        connected = await world.reconnected()
        assert connected.machine.id == world.instances[place].machine
        assert [started.token for started in connected.running] == ["long#1"]
        assert [(ended.token, ended.exit_code) for ended in connected.ended] == [("short#1", 8)]
        world.carry_out(ForgetAttempt(AttemptToken("short#1"), place))
        (world.root / "go").touch()
        assert (await world.over("long#1", place)).exit_code == 6

    play(story)


def test_what_was_forgotten_is_not_told_to_the_next_daemon(play):
    async def story(world: World) -> None:
        place = await world.place()
        world.start("a#1", place, "exit 0")
        await world.over("a#1", place)
        world.carry_out(StopAttempt(AttemptToken("a#1"), place, 0))
        await world.first(AttemptLost, "a#1")  # so the agent has heard the word before
        await world.end()
        world.begin()
        connected = await world.reconnected()
        assert (connected.running, connected.preparing, connected.ended) == ((), (), ())

    play(story)


def test_both_killed_at_once_lose_nothing(play):
    async def story(world: World) -> None:
        place = await world.place()
        world.start(
            "a#1", place, f"echo ran >> {world.root}/ran; while [ ! -e {world.root}/go ]; do sleep 0.05; done"
        )
        await world.first(AttemptStarted, "a#1")
        await world.end()
        os.kill(world.agent_pid, signal.SIGKILL)
        world.begin()
        connected = await world.reconnected()
        assert [started.token for started in connected.running] == ["a#1"]
        (world.root / "go").touch()
        assert (await world.over("a#1", place)).exit_code == 0
        assert (world.root / "ran").read_text() == "ran\n"

    play(story)
