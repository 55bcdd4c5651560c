"""The addresses of the nodes of multi-node jobs, and what each node is told about itself and the others.

Nodes on one machine have a loopback address each, so that all of them can listen on the same port: a live gang has a
number, which gives it a block of addresses that no other live gang has. Nodes on several machines have the addresses of
their machines, and a port each that no other node there was given. Decides nothing about places: it reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windfall.capacity.machines import Machine
from windfall.control.state import State
from windfall.jobs.ids import node_id
from windfall.jobs.job import Job, JobKind
from windfall.jobs.nodes import Nodes

#: Facts of a machine: the address by which others reach it, and the network interface that has it.
ADDRESS_FACT, INTERFACE_FACT = "address", "interface"
LOOPBACK_INTERFACE = "lo"
#: 127.64.0.0/10 in blocks of 1,024: as many gangs at once as have addresses of their own.
_FIRST_ADDRESS = (127 << 24) | (64 << 16)
_BLOCK = 1024
BLOCKS = 4096
#: Ports below those that Linux gives to connections, 64 for each gang before they are used again.
_FIRST_PORT, _PORTS, _PORTS_OF_GANG = 20_000, 12_000, 64


@dataclass(frozen=True, slots=True)
class GangNetwork:
    """Where the nodes of one try are, by their numbers; of a node without a place nothing is known."""

    addresses: tuple[str, ...]
    interfaces: tuple[str, ...]
    ports: tuple[int, ...]
    #: Whether they are on several machines.
    is_spread: bool = False


def network_of(state: State, gang: Job) -> GangNetwork:
    """Where the nodes of a gang are, all of which have their places."""
    nodes = gang.submission.nodes
    assert nodes is not None, f"{gang.story()} has no nodes"
    jobs = [
        gang if number == nodes.main else state.jobs.get(node_id(gang.id, number))
        for number in range(nodes.count)
    ]
    machines = [_machine_of(state, job) for job in jobs]
    return gang_network(gang.gang_number or 0, machines, roams=gang.submission.replaces_lost_nodes)


def _machine_of(state: State, job: Job | None) -> Machine | None:
    if job is None or not job.attempts:
        return None
    instance = state.instances.get(job.attempts[-1].instance)
    return None if instance is None or instance.machine is None else state.machines.get(instance.machine)


def gang_network(gang_number: int, machines: Sequence[Machine | None], *, roams: bool = False) -> GangNetwork:
    """The network of nodes on these machines. Machines without an address are played on this host by a market.

    With `roams`, a node may come back on another machine than the daemon's host, where loopback would lead nowhere.
    """
    count = len(machines)
    ports = tuple(node_port(gang_number, node) for node in range(count))
    present = {machine.id: machine for machine in machines if machine is not None}
    afar = roams and any(machine.lacks for machine in present.values())
    has_addresses = any(machine.facts.get(ADDRESS_FACT) for machine in present.values())
    if not has_addresses or (len(present) < 2 and not afar):
        loopback = tuple(node_address(gang_number, node) for node in range(count))
        return GangNetwork(loopback, (LOOPBACK_INTERFACE,) * count, ports)
    facts = [{} if machine is None else machine.facts for machine in machines]
    return GangNetwork(
        tuple(of_machine.get(ADDRESS_FACT, "") for of_machine in facts),
        tuple(of_machine.get(INTERFACE_FACT, "") for of_machine in facts),
        ports,
        is_spread=True,
    )


def node_address(gang_number: int, node: int) -> str:
    """The loopback address of a node; with more live gangs than blocks, blocks are used again."""
    address = _FIRST_ADDRESS + (gang_number % BLOCKS) * _BLOCK + node + 1
    return ".".join(str((address >> shift) & 255) for shift in (24, 16, 8, 0))


def node_port(gang_number: int, node: int) -> int:
    """A port for a node; nodes of one machine need different ones, whatever gang they are of."""
    return _FIRST_PORT + (gang_number * _PORTS_OF_GANG + node) % _PORTS


def node_environment(gang: Job, nodes: Nodes, node: int, network: GangNetwork) -> dict[str, str]:
    """The variables that a node gets beside those of every job."""
    variables = {
        "WINDFALL_NODE_ADDRESS": network.addresses[node],
        "WINDFALL_NODE_ADDRESSES": ",".join(network.addresses),
        "WINDFALL_NODE_PORT": str(network.ports[node]),
        "WINDFALL_NODE_PORTS": ",".join(map(str, network.ports)),
    }
    if gang.submission.kind is JobKind.TRAINING:
        return variables
    variables |= {
        "AWS_BATCH_JOB_NUM_NODES": str(nodes.count),
        "AWS_BATCH_JOB_NODE_INDEX": str(node),
        "AWS_BATCH_JOB_MAIN_NODE_INDEX": str(nodes.main),
    }
    if node != nodes.main:
        variables["AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"] = network.addresses[nodes.main]
    return variables


def interface_variables(network: GangNetwork, node: int) -> dict[str, str]:
    """What makes NCCL and Gloo use the interface of the node's address; a job's own variables go before these."""
    interface = network.interfaces[node]
    if not network.is_spread or not interface:
        return {}
    # "=": exactly this interface, not all whose names begin so.
    return {"NCCL_SOCKET_IFNAME": f"={interface}", "GLOO_SOCKET_IFNAME": interface}
