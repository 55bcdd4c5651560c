"""Nodes on several machines are told the machines' addresses, a port each and the interface to use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import TestWorld, a_job, a_machine, a_world
from tests.gang_builders import a_container, a_gang_definition
from tests.unit.control.trainings import a_training
from windfall.capacity.machines import Machine, Offer
from windfall.control import events
from windfall.control.gang_addresses import gang_network, node_port
from windfall.control.instructions import LaunchInstance, StartAttempt
from windfall.jobs.definitions import ContainerSpec, HostProgram, NodeRange
from windfall.jobs.ids import MachineId
from windfall.jobs.nodes import OWN_INTERFACE, NodeGroup, Nodes
from windfall.jobs.resources import Resources
from windfall.jobs.staging import Checkpoints, Output, Staging, TextFile
from windfall.jobs.storage import StorageLayout


def a_host(name: str, address: str = "", interface: str = "eth0", vcpus: float = 2) -> Machine:
    facts = {**a_machine().facts, "address": address, "interface": interface if address else ""}
    return replace(a_machine(vcpus), id=MachineId(name), facts=facts)


HOSTS = (a_host("m1", "10.0.0.1", "eth0"), a_host("m2", "10.0.0.2", "ens5"))


class World(TestWorld):
    """Two machines with two vCPUs each."""

    hosts = HOSTS

    def machine_of(self, launch: LaunchInstance) -> Machine:
        return next(host for host in self.hosts if host.id == launch.offer.machine)


def two_hosts(hosts: tuple[Machine, ...] = HOSTS) -> World:
    plain = a_world(storage=StorageLayout("s3://bucket"))
    world = World(plain.state, plain.store)
    world.hosts = hosts
    offers = tuple(Offer(host.id, host.total, 1, host.id) for host in hosts)
    world.offers = dict.fromkeys(("environment", "training-spot"), offers)
    return world


def starts(world: TestWorld) -> list[StartAttempt]:
    return world.asked_for(StartAttempt)


@pytest.fixture
def gang() -> list[dict[str, str]]:
    """What the three nodes of a job on two machines are told."""
    own = a_container(environment={"NCCL_SOCKET_IFNAME": "mine"})
    definition = a_gang_definition("gang", 3, 0, NodeRange(0, 1, a_container()), NodeRange(2, None, own))
    world = two_hosts()
    world.declared()
    world.happens(events.RegisterJobDefinition(definition))
    main = starts(world.submits(a_job("a", definition="gang")).ready())
    return [dict(start.environment) for start in (*main, *starts(world.starts("a")))]


def test_each_node_knows_the_addresses_of_all_machines(gang: list[dict[str, str]]):
    addresses = [node["WINDFALL_NODE_ADDRESS"] for node in gang]
    assert sorted(set(addresses)) == ["10.0.0.1", "10.0.0.2"]
    assert {node["WINDFALL_NODE_ADDRESSES"] for node in gang} == {",".join(addresses)}
    assert {node["AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"] for node in gang[1:]} == {addresses[0]}


def test_nodes_that_share_an_address_have_ports_of_their_own(gang: list[dict[str, str]]):
    assert {node["WINDFALL_NODE_PORTS"] for node in gang} == {"20000,20001,20002"}
    assert [node["WINDFALL_NODE_PORT"] for node in gang] == ["20000", "20001", "20002"]
    assert {node_port(0, node) for node in range(64)}.isdisjoint(node_port(1, node) for node in range(64))
    assert all(20_000 <= node_port(number, 999) < 32_000 for number in range(4_000))


def test_the_interface_of_the_address_is_named_to_nccl_and_gloo_unless_the_job_does(
    gang: list[dict[str, str]],
):
    names = {"10.0.0.1": "eth0", "10.0.0.2": "ens5"}
    for node in gang[:2]:
        interface = names[node["WINDFALL_NODE_ADDRESS"]]
        assert (node["NCCL_SOCKET_IFNAME"], node["GLOO_SOCKET_IFNAME"]) == (f"={interface}", interface)
    assert gang[2]["NCCL_SOCKET_IFNAME"] == "mine"


@pytest.mark.parametrize(
    "machines",
    [
        (HOSTS[0], HOSTS[0]),
        (a_host("played-1"), a_host("played-2")),
        (HOSTS[0], None),
    ],
    ids=["one machine", "a market on this host", "a node without a place"],
)
def test_nodes_that_one_host_has_keep_loopback(machines: tuple[Machine | None, ...]):
    network = gang_network(0, machines)
    assert network.addresses == ("127.64.0.1", "127.64.0.2")
    assert network.interfaces == ("lo", "lo")
    assert not network.is_spread


def test_a_node_that_may_come_back_elsewhere_is_never_on_loopback():
    afar = replace(HOSTS[0], facts={**HOSTS[0].facts, "lacks": "files"})
    assert gang_network(0, (afar, afar), roams=True).addresses == ("10.0.0.1", "10.0.0.1")
    assert gang_network(0, (HOSTS[0], HOSTS[0]), roams=True).addresses == ("127.64.0.1", "127.64.0.2")


def a_distributed_training(**changes: Any) -> Any:
    container = ContainerSpec(
        "image",
        Resources(2, 1024),
        ("train",),
        log_group="/aws/sagemaker/TrainingJobs",
        on_host=HostProgram(("python3",), {"SM_NETWORK_INTERFACE_NAME": OWN_INTERFACE}),
    )
    staging = Staging(
        Checkpoints("s3://bucket/t"),
        files=(TextFile("/opt/ml/input/config/resourceconfig.json", f'"{OWN_INTERFACE}"'),),
        outputs=(Output("/opt/ml/model", "s3://b/model.tar.gz"),),
    )
    groups = (NodeGroup(0, 1, container, staging=staging),)
    return a_training("t", nodes=Nodes(2, 0, groups, peers=True, name_prefix="algo-"), **changes)


def test_a_training_on_two_machines_resolves_its_hosts_and_merges_in_the_store():
    world = two_hosts()
    world.happens(a_distributed_training())
    world.ready()
    first, second = starts(world)
    hosts = {
        ("algo-1", first.environment["WINDFALL_NODE_ADDRESS"]),
        ("algo-2", second.environment["WINDFALL_NODE_ADDRESS"]),
    }
    assert {address for _, address in hosts} == {"10.0.0.1", "10.0.0.2"}
    names = {"10.0.0.1": "eth0", "10.0.0.2": "ens5"}
    for start in (first, second):
        assert start.staging is not None
        assert set(start.staging.hosts) == hosts
        interface = names[start.environment["WINDFALL_NODE_ADDRESS"]]
        assert start.staging.files[0].content == f'"{interface}"'
        assert start.environment["SM_NETWORK_INTERFACE_NAME"] == interface
        assert start.staging.outputs[0].merged_in_store


def test_a_training_on_one_machine_merges_there():
    world = two_hosts((a_host("m1", "10.0.0.1", vcpus=4),))
    world.happens(a_distributed_training())
    world.ready()
    for start in starts(world):
        assert start.staging is not None
        assert not start.staging.outputs[0].merged_in_store
        assert start.environment["SM_NETWORK_INTERFACE_NAME"] == "lo"
