"""What the queue of a new job runs on: whether it is spot capacity, and how much memory a job gets that names none.

The default is the job's share of the machine: one of eight vCPUs, or one of eight GPUs, gets an eighth of the memory,
so that jobs fill the machine evenly. A tenth is kept for everything else on the machine. Must not submit anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windfall.cli.client import Client
from windfall.cli.default_queue import choose_queue
from windfall.cli.errors import RequestRefused

if TYPE_CHECKING:
    from windfall.cli.submitting import JobRequest

#: What a job gets at least, and where the machine is not known or its instances have types of their own.
LEAST_DEFAULT_MIB = 2048
_FOR_JOBS = 0.9


@dataclass(frozen=True, slots=True)
class Capacity:
    """The machine and the compute environments of a queue, as far as they are known."""

    vcpus: float = 0
    memory_mib: int = 0
    gpus: int = 0
    #: The kinds of the queue's environments, such as SPOT; empty for a queue that is yet to be made.
    kinds: frozenset[str] = frozenset()
    #: Whether instances are the machine itself, and not ones of certain types.
    is_machine: bool = True

    @property
    def may_be_spot(self) -> bool:
        """Whether jobs of the queue can run on spot capacity."""
        return not self.kinds or any("SPOT" in kind for kind in self.kinds)

    def default_memory_mib(self, vcpus: int, gpus: int) -> int:
        """The memory of a job that does not say how much it needs."""
        if not self.is_machine or not self.vcpus:
            return LEAST_DEFAULT_MIB
        parts = [vcpus / self.vcpus, *([gpus / self.gpus] if self.gpus else [])]
        share = min(1.0, max(parts))
        return min(max(LEAST_DEFAULT_MIB, int(self.memory_mib * share * _FOR_JOBS)), self.memory_mib)

    @classmethod
    def of(cls, client: Client, wanted: JobRequest) -> Capacity:
        """Ask the daemon, only for what is needed."""
        if wanted.memory_mib is not None and not (wanted.spot and wanted.queue):
            return cls()
        try:
            status = client.own("Status")
        except RequestRefused:
            return cls()
        machine: dict[str, Any] = status.get("machine") or {}
        environments = {each["name"]: each for each in status.get("environments", [])}
        queue, is_there = (
            (wanted.queue, True) if wanted.queue else choose_queue(client, **wanted.kind_of_queue)
        )
        names = _environments_of(client, queue) if is_there else set()
        used = [environments[name] for name in names if name in environments]
        return cls(
            machine.get("vcpus", 0),
            machine.get("memoryMib", 0),
            len(machine.get("gpus", [])),
            frozenset(each["type"] for each in used),
            all(each.get("engine") in (None, "local", "hosts") for each in used),
        )


def _environments_of(client: Client, queue: str) -> set[str]:
    queues = client.batch("DescribeJobQueues", jobQueues=[queue])["jobQueues"]
    orders = [order for each in queues for order in each.get("computeEnvironmentOrder", [])]
    return {order["computeEnvironment"].rpartition("/")[2] for order in orders}
