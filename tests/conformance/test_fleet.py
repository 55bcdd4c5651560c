"""Machines that fall silent, come back, are drained and removed; and machines that lie."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.conformance.disturbed_reach import DisturbedReach
from tests.conformance.test_engine import DEADLINE_S, World
from tests.waiting import wait_until
from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.messages import Exited
from windfall.agent.mirror_messages import LogPiece
from windfall.agent.reach import UnixReach
from windfall.control.events import (
    AgentConnected,
    AttemptExited,
    AttemptStarted,
    InstanceLost,
    InterruptionNoticed,
)
from windfall.control.instructions import ForgetAttempt, StopAttempt
from windfall.control.machine_events import MachineRemoved, StandingChanged
from windfall.engines.agent_link import Patience
from windfall.engines.fleet.engine import FleetEngine
from windfall.engines.fleet.settings import FleetSettings
from windfall.engines.fleet.standing import Silence, Standing
from windfall.jobs.ids import AttemptToken


class Fleet(World):
    """Two machines over lines that a test can cut, and an engine that is soon impatient."""

    lines: dict[str, DisturbedReach]
    engine: FleetEngine

    def __init__(self, root: Path) -> None:
        super().__init__("fleet", root)
        self.names = ("agent", "other")

    def _fleet(self, files: AttemptDirectory, epoch: int) -> FleetEngine:
        settings = FleetSettings(
            silence=Silence(2, 3, 4), patience=Patience(ping_every_s=0.1, again_most_s=0.2)
        )
        fleet = FleetEngine(self._hear, files, epoch, settings)
        self.lines = {}
        for name in self.names:
            own = msgspec.structs.replace(
                self.settings(),
                directory=str(self.root / name),
                attempts_directory=str(self.root / f"{name}-attempts"),
                logs_directory=str(self.root / f"{name}-logs"),
                mirror=True,
            )
            self.lines[name] = DisturbedReach(UnixReach(own))
            fleet.add(name, self.lines[name], {"type": "m5.large" if name == "agent" else "m5.xlarge"})
        return fleet

    async def close(self) -> None:
        """Over lines that work."""
        for line in self.lines.values():
            line.heal()
            line.release()
        await super().close()


Story = Callable[[Fleet], Awaitable[None]]


@pytest.fixture
def play() -> Iterator[Callable[[Story], None]]:
    """Runs a story on two machines."""
    root = Path(tempfile.mkdtemp(prefix="windfall-fleet-"))

    def run(story: Story) -> None:
        async def whole() -> None:
            world = Fleet(root)
            world.begin()
            try:
                await asyncio.wait_for(story(world), 2 * DEADLINE_S)
            finally:
                await world.close()

        asyncio.run(whole())

    yield run
    shutil.rmtree(root, ignore_errors=True)


@pytest.mark.parametrize("silence", ["the line is cut", "the agent is stopped"])
def test_a_silent_machine_is_doubted_and_then_lost_and_what_it_still_runs_is_stopped_when_it_is_back(
    play, silence
):
    async def story(world: Fleet) -> None:
        place = await world.place()
        machine = world.instances[place].machine
        world.start("a#1", place, f"echo $$ > {world.root}/pid; while :; do sleep 0.05; done")
        await world.first(AttemptStarted, "a#1")
        agent = world.agent_pid
        if silence == "the line is cut":
            world.lines["agent"].cut()
        else:  # The connection lives on.
            os.kill(agent, signal.SIGSTOP)
        closed = await world.first(StandingChanged)
        assert (closed.machine, "agent does not answer" in closed.closed) == (machine, True)
        assert world.engine.offers(world.environment) == ()
        lost = await world.first(InstanceLost)
        assert lost.instance == place
        assert world.engine.member("agent").standing is Standing.LOST
        # As the core does when it has closed the attempt.
        del world.attempts[AttemptToken("a#1")], world.instances[place]
        world.carry_out(ForgetAttempt(AttemptToken("a#1"), None))
        world.said.clear()
        if silence == "the line is cut":
            world.lines["agent"].heal()
        else:
            os.kill(agent, signal.SIGCONT)
        connected = (
            await world.until(lambda: [it for it in world.heard(AgentConnected) if it.machine.id == machine])
        )[0]
        assert (connected.running, connected.ended, connected.machine.closed) == ((), (), None)
        pid = int((world.root / "pid").read_text())
        await asyncio.to_thread(wait_until, lambda: not _lives(pid), "the superseded attempt stopped")
        # Nobody hears of its end, and the machine takes attempts again.
        world.start("b#1", await world.place(), "exit 3")
        assert (await world.first(AttemptExited, "b#1")).exit_code == 3
        assert not world.heard(AttemptExited, "a#1")

    play(story)


def test_a_machine_that_is_back_in_time_has_lost_nothing_and_sends_the_log_that_is_missing(play):
    async def story(world: Fleet) -> None:
        place = await world.place()
        world.start(
            "a#1",
            place,
            f"echo one; while [ ! -e {world.root}/go ]; do sleep 0.05; done; echo two; touch done",
        )
        await world.first(AttemptStarted, "a#1")
        world.lines["agent"].cut()
        (world.root / "go").touch()
        await world.until_file("agent-attempts/a-1/done")
        world.lines["agent"].heal()
        assert (await world.over("a#1", place)).exit_code == 0
        assert world.engine.files.log("a-1").read(0, 100) == b"one\ntwo\n"
        assert not world.heard(InstanceLost)

    play(story)


def test_a_drained_machine_is_offered_no_more_and_its_instances_have_the_deadline_as_notice(play):
    async def story(world: Fleet) -> None:
        place = await world.place()
        world.engine.drain("agent", 1_234)
        notice = await world.first(InterruptionNoticed)
        assert (notice.instance, notice.deadline_at) == (place, 1_234)
        assert (await world.first(StandingChanged)).closed == "agent is being drained"
        assert world.engine.offers(world.environment) == ()
        world.said.clear()
        world.engine.resume("agent")
        assert (await world.first(StandingChanged)).closed is None
        assert len(world.engine.offers(world.environment)) == 1

    play(story)


def test_a_removed_machine_is_told_to_end_and_is_forgotten(play):
    async def story(world: Fleet) -> None:
        place = await world.place()
        world.start("a#1", place, f"echo $$ > {world.root}/pid; while :; do sleep 0.05; done")
        await world.until_file("pid", "\n")
        await world.engine.remove("agent")
        assert (await world.first(InstanceLost)).instance == place
        assert (await world.first(MachineRemoved)).machine == world.instances[place].machine
        pid = int((world.root / "pid").read_text())
        await asyncio.to_thread(wait_until, lambda: not _lives(pid), "its attempt stopped")
        assert "agent" not in {machine.facts["name"] for machine in world.engine.machines}

    play(story)


def test_two_names_for_one_machine_are_refused_with_the_reason(play):
    async def story(world: Fleet) -> None:
        await world.place()
        world.engine.add("again", DisturbedReach(world.lines["agent"]))
        await asyncio.to_thread(
            wait_until,
            lambda: "again and agent reach the same machine" in (world.engine.trouble_of("again") or ""),
            "the second name refused",
        )
        assert "again" not in {machine.facts["name"] for machine in world.engine.machines}
        # Each try of the second has taken the connection from the first, which is left in peace from now on.
        await world.engine.remove("again")
        world.lines["agent"].cut()
        world.said.clear()
        world.lines["agent"].heal()
        assert (await world.reconnected()).machine.facts["name"] == "agent"

    play(story)


def test_a_machine_has_no_say_in_attempts_of_another_and_writes_none_of_their_files(play):
    async def story(world: Fleet) -> None:
        place = await world.place()
        world.start("a#1", place, f"echo mine; while [ ! -e {world.root}/go ]; do sleep 0.05; done")
        await world.first(AttemptStarted, "a#1")
        log = world.engine.files.log
        await asyncio.to_thread(wait_until, lambda: log("a-1").size == 5, "the first line")
        liar = "other"
        for message in (
            LogPiece("a-1", "log", 5, b"forged\n", 12),
            LogPiece("../../etc/passwd", "log", 0, b"forged\n", 7),
            LogPiece("ghost-1", "samples", 0, b"forged\n", 7, begins=True),
        ):
            world.engine._hear(liar, message)
        world.engine._hear(liar, Exited("a#1", 0, None, 1, 2, "process"))
        world.carry_out(StopAttempt(AttemptToken("ghost#1"), place, 0))
        await world.first(object, "ghost#1")  # so that all that was said before was heard
        assert not world.heard(AttemptExited, "a#1")
        assert log("a-1").read(0, 100) == b"mine\n"
        assert sorted(path.name for path in (world.root / "logs").glob("*.log")) == ["a-1.log"]
        (world.root / "go").touch()
        assert (await world.over("a#1", place)).exit_code == 0

    play(story)


def _lives(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False
