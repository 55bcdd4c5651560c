"""What one node of a multi-node job is given that others of its group are not: its name, its files, its part of inputs.

Decides how a group's container and staging become a node's own, and an array's staging a child's. Must not know where
nodes run, nor what any file says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from windfall.control.gang_addresses import LOOPBACK_INTERFACE, GangNetwork, interface_variables
from windfall.jobs.definitions import ContainerSpec
from windfall.jobs.ids import attempt_token
from windfall.jobs.job import Job
from windfall.jobs.nodes import OWN_INTERFACE, OWN_NAME, OWN_NUMBER, Nodes
from windfall.jobs.staging import Channel, Staging


def container_of_node(nodes: Nodes, number: int, interface: str = LOOPBACK_INTERFACE) -> ContainerSpec:
    """What a node runs, with its own name and network interface where its group has the place for them."""
    container, name = nodes.group(number).container, nodes.name(number)
    if name is None:
        return container
    on_host = container.on_host
    if on_host is not None:
        on_host = replace(on_host, environment=_named(on_host.environment, name, number, interface))
    environment = _named(container.environment, name, number, interface)
    return replace(container, environment=environment, on_host=on_host)


def with_interface(container: ContainerSpec, network: GangNetwork, number: int) -> ContainerSpec:
    """The container with what makes NCCL and Gloo use the node's interface; its own variables go before these."""
    variables = interface_variables(network, number)
    if not variables:
        return container
    on_host = container.on_host
    if on_host is not None:
        on_host = replace(on_host, environment={**variables, **on_host.environment})
    return replace(container, environment={**variables, **container.environment}, on_host=on_host)


def own_staging(job: Job) -> Staging | None:
    """What is brought and kept for a job: each child of an array, and each node, has a prefix of its own.

    Nodes that are peers share one prefix.
    """
    staging, nodes = job.submission.staging, job.submission.nodes
    if nodes is not None and job.node is not None:
        staging = nodes.group(job.node).staging or staging
    part = _own_part(job)
    if staging is None or part is None:
        return staging
    checkpoints = staging.checkpoints
    if checkpoints is not None:
        checkpoints = replace(checkpoints, uri=f"{checkpoints.uri}/{part}")
    outputs = (
        replace(output, uri=f"{output.uri}/{part}") if output.patterns else output
        for output in staging.outputs
    )
    return replace(staging, checkpoints=checkpoints, outputs=tuple(outputs))


def _own_part(job: Job) -> str | None:
    """What sets the checkpoints of an array's child, or of one of several nodes, apart from the others'."""
    nodes = job.submission.nodes
    if nodes is not None:
        return f"node-{job.node}" if nodes.count > 1 and not nodes.peers else None
    return None if job.array_place is None else str(job.array_place[0])


def staging_of_peer(gang: Job, job: Job, staging: Staging, network: GangNetwork) -> Staging:
    """What is brought for one of several equal nodes, and taken from it together with the others'."""
    nodes, number = job.submission.nodes, job.node
    assert nodes is not None, f"{job.story()} has no nodes"
    assert number is not None, f"{job.story()} is not a node"
    name = nodes.name(number) or ""
    checkpoints = staging.checkpoints
    if checkpoints is not None:
        checkpoints = replace(checkpoints, writer=number, writers=nodes.count)
    # All nodes of a try have the same number of attempts behind them.
    common_try = attempt_token(gang.id, len(job.attempts), gang.created_at)
    return replace(
        staging,
        checkpoints=checkpoints,
        files=tuple(
            replace(file, content=_named({"": file.content}, name, number, network.interfaces[number])[""])
            for file in staging.files
        ),
        channels=tuple(_part_of(channel, number) for channel in staging.channels),
        outputs=tuple(
            replace(output, merged_as=common_try, merged_of=nodes.count, merged_in_store=network.is_spread)
            if output.archived
            else output
            for output in staging.outputs
        ),
        hosts=tuple(
            (nodes.name(peer) or "", address) for peer, address in enumerate(network.addresses) if address
        ),
    )


def _part_of(channel: Channel, number: int) -> Channel:
    among = channel.divided_among
    return replace(channel, part=(among.index(number), len(among))) if number in among else channel


def _named(environment: Mapping[str, str], name: str, number: int, interface: str) -> dict[str, str]:
    return {
        variable: value.replace(OWN_NAME, name)
        .replace(OWN_NUMBER, str(number))
        .replace(OWN_INTERFACE, interface)
        for variable, value in environment.items()
    }
