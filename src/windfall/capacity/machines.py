"""Machines, the instances that environments have on them, and what is left of both.

A machine is real hardware with particular GPU devices. An instance is one compute environment's claim on a
machine: environments on one host share the host, and each is bounded by its own maxvCpus. Knows nothing of jobs
beyond what they hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from windfall.jobs.ids import EnvironmentName, InstanceId, MachineId
from windfall.jobs.resources import Resources
from windfall.jobs.states import MoveTable


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One GPU of a machine. A simulated one is marked so wherever it is shown."""

    id: str
    name: str
    memory_mib: int | None = None
    simulated: bool = False
    #: Why no new job gets it, for people; None when it is well.
    fence: str | None = None
    #: Whether a sick one is bad enough that its job is moved away.
    evacuate: bool = False
    #: What is not right but no reason to stay away: throttled, corrected errors.
    notes: tuple[str, ...] = ()
    #: Whether several jobs may have a part of it each, and by what (`mps`); None when it cannot be shared.
    sharing: str | None = None
    #: The whole GPU that a MIG slice is a part of.
    parent: str | None = None
    driver: str | None = None
    #: Whether it does not answer at all any more, so that nothing on it can be saved.
    lost: bool = False
    #: Why it cannot be shared, for people.
    sharing_note: str | None = None


#: The fact with the words of what a machine does not reach: `files`, `s3` (jobs/storage.py has them).
LACKS_FACT = "lacks"
NOTHING_LACKS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Offer:
    """A kind of instance that an engine could launch for an environment."""

    type: str
    resources: Resources
    #: How many more could be launched now; None means no known bound.
    available: int | None = None
    #: Set when the instance would share a machine that is already known.
    machine: MachineId | None = None
    #: What an hour of it costs, and would cost on demand; None when nobody said.
    usd_hour: float | None = None
    on_demand_usd_hour: float | None = None
    #: How likely it is to be taken away soon, against the others: higher is safer. None when nobody knows.
    safety: float | None = None
    #: The devices that one instance of it would have; their ids mean nothing.
    gpus: tuple[GpuDevice, ...] = ()
    #: As `Machine.lacks`.
    lacks: frozenset[str] = NOTHING_LACKS


class InstanceState(StrEnum):
    """The life of an instance."""

    LAUNCHING = "LAUNCHING"
    READY = "READY"
    #: It has notice or is being let go: nothing new is placed on it.
    TERMINATING = "TERMINATING"


LAUNCHING, READY, TERMINATING = InstanceState

INSTANCE_MOVES = MoveTable(
    {
        (LAUNCHING, READY): "its machine can take attempts",
        (LAUNCHING, TERMINATING): "it has notice, or its environment was updated",
        (READY, TERMINATING): "it has notice, or its environment was updated",
    },
    begins={LAUNCHING: "the scheduler needs it"},
    ends={
        LAUNCHING: "could not be had, or is not needed any more",
        READY: "idle for too long, or lost",
        TERMINATING: "the last attempt has left, or lost",
    },
)


#: The fact that names the engine which a machine belongs to, where that has several machines, and the fact that has the
#: name which somebody gave the machine.
ENGINE_FACT, NAME_FACT = "engine", "name"


@dataclass(frozen=True, slots=True)
class Machine:
    """Real hardware, as its agent describes it."""

    id: MachineId
    total: Resources
    gpus: tuple[GpuDevice, ...] = ()
    #: What the agent says about itself: isolation, job user, warnings.
    facts: Mapping[str, str] = field(default_factory=dict)
    #: Devices that somebody fenced by hand, and why: they stay so until that is taken back.
    fences: Mapping[str, str] = field(default_factory=dict)
    #: Fences of the agent's own that somebody took back, by device: they count no more, until the agent finds another.
    pardons: Mapping[str, str] = field(default_factory=dict)
    #: Why nothing new is placed on it, for people; None when it takes attempts.
    closed: str | None = None

    @property
    def lacks(self) -> frozenset[str]:
        """What jobs may need and it does not reach; the daemon's own host reaches everything."""
        words = self.facts.get(LACKS_FACT)
        return frozenset(words.split()) if words else NOTHING_LACKS

    def why_fenced(self, gpu: GpuDevice) -> str | None:
        """Why no new job gets a device of it; None when one may."""
        return self.fences.get(gpu.id) or self.own_fence(gpu)

    def own_fence(self, gpu: GpuDevice) -> str | None:
        """The agent's reason to keep new jobs from a device, unless somebody took it back; a lost one stays lost."""
        pardoned = self.pardons.get(gpu.id) == gpu.fence and not gpu.lost
        return None if pardoned else gpu.fence


def own_machine(machines: Iterable[Machine]) -> Machine | None:
    """The daemon's own host, not what a market plays on it nor another machine; None where there is none."""
    facts_of_others = ("simulated", ENGINE_FACT)
    return next(
        (machine for machine in machines if not any(fact in machine.facts for fact in facts_of_others)), None
    )


@dataclass(slots=True)
class Instance:
    """One environment's claim on a machine."""

    id: InstanceId
    environment: EnvironmentName
    type: str
    total: Resources
    state: InstanceState = InstanceState.LAUNCHING
    #: None while it launches, unless it is a share of a machine that is known.
    machine: MachineId | None = None
    launched_at: int = 0
    #: Whether it is a share of a machine that others use too, rather than a machine of its own.
    is_share: bool = False
    usd_hour: float | None = None
    on_demand_usd_hour: float | None = None
    #: When it is taken away at the latest, once it has notice.
    reclaim_at: int | None = None
    #: When it is to be replaced at the latest, since its environment would not launch its like any more.
    leave_at: int | None = None

    def move(self, new: InstanceState) -> None:
        """Change the state, if the table has such a move."""
        INSTANCE_MOVES.check(self.state, new, self.story)
        self.state = new

    def story(self) -> str:
        """Its life in one line, for errors and logs."""
        return (
            f"instance {self.id} ({self.type} of {self.environment}) is {self.state}; machine: {self.machine}"
        )


def largest_claim(total: Resources, max_vcpus: int) -> Resources:
    """The most that an environment may claim of a shared machine: all of it, up to its own number of vCPUs."""
    return Resources(min(total.vcpus, max_vcpus), total.memory_mib, total.gpus)


@dataclass(frozen=True, slots=True)
class Hold:
    """What one attempt holds on an instance and its machine."""

    instance: InstanceId
    resources: Resources
    gpu_ids: tuple[str, ...] = ()

    @property
    def is_part(self) -> bool:
        """Whether it is a part of one device rather than whole ones."""
        return 0 < self.resources.gpus < 1
