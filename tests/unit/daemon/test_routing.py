"""Instructions reach the engine of their instance's environment, and environments that nobody serves are refused."""

from __future__ import annotations

import pytest

from windfall.capacity.environments import ComputeEnvironment, Provisioning
from windfall.capacity.machines import Instance, Machine, Offer
from windfall.control.events import CreateComputeEnvironment, TagResource, UpdateComputeEnvironment
from windfall.control.instructions import (
    ForgetAttempt,
    InterruptAttempt,
    LaunchInstance,
    StartAttempt,
    StopAttempt,
    TerminateInstance,
)
from windfall.control.state import State
from windfall.daemon.routing import Routing
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import AttemptToken, EnvironmentName, InstanceId, MachineId, TaskId
from windfall.jobs.resources import Resources

SMALL = Resources(2, 1024)


class FakeEngine:
    """Notes what it is told."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: list[object] = []
        self.holdings = None
        self.checked: list[ComputeEnvironment] = []

    def check(self, environment):
        self.checked.append(environment)

    def adopt(self, holdings):
        self.holdings = holdings

    def offers(self, environment):
        return (Offer(f"{self.name} for {environment.name}", SMALL),)

    def carry_out(self, instructions):
        self.told += instructions


def an_environment(name: str, engine: str | None) -> ComputeEnvironment:
    return ComputeEnvironment(EnvironmentName(name), Provisioning.SPOT, 0, 64, engine=engine)


class World:
    def __init__(self) -> None:
        self.local, self.simulated = FakeEngine("local"), FakeEngine("simulated")
        self.routing = Routing({"local": self.local, "simulated": self.simulated})
        self.state = State()
        for environment in (an_environment("here", None), an_environment("spot", "simulated")):
            self.state.environments[environment.name] = environment

    def launch(self, name: str, environment: str) -> LaunchInstance:
        instance = Instance(InstanceId(name), EnvironmentName(environment), "t", SMALL)
        self.state.instances[instance.id] = instance
        launch = LaunchInstance(instance.id, instance.environment, Offer("t", SMALL))
        self.routing.carry_out(self.state, [launch])
        return launch


def a_start(instance: str) -> StartAttempt:
    return StartAttempt(
        AttemptToken("a#1"), TaskId("t"), InstanceId(instance), ("true",), {}, None, SMALL, (), None
    )


def test_each_engine_is_told_what_is_for_its_instances_in_order():
    world = World()
    here, spot = world.launch("i-here", "here"), world.launch("i-spot", "spot")
    token = AttemptToken("a#1")
    mine = [
        a_start("i-spot"),
        InterruptAttempt(token, InstanceId("i-spot"), 9),
        TerminateInstance(spot.instance),
    ]
    other = [StopAttempt(token, InstanceId("i-here"), 3)]
    world.routing.carry_out(world.state, [*mine, *other])
    assert world.simulated.told == [spot, *mine]
    assert world.local.told == [here, *other]


def test_what_the_core_does_not_know_any_more_goes_to_all():
    world = World()
    about = [ForgetAttempt(AttemptToken("a#1"), None), StopAttempt(AttemptToken("b#1"), None, 0)]
    world.routing.carry_out(world.state, about)
    assert world.local.told == about
    assert world.simulated.told == about


def test_an_instance_that_the_core_has_let_go_still_has_its_engine():
    world = World()
    world.launch("i-spot", "spot")
    world.state.instances.clear()
    world.state.environments.clear()
    gone = TerminateInstance(InstanceId("i-spot"))
    world.routing.carry_out(world.state, [gone])
    assert world.simulated.told[-1] == gone
    assert world.local.told == []


def test_nothing_is_started_where_nobody_is():
    world = World()
    world.routing.carry_out(world.state, [a_start("i-nobody")])
    assert world.local.told == world.simulated.told == []


def test_offers_come_from_each_environments_own_engine():
    world = World()
    offers = world.routing.offers(world.state)
    assert {name: offer.type for name, (offer,) in offers.items()} == {
        "here": "local for here",
        "spot": "simulated for spot",
    }


def test_what_the_store_knows_is_shared_out():
    world = World()
    for name, environment in (("i-1", "here"), ("i-2", "spot"), ("i-3", "gone")):
        instance = Instance(InstanceId(name), EnvironmentName(environment), "t", SMALL)
        world.state.instances[instance.id] = instance
    world.routing.adopt(world.state)
    assert [one.id for one in world.local.holdings.instances] == ["i-1", "i-3"]
    assert [one.id for one in world.simulated.holdings.instances] == ["i-2"]
    assert [one.name for one in world.simulated.holdings.environments] == ["spot"]
    stop = StopAttempt(AttemptToken("a#1"), InstanceId("i-2"), 1)
    world.routing.carry_out(world.state, [stop])
    assert world.simulated.told == [stop]


def test_an_engine_that_is_not_here_is_refused_with_those_that_are():
    world = World()
    with pytest.raises(Invalid, match=r"unknown engine, 'ray'; this daemon has local, simulated"):
        world.routing.check(world.state, CreateComputeEnvironment(an_environment("e", "ray")))


def test_an_engine_sees_an_environment_as_it_would_become():
    world = World()
    name = EnvironmentName("spot")
    world.routing.check(world.state, UpdateComputeEnvironment(name, max_vcpus=5))
    assert world.simulated.checked == []
    world.routing.check(world.state, UpdateComputeEnvironment(name, instance_types=("g5",)))
    world.routing.check(world.state, UpdateComputeEnvironment(name, provisioning=Provisioning.EC2))
    world.routing.check(world.state, TagResource("compute-environment", "spot", add={"windfall:seed": "7"}))
    assert [one.instance_types for one in world.simulated.checked] == [("g5",), (), ()]
    spot, on_demand = Provisioning.SPOT, Provisioning.EC2
    assert [one.provisioning for one in world.simulated.checked] == [spot, on_demand, spot]
    assert world.simulated.checked[2].tags == {"windfall:seed": "7"}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("here", {"add": {"windfall:engine": "simulated"}}),
        ("spot", {"add": {"windfall:engine": "local"}}),
        ("spot", {"add": {"windfall:engine": "nonsense"}}),
        ("spot", {"remove": ("windfall:engine",)}),
    ],
)
def test_the_engine_of_an_environment_is_not_changed_by_a_tag(name, change):
    world = World()
    with pytest.raises(Invalid, match=r"is read when a compute environment is created.*create another"):
        world.routing.check(world.state, TagResource("compute-environment", name, **change))


def test_a_tag_that_says_which_engine_it_is_changes_nothing_and_is_taken():
    world = World()
    for name, engine in (("here", "local"), ("spot", "simulated")):
        tags = {"windfall:engine": engine}
        world.routing.check(world.state, TagResource("compute-environment", name, add=tags))
    world.routing.check(world.state, TagResource("compute-environment", "here", remove=("windfall:engine",)))


def test_homes_of_instances_long_gone_are_dropped():
    world = World()
    for number in range(1_100):
        world.launch(f"i-{number}", "spot")
        world.state.instances.clear()
    kept = world.launch("i-kept", "spot")
    assert world.simulated.told[-1] == kept
    stop = StopAttempt(AttemptToken("a#1"), InstanceId("i-0"), 1)
    world.routing.carry_out(world.state, [stop])
    assert world.local.told == [stop]  # nobody remembers whose it was: all are asked


def test_hosts_serve_environments_that_name_no_engine_beside_this_host_and_keep_their_instances():
    local, hosts = FakeEngine("local"), FakeEngine("hosts")
    routing = Routing({"local": local, "hosts": hosts})
    state = State()
    for environment in (
        an_environment("any", None),
        an_environment("own", "local"),
        an_environment("far", "hosts"),
    ):
        state.environments[environment.name] = environment
    assert [offer.type for offer in routing.offers(state)[EnvironmentName("any")]] == [
        "local for any",
        "hosts for any",
    ]
    assert [offer.type for offer in routing.offers(state)[EnvironmentName("own")]] == ["local for own"]
    far = Machine(MachineId("hosts-a"), SMALL, facts={"engine": "hosts"})
    state.machines[far.id] = far
    launch = LaunchInstance(InstanceId("i-1"), EnvironmentName("any"), Offer("t", SMALL, machine=far.id))
    near = LaunchInstance(
        InstanceId("i-2"), EnvironmentName("any"), Offer("t", SMALL, machine=MachineId("m"))
    )
    routing.carry_out(state, [launch, near])
    assert (hosts.told, local.told) == ([launch], [near])
    state.instances[InstanceId("i-1")] = Instance(
        InstanceId("i-1"), EnvironmentName("any"), "t", SMALL, machine=far.id
    )
    again = Routing({"local": local, "hosts": hosts})
    again.adopt(state)
    assert [instance.id for instance in hosts.holdings.instances] == ["i-1"]
    assert list(hosts.holdings.machines) == [far]
    assert list(local.holdings.instances) == []


def test_hosts_do_not_serve_what_a_market_is_the_default_for():
    market, hosts = FakeEngine("simulated"), FakeEngine("hosts")
    routing, state = Routing({"simulated": market, "hosts": hosts}), State()
    state.environments[EnvironmentName("any")] = an_environment("any", None)
    assert [offer.type for offer in routing.offers(state)[EnvironmentName("any")]] == ["simulated for any"]
