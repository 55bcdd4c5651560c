"""Two agents with different roots, and different users where root plays them, over lines that break.

They stand for two machines: nothing is shared but the daemon, and it knows each only through its reach.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.disturbed_reach import NOBODY, DisturbedReach, NobodysReach
from tests.conformance.test_engine import DEADLINE_S, World
from tests.conftest import require_part
from windfall.agent.reach import Reach, UnixReach
from windfall.control.events import AgentConnected, AttemptExited, AttemptStarted, InstanceLost
from windfall.control.instructions import ForgetAttempt
from windfall.jobs.ids import AttemptToken, InstanceId


class Machine(World):
    """A machine that one engine reaches over a line which a test can break."""

    def __init__(self, root: Path, *, is_nobodys: bool) -> None:
        super().__init__("local", root)
        self.uid = NOBODY if is_nobodys else os.geteuid()
        self.inner: Reach = UnixReach(self.settings())
        if is_nobodys:
            (root / "logs").mkdir()
            os.chown(root / "logs", NOBODY, NOBODY)
            self.inner = NobodysReach(self.settings("nobody"))
        self.line = DisturbedReach(self.inner, late_s=0.01)
        self.reach = self.line

    async def connected(self) -> AgentConnected:
        """What its agent says when it is reached the next time."""
        found: AgentConnected = await self.first(AgentConnected)
        return found

    async def close(self) -> None:
        """Stop everything that was started there, over a line that works."""
        self.line.heal()
        self.line.release()
        await super().close()
        if isinstance(self.inner, NobodysReach):
            await asyncio.to_thread(self.inner.wait, DEADLINE_S)


Story = Callable[[Machine, Machine], Awaitable[None]]


@pytest.fixture(params=["of one user", "of two users"])
def play(request: pytest.FixtureRequest) -> Iterator[Callable[[Story], None]]:
    """Runs a story on two machines."""
    two_users = request.param == "of two users"
    if two_users:
        missing = NobodysReach.missing()
        require_part(missing is None, str(missing))
    # Not pytest's tmp_path: the path of a unix socket must be short.
    roots = [Path(tempfile.mkdtemp(prefix="windfall-machine-")) for _ in range(2)]
    for root in roots:
        root.chmod(0o777)

    def run(story: Story) -> None:
        async def whole() -> None:
            first, second = Machine(roots[0], is_nobodys=False), Machine(roots[1], is_nobodys=two_users)
            for machine in (first, second):
                machine.begin()
            try:
                await asyncio.wait_for(story(first, second), 2 * DEADLINE_S)
            finally:
                for machine in (first, second):
                    await machine.close()

        asyncio.run(whole())

    yield run
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)


def test_each_machine_has_its_name_its_user_and_its_files(play):
    async def story(first: Machine, second: Machine) -> None:
        for machine in (first, second):
            place = await machine.place()
            machine.start("same#1", place, "id -u")
            assert (await machine.over("same#1", place)).exit_code == 0
            assert machine.engine.files.log("same-1").read(0, 100) == f"{machine.uid}\n".encode()
            assert machine.instances[place].machine == machine.engine.machines[0].id
        assert first.engine.machines[0].id != second.engine.machines[0].id

    play(story)


def test_a_machine_that_is_cut_off_goes_on_and_tells_what_ended_when_it_is_reached_again(play):
    async def story(first: Machine, second: Machine) -> None:
        near, far = await first.place(), await second.place()
        second.start("a#1", far, f"while [ ! -e {second.root}/go ]; do sleep 0.05; done; touch gone; exit 6")
        await second.first(AttemptStarted, "a#1")
        second.said.clear()
        second.line.cut()
        (second.root / "go").touch()
        await second.until_file("attempts/a-1/gone")
        first.start("b#1", near, "exit 4")
        assert (await first.over("b#1", near)).exit_code == 4
        assert first.engine.away is None
        assert second.engine.away is not None
        second.line.heal()
        connected = await second.connected()
        assert second.said[0] is connected
        [end] = connected.ended or [await second.first(AttemptExited, "a#1")]
        assert (end.token, end.exit_code) == ("a#1", 6)
        assert not second.heard(InstanceLost)

    play(story)


def test_what_is_asked_while_nothing_is_delivered_is_done_once_when_it_arrives(play):
    async def story(first: Machine, second: Machine) -> None:
        near, far = await first.place(), await second.place()
        second.line.hold()
        start = second.start("a#1", far, f"echo ran >> {second.root}/ran")
        second.carry_out(start)
        first.start("b#1", near, "exit 0")
        await first.over("b#1", near)
        assert not second.heard(AttemptStarted)
        second.line.release()
        assert (await second.over("a#1", far)).exit_code == 0
        assert (second.root / "ran").read_text() == "ran\n"

    play(story)


def test_lines_that_break_at_every_start_lose_nothing_and_start_nothing_twice(play):
    async def story(first: Machine, second: Machine) -> None:
        await first.place()
        place = await second.place()
        for number in range(8):
            token = AttemptToken(f"a{number}#1")
            start = second.start(token, place, f"echo {number} >> {second.root}/ran; exit {number}")
            if number % 2:
                await second.first(AttemptStarted, token)
            second.said.clear()
            second.line.cut()
            second.line.heal()
            connected = await second.connected()
            known = {report.token for report in (*connected.running, *connected.ended)}
            if token not in known.union(connected.preparing):
                second.carry_out(start)  # As the core does with what never reached an agent.
            ended = [report for report in connected.ended if report.token == token]
            [end] = ended or [await second.first(AttemptExited, token)]
            assert end.exit_code == number
            second.carry_out(ForgetAttempt(token, place))
        assert (second.root / "ran").read_text().split() == [str(number) for number in range(8)]

    play(story)


def test_a_stranger_where_a_machine_was_means_that_its_instances_are_lost(play):
    async def story(first: Machine, second: Machine) -> None:
        place = await first.place()
        assert await second.place() == place == InstanceId("i-1")
        await first.end()
        await second.end()
        first.reach = second.inner
        first.begin()
        connected = await first.connected()
        assert connected.machine.id == second.instances[place].machine
        lost = await first.first(InstanceLost)
        assert lost.instance == place
        assert first.said.index(connected) < first.said.index(lost)
        await first.end()
        first.reach = first.line
        for machine in (first, second):  # The same daemons, for whom both are where they were.
            machine.begin()
            await machine.connected()
            assert not machine.heard(InstanceLost)

    play(story)
