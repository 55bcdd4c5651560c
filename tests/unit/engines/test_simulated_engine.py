"""What the simulated engine tells the core and the agent, with an agent that is only heard and spoken to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.engines.test_translation import a_status, an_inventory
from windfall.agent import messages
from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.gpus import GpuDevice
from windfall.agent.reach import UnixReach
from windfall.agent.settings import AgentSettings
from windfall.capacity.environments import ComputeEnvironment, Provisioning
from windfall.capacity.machines import Instance, InstanceState, Machine
from windfall.control.events import (
    AgentConnected,
    AttemptExited,
    AttemptStarted,
    DevicesChanged,
    InstanceLaunchFailed,
    InstanceLost,
    InstanceReady,
    InterruptionNoticed,
    RebalanceRecommended,
)
from windfall.control.instructions import (
    LaunchInstance,
    StartAttempt,
    StopAttempt,
    TerminateInstance,
)
from windfall.control.ports import Holdings
from windfall.engines.agent_link import AgentLink
from windfall.engines.simulated.engine import SimulatedEngine
from windfall.engines.simulated.settings import SimulatedSettings
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import AttemptToken, EnvironmentName, InstanceId, TaskId
from windfall.jobs.resources import Resources


class FakeLink(AgentLink):
    """An agent that is told things and says what the test wants."""

    def __init__(self, agent, epoch, on_connected, on_message) -> None:
        super().__init__(agent, epoch, on_connected, on_message)
        self.told: list[messages.Message] = []
        self.introduce, self.say = on_connected, on_message

    def write(self, told: Sequence[messages.Message]) -> None:
        self.told += told

    @property
    def stops(self) -> list[str]:
        return [message.token for message in self.told if isinstance(message, messages.Stop) and message.lose]


def spot(tags: dict[str, str] | None = None, **more) -> ComputeEnvironment:
    fields = {"instance_types": ("p3.2xlarge",), "uuid": "u", "tags": tags or {}, **more}
    return ComputeEnvironment(
        EnvironmentName("spot"), fields.pop("provisioning", Provisioning.SPOT), 0, 64, **fields
    )


class World:
    """An engine with a clock that the test turns."""

    def __init__(self, path: Path, environment: ComputeEnvironment, **settings) -> None:
        self.path, self.environment = path, environment
        self.settings = SimulatedSettings(**{"boot_s": 10, "rebalance": 0.0, **settings})
        self.now = 0
        self.start()

    def start(self) -> None:
        """A new engine, as a new daemon has one."""
        self.said: list[object] = []
        self.link: FakeLink
        self.engine = SimulatedEngine(
            self.said.append,
            UnixReach(AgentSettings(str(self.path / "agent"), str(self.path / "attempts"))),
            AttemptDirectory(Path("/logs")),
            1,
            self.settings,
            lambda: self.now,
            self._make_link,
        )

    def _make_link(self, *arguments, leased: bool) -> FakeLink:
        self.link = FakeLink(*arguments)
        return self.link

    def at(self, seconds: float) -> list[object]:
        """Let time pass; the answer is what the engine said meanwhile."""
        self.now = round(seconds * 1000)
        self.said.clear()
        self.engine.advance(self.now)
        return list(self.said)

    def offer(self, type_: str = "p3.2xlarge"):
        return next(offer for offer in self.engine.offers(self.environment) if offer.type == type_)

    def launch(self, name: str = "i-1") -> InstanceId:
        self.engine.carry_out([LaunchInstance(InstanceId(name), self.environment.name, self.offer())])
        return InstanceId(name)

    def ready(self, name: str = "i-1") -> InstanceId:
        """An instance that has booted, at ten seconds."""
        instance = self.launch(name)
        if self.engine._inventory is None:
            self.link.introduce(an_inventory(), [])
        self.now = max(self.now, 10_000)
        self.engine.advance(self.now)
        return instance

    def start_attempt(self, token: str, instance: InstanceId, gpu_ids: tuple[str, ...] = ()) -> None:
        self.engine.carry_out(
            [
                StartAttempt(
                    AttemptToken(token),
                    TaskId("t"),
                    instance,
                    ("true",),
                    {},
                    None,
                    Resources(1, 64),
                    gpu_ids,
                    None,
                )
            ]
        )


def exited(token: str, at: int, code: int = 0) -> messages.Exited:
    return messages.Exited(token, code, None, 1, at, "process")


def test_types_are_offered_at_the_price_of_their_market(tmp_path):
    on_spot = World(tmp_path, spot()).offer()
    on_demand = World(tmp_path, spot(provisioning=Provisioning.EC2)).offer()
    assert on_spot.usd_hour < on_demand.usd_hour == on_spot.on_demand_usd_hour
    assert (on_spot.resources.gpus, on_spot.available, on_spot.machine) == (1, None, None)
    assert (on_spot.safety, on_demand.safety) == (7200, None)


def test_an_offer_says_which_gpus_its_instances_have(tmp_path):
    world = World(tmp_path, spot())
    [gpu] = world.offer().gpus
    assert (gpu.name, gpu.memory_mib, gpu.sharing) == ("V100 (simulated)", 16 * 1024, "simulated")
    real = GpuDevice("GPU-a", "H200", 1)  # which cannot be shared, nor can what stands for it
    world.link.introduce(messages.Inventory("h", 1, 4, 1024, [real], [], "nobody", [], []), [])
    [gpu] = world.offer().gpus
    assert (gpu.name, gpu.memory_mib, gpu.sharing) == ("V100 (simulated on H200)", 16 * 1024, None)


def test_an_environment_without_types_has_some_and_fargate_no_gpus(tmp_path):
    world = World(tmp_path, spot(instance_types=()))
    assert any(offer.resources.gpus for offer in world.engine.offers(world.environment))
    world = World(tmp_path, spot(instance_types=(), provisioning=Provisioning.FARGATE_SPOT))
    offers = world.engine.offers(world.environment)
    assert offers
    assert not any(offer.resources.gpus for offer in offers)


def test_an_instance_is_a_machine_of_its_own_when_it_has_booted(tmp_path):
    world = World(tmp_path, spot())
    world.launch()
    assert world.link.wanted.is_set()
    assert world.at(10) == []  # no agent yet
    world.link.introduce(an_inventory(), [])
    [ready] = world.at(10)
    assert isinstance(ready, InstanceReady)
    assert (ready.machine.id, ready.machine.total) == ("i-1", Resources(8, 62464, 1))
    assert [gpu.simulated for gpu in ready.machine.gpus] == [True]
    assert "is simulated" in ready.machine.facts["simulated"]
    world.launch()
    assert world.said[-1] == ready  # asked twice, told twice, launched once


def test_no_agent_is_started_before_it_is_needed(tmp_path):
    world = World(tmp_path, spot())
    world.engine.adopt(Holdings([world.environment]))
    world.engine.offers(world.environment)
    assert not world.link.wanted.is_set()


def test_real_gpus_stand_in_turn_for_simulated_ones(tmp_path):
    world = World(tmp_path, spot(instance_types=("p3.16xlarge",)))
    inventory = an_inventory()
    real = [GpuDevice(f"GPU-{n}", "H200", 1) for n in "ab"]
    inventory = messages.Inventory("h", 1, 4, 1024, real, [], "nobody", [], [])
    world.engine.carry_out(
        [LaunchInstance(InstanceId("i-1"), world.environment.name, world.offer("p3.16xlarge"))]
    )
    world.link.introduce(inventory, [])
    [ready] = world.at(10)
    ids = [gpu.id for gpu in ready.machine.gpus]
    assert len(set(ids)) == 8
    assert all("simulated on H200" in gpu.name for gpu in ready.machine.gpus)
    world.start_attempt("a#1", InstanceId("i-1"), tuple(ids[:3]))
    [start] = [message for message in world.link.told if isinstance(message, messages.Start)]
    assert sorted(start.gpu_ids) == ["GPU-a", "GPU-b"]


def test_what_ails_a_real_gpu_ails_those_that_stand_for_it(tmp_path):
    world = World(tmp_path, spot(instance_types=("p3.16xlarge",)))
    real = [GpuDevice(f"GPU-{n}", "H200", 1, sharing="mps") for n in "ab"]
    world.engine.carry_out(
        [LaunchInstance(InstanceId("i-1"), world.environment.name, world.offer("p3.16xlarge"))]
    )
    world.link.introduce(messages.Inventory("h", 1, 4, 1024, real, [], "nobody", [], []), [])
    world.at(10)
    sick = GpuDevice("GPU-a", "H200", 1, fence="XID 79", evacuate=True, lost=True, sharing="mps")
    world.link.say(messages.Devices([sick, real[1]]))
    changed = world.said[-1]
    assert isinstance(changed, DevicesChanged)
    assert changed.machine == "i-1"
    assert {gpu.id.partition("~")[0]: (gpu.fence, gpu.evacuate, gpu.lost) for gpu in changed.gpus} == {
        "GPU-a": ("XID 79", True, True),
        "GPU-b": (None, False, False),
    }
    assert {gpu.sharing for gpu in changed.gpus} == {"mps"}


def test_notice_then_loss_with_what_is_left(tmp_path):
    world = World(tmp_path, spot({"windfall:interrupt-at": "30"}))
    place = world.ready()
    world.start_attempt("a#1", place)
    world.start_attempt("b#1", place)
    assert world.at(30) == [InterruptionNoticed(place, 150_000)]
    world.link.say(exited("a#1", 100_000, 143))
    assert world.said[-1] == AttemptExited(AttemptToken("a#1"), 100_000, 143, None, 1, "process")
    assert world.at(150) == []
    assert world.link.stops == ["b#1"]
    world.link.say(exited("b#1", 150_010, 137))
    assert world.said == [InstanceLost(place)]  # its end is its host's end, and told as that


def test_a_loss_without_notice_keeps_ends_back_until_all_are_dead(tmp_path):
    world = World(tmp_path, spot({"windfall:interrupt-at": "30", "windfall:sudden": "1"}))
    place = world.ready()
    for token in ("a#1", "b#1", "c#1"):
        world.start_attempt(token, place)
    assert world.at(30) == []
    assert world.link.stops == ["a#1", "b#1", "c#1"]
    world.link.say(exited("a#1", 29_990))  # it had ended by itself; its word was on the way
    assert [type(said) for said in world.said] == [AttemptExited]
    world.link.say(exited("b#1", 30_005, 137))
    world.link.say(messages.Lost("c#1", 30_006))
    assert world.said[1:] == [InstanceLost(place)]


def test_an_empty_instance_goes_at_once(tmp_path):
    world = World(tmp_path, spot({"windfall:interrupt-at": "30", "windfall:sudden": "1"}))
    place = world.ready()
    assert world.at(30) == [InstanceLost(place)]


def test_nothing_is_started_on_what_is_going_or_gone(tmp_path):
    world = World(tmp_path, spot({"windfall:interrupt-at": "30", "windfall:sudden": "1"}))
    place = world.ready()
    world.start_attempt("a#1", place)
    world.at(30)
    world.link.told.clear()
    world.start_attempt("b#1", place)
    assert world.link.told == []
    world.link.say(messages.Lost("a#1", 30_001))
    assert world.said == [InstanceLost(place)]
    world.start_attempt("b#1", place)
    assert world.said[-1] == InstanceLost(place)
    assert world.link.told == []


def test_a_recommendation_comes_before_the_notice(tmp_path):
    tags = {"windfall:interrupt-at": "400"}
    world = World(tmp_path, spot(tags), rebalance=1.0)
    place = world.ready()
    said = [told for second in range(11, 401) for told in world.at(second)]
    assert said == [RebalanceRecommended(place), InterruptionNoticed(place, 520_000)]


def test_an_instance_that_is_let_go_is_not_taken_away(tmp_path):
    world = World(tmp_path, spot({"windfall:interrupt-at": "30"}))
    place = world.ready()
    world.engine.carry_out([TerminateInstance(place), TerminateInstance(place)])
    assert world.at(1_000) == []


def test_scripts_go_on_after_a_restart(tmp_path):
    world = World(tmp_path, spot({"windfall:interrupt-at": "30 50"}))
    world.ready("i-1")
    world.at(150)
    second = world.launch("i-2")
    world.start()
    instance = Instance(second, world.environment.name, "p3.2xlarge", Resources(8, 1), launched_at=150_000)
    world.engine.adopt(Holdings([world.environment], [instance]))
    world.engine.carry_out([LaunchInstance(second, world.environment.name, world.offer())])
    world.link.introduce(an_inventory(), [])
    assert [type(said) for said in world.at(160)] == [InstanceReady]
    assert world.at(200) == [InterruptionNoticed(second, 320_000)]
    third = world.launch("i-3")
    assert [said.instance for said in world.at(1_000) if isinstance(said, InterruptionNoticed)] == []
    assert third == "i-3"


def test_capacity_that_is_not_there_is_not_offered_nor_given(tmp_path):
    world = World(tmp_path, spot({"windfall:capacity": "1"}))
    offer = world.offer()
    assert offer.available == 1
    world.launch("i-1")
    assert world.offer().available == 0
    world.said.clear()
    world.engine.carry_out([LaunchInstance(InstanceId("i-2"), world.environment.name, offer)])
    [failed] = world.said
    assert isinstance(failed, InstanceLaunchFailed)
    assert failed.reason.startswith("InsufficientInstanceCapacity: ")
    world.engine.carry_out([TerminateInstance(InstanceId("i-1"))])
    assert world.offer().available == 1


def test_a_trace_gives_and_takes(tmp_path):
    trace = tmp_path / "trace.json"
    trace.write_text(
        '{"metadata": {"gap_seconds": 60}, "data": [2, 1, 0, 3], "prices": [1.0, 2.0, 3.0, 4.0]}'
    )
    world = World(tmp_path, spot({"windfall:trace": str(trace)}))
    assert (world.offer().available, world.offer().usd_hour) == (2, 1.0)
    old = world.ready("i-1")
    world.now = 20_000
    new = world.launch("i-2")
    assert world.offer().available == 0
    world.at(30)
    assert world.at(60) == [InterruptionNoticed(new, 180_000)]
    assert world.offer().available == 0
    assert world.at(119) == []
    assert world.at(120) == [InterruptionNoticed(old, 240_000)]
    assert world.at(180) == [InstanceLost(new)]
    assert world.offer().available == 3
    assert world.offer().usd_hour == 4.0


def test_a_trace_takes_what_still_boots(tmp_path):
    trace = tmp_path / "trace.json"
    trace.write_text('{"metadata": {"gap_seconds": 5}, "data": [1, 0, 0, 0, 0, 0]}')
    world = World(tmp_path, spot({"windfall:trace": str(trace)}))
    world.launch()
    [failed] = world.at(5)
    assert isinstance(failed, InstanceLaunchFailed)
    assert "InsufficientInstanceCapacity" in failed.reason


def test_an_agent_that_connects_is_told_of_for_every_instance(tmp_path):
    world = World(tmp_path, spot())
    first, second = world.ready("i-1"), world.launch("i-2")
    world.start_attempt("a#1", first)
    world.start_attempt("b#1", first)
    world.at(20)
    world.said.clear()
    inventory = an_inventory(a_status("a#1", "running", 5), a_status("b#1", "exited"))
    world.link.introduce(inventory, [exited("b#1", 15_000)])
    one, two = world.said
    assert isinstance(one, AgentConnected)
    assert isinstance(two, AgentConnected)
    assert (one.machine.id, two.machine.id) == (first, second)
    assert [started.token for started in one.running] == ["a#1"]
    assert ([ended.token for ended in one.ended], two.ended) == (["b#1"], ())


def test_an_agent_that_dies_while_its_hosts_go_is_asked_again(tmp_path):
    world = World(tmp_path, spot({"windfall:interrupt-at": "30", "windfall:sudden": "1"}))
    place = world.ready()
    world.start_attempt("a#1", place)
    world.start_attempt("b#1", place)
    world.at(30)
    world.link.told.clear()
    inventory = an_inventory(a_status("a#1", "exited"), a_status("b#1", "running", 5))
    world.link.introduce(inventory, [exited("a#1", 30_500, 137)])
    assert world.link.stops == ["b#1"]
    assert [type(said) for said in world.said] == [AttemptStarted]
    world.link.say(exited("b#1", 31_000, 137))
    assert world.said[-1] == InstanceLost(place)


def test_what_nobody_has_is_reported_so_that_the_core_can_stop_it(tmp_path):
    world = World(tmp_path, spot())
    inventory = an_inventory(a_status("a#1", "running", 5), a_status("b#1", "exited"))
    world.link.introduce(inventory, [exited("b#1", 7)])
    assert [said.token for said in world.said] == ["a#1", "b#1"]


def test_a_new_daemon_finds_its_instances_and_their_fates(tmp_path):
    world = World(tmp_path, spot({"windfall:mtbi-s": "100", "windfall:seed": "4"}))
    place = world.ready()
    fate = next(iter(world.engine._fleet)).fate
    world.start()
    instance = Instance(
        place,
        world.environment.name,
        "p3.2xlarge",
        Resources(8, 1024, 1),
        InstanceState.READY,
        launched_at=0,
    )
    world.engine.adopt(Holdings([world.environment], [instance], {AttemptToken("a#1"): place}))
    assert world.link.wanted.is_set()
    assert next(iter(world.engine._fleet)).fate == fate
    world.link.introduce(an_inventory(a_status("a#1", "running", 5)), [])
    assert isinstance(world.said[0], AgentConnected)
    assert [type(said) for said in world.at(fate.notice_at / 1000)] == [InterruptionNoticed]
    world.at(fate.lost_at / 1000)
    assert world.link.stops == ["a#1"]


def test_a_loss_that_nobody_heard_of_is_told_by_the_next_daemon(tmp_path):
    world = World(tmp_path, spot({"windfall:interrupt-at": "30", "windfall:sudden": "1"}))
    place = world.ready()
    world.start_attempt("a#1", place)
    world.at(30)
    assert world.link.stops == ["a#1"]
    world.start()  # the daemon was killed before the agent's answer came
    instance = Instance(
        place, world.environment.name, "p3.2xlarge", Resources(8, 1024, 1), InstanceState.READY
    )
    world.engine.adopt(Holdings([world.environment], [instance], {AttemptToken("a#1"): place}))
    assert world.at(31) == []
    world.link.introduce(an_inventory(a_status("a#1", "exited")), [exited("a#1", 30_004, 137)])
    assert world.said == [InstanceLost(place)]


def test_a_notice_given_by_an_earlier_daemon_holds(tmp_path):
    world = World(tmp_path, spot())
    instance = Instance(
        InstanceId("i-1"),
        world.environment.name,
        "p3.2xlarge",
        Resources(8, 1024, 1),
        InstanceState.TERMINATING,
        reclaim_at=40_000,
    )
    world.engine.adopt(Holdings([world.environment], [instance]))
    assert world.at(39) == []
    assert world.at(40) == [InstanceLost(InstanceId("i-1"))]


def test_an_environment_whose_trace_has_gone_offers_nothing_and_says_why(tmp_path, caplog):
    trace = tmp_path / "trace.json"
    trace.write_text('{"metadata": {"gap_seconds": 60}, "data": [2]}')
    environment = spot({"windfall:trace": str(trace)})
    world = World(tmp_path, environment)
    world.engine.check(environment)
    trace.unlink()
    assert world.engine.offers(environment) == world.engine.offers(environment) == ()
    assert caplog.text.count("gets no instances") == 1
    launch = LaunchInstance(InstanceId("i-1"), environment.name, World(tmp_path, spot()).offer())
    world.engine.carry_out([launch])
    assert "cannot be read by the daemon" in world.said[-1].reason
    with pytest.raises(Invalid, match="cannot be read"):
        world.engine.check(environment)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"instance_types": ("p3", "z9.huge")}, "z9.huge is neither an instance type nor a family"),
        (
            {"tags": {"windfall:mtbi-s": "soon"}},
            "The tag windfall:mtbi-s must be a number of seconds above 0",
        ),
        ({"tags": {"windfall:trace": "here.json"}}, "must be the absolute path of a trace"),
        (
            {"tags": {"windfall:mtbi-s": "9"}, "provisioning": Provisioning.EC2},
            "describes capacity that is taken away",
        ),
    ],
)
def test_what_a_simulated_market_cannot_use_is_refused(tmp_path, change, text):
    world = World(tmp_path, spot())
    with pytest.raises(Invalid, match=text):
        world.engine.check(replace(world.environment, **change))


def test_other_instructions_reach_the_agent(tmp_path):
    world = World(tmp_path, spot())
    place = world.ready()
    world.engine.carry_out([StopAttempt(AttemptToken("a#1"), place, 30)])
    assert world.link.told == [messages.Stop("a#1", 30)]


def test_a_machine_is_the_same_after_a_restart(tmp_path):
    def machine() -> Machine:
        world = World(tmp_path, spot(instance_types=("p3.8xlarge",)))
        world.engine.carry_out(
            [LaunchInstance(InstanceId("i-1"), world.environment.name, world.offer("p3.8xlarge"))]
        )
        world.link.introduce(an_inventory(), [])
        [ready] = world.at(10)
        return ready.machine

    assert machine() == machine()
