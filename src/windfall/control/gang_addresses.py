"""The addresses of the nodes of multi-node jobs, and what each node is told about itself and the others.

All nodes run on one host for the network's sake: each has a loopback address of its own, so that all of them can listen
on the same port. A live gang has a number, which gives it a block of addresses that no other live gang has. Must not
know where nodes run.
"""

from __future__ import annotations

from windfall.jobs.job import Job, JobKind
from windfall.jobs.nodes import Nodes

#: 127.64.0.0/10 in blocks of 1,024: as many gangs at once as have addresses of their own.
_FIRST_ADDRESS = (127 << 24) | (64 << 16)
_BLOCK = 1024
BLOCKS = 4096


def node_address(gang_number: int, node: int) -> str:
    """The address of a node; with more live gangs than blocks, blocks are used again."""
    address = _FIRST_ADDRESS + (gang_number % BLOCKS) * _BLOCK + node + 1
    return ".".join(str((address >> shift) & 255) for shift in (24, 16, 8, 0))


def node_environment(gang: Job, nodes: Nodes, node: int) -> dict[str, str]:
    """The variables that a node gets beside those of every job."""
    number = gang.gang_number or 0
    variables = {
        "WINDFALL_NODE_ADDRESS": node_address(number, node),
        "WINDFALL_NODE_ADDRESSES": ",".join(node_address(number, peer) for peer in range(nodes.count)),
    }
    if gang.submission.kind is JobKind.TRAINING:
        return variables
    variables |= {
        "AWS_BATCH_JOB_NUM_NODES": str(nodes.count),
        "AWS_BATCH_JOB_NODE_INDEX": str(node),
        "AWS_BATCH_JOB_MAIN_NODE_INDEX": str(nodes.main),
    }
    if node != nodes.main:
        variables["AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"] = node_address(number, nodes.main)
    return variables
