"""A multi-node job in pure Python: the nodes add up a vector around a ring, each on the same port of its own address.

Every node listens on WINDFALL_NODE_ADDRESS, takes what its neighbour before it has added up, adds its own part, and
hands the sum on; the last one's sum goes around once more, so that all nodes end with it. Run it as every node of a
multi-node parallel job (docs/multi-node.md), or alone: without Windfall's variables it is a ring of one.
"""

from __future__ import annotations

import json
import os
import socket
import time

PORT = int(os.environ.get("ALL_REDUCE_PORT", "29500"))
#: The other nodes start when the main one runs; so long they may take.
PATIENCE_S = 60.0


def connected(address: str) -> socket.socket:
    """A connection to a node, as soon as it listens."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=5)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class Ring:
    """The nodes in a circle; each hears the one before it and speaks to the one after it."""

    def __init__(self, node: int, addresses: list[str]) -> None:
        self.node, self.size = node, len(addresses)
        with socket.create_server((addresses[node], PORT)) as server:
            after = connected(addresses[(node + 1) % self.size])
            before, _ = server.accept()
        self._incoming, self._outgoing = before.makefile("r"), after.makefile("w")

    def say(self, vector: list[float]) -> None:
        """Tell the next node."""
        self._outgoing.write(json.dumps(vector) + "\n")
        self._outgoing.flush()

    def hear(self) -> list[float]:
        """What the node before says."""
        heard: list[float] = json.loads(self._incoming.readline())
        return heard

    def all_reduce(self, part: list[float]) -> list[float]:
        """The sum of all nodes' parts, the same on every node: once around to add, once to tell."""
        if self.node == 0:
            self.say(part)
            total = self.hear()
            self.say(total)
            return self.hear()
        self.say([mine + theirs for mine, theirs in zip(part, self.hear(), strict=True)])
        total = self.hear()
        self.say(total)
        return total

    def leave(self) -> None:
        """Once more around when a node is done: the main node ends last, because its end stops the others."""
        if self.node == 0:
            self.say([])
            self.hear()
        else:
            self.hear()
            self.say([])


def main() -> None:
    """Add up (node, 1) over all nodes, and say the sum."""
    node = int(os.environ.get("AWS_BATCH_JOB_NODE_INDEX", "0"))
    addresses = os.environ.get("WINDFALL_NODE_ADDRESSES", "127.0.0.1").split(",")
    ring = Ring(node, addresses)
    total = ring.all_reduce([float(node), 1.0])
    print(f"node {node} of {len(addresses)} at {addresses[node]}: sum {total}", flush=True)
    ring.leave()


if __name__ == "__main__":
    main()
