"""A large cluster in memory: the real reactor and scheduler over thousands of instances that nobody has to own.

    python -m bench.cluster KIND COUNT INSTANCES

measures one kind of backlog in a fresh process and writes the figures as JSON: how long scheduling takes and
what a queued job weighs. The garbage collector is set as in the daemon.
"""

from __future__ import annotations

import gc
import json
import sys
import time
import uuid
from typing import Any

from bench.machine import resident_mib
from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning
from windfall.capacity.machines import Machine, Offer
from windfall.control.events import (
    AttemptExited,
    AttemptStarted,
    CreateComputeEnvironment,
    CreateJobQueue,
    Event,
    InstanceReady,
    RegisterJobDefinition,
    SubmitJob,
)
from windfall.control.instructions import Instruction, LaunchInstance, StartAttempt
from windfall.control.reactor import close, handle, schedule
from windfall.control.round import Round
from windfall.control.state import State
from windfall.daemon.leading import spared_by_the_collector
from windfall.jobs.definitions import ContainerSpec, JobDefinition
from windfall.jobs.ids import EnvironmentName, JobId, MachineId, QueueName
from windfall.jobs.resources import Resources

VCPUS_EACH = 8
ARRAY_SIZE = 10_000
SHAPES = 100
_ENVIRONMENT, _QUEUE = EnvironmentName("cluster"), QueueName("queue")
_EACH = Resources(VCPUS_EACH, VCPUS_EACH * 4096)


class Cluster:
    """State, a clock that moves by hand, and an engine that says yes."""

    def __init__(self, instances: int) -> None:
        self.instances = instances
        self.offer = Offer("simulated.8", _EACH, instances)
        self.state = State()
        self.now = 1_700_000_000_000
        environment = ComputeEnvironment(
            _ENVIRONMENT, Provisioning.EC2, instances * VCPUS_EACH, instances * VCPUS_EACH
        )
        self.happen(CreateComputeEnvironment(environment))
        self.happen(CreateJobQueue(JobQueue(_QUEUE, 1, (_ENVIRONMENT,))))
        for number in range(SHAPES):
            container = ContainerSpec("none", Resources(1, 1024 + number), ("true",))
            self.happen(RegisterJobDefinition(JobDefinition(f"shape-{number}", 1, container)))

    def happen(self, *events: Event) -> Round:
        """Let events happen in one round, without scheduling."""
        self.now += 1
        round_ = Round(self.now)
        for event in events:
            handle(self.state, event, round_)
        close(self.state, round_)
        return round_

    def tick(self) -> tuple[float, list[Instruction]]:
        """Schedule once as if something had changed; answer milliseconds and what the plan asks for."""
        self.now += 1
        round_ = Round(self.now)
        self.state.unsettled = True
        offers = {_ENVIRONMENT: (self.offer,)}
        # Processor time, not the wall's: the work is pure, and others may use this machine.
        begin = time.process_time()
        schedule(self.state, offers, round_)
        close(self.state, round_)
        return (time.process_time() - begin) * 1000, round_.instructions

    def launch(self) -> None:
        """Have all instances launched by the scheduler and report them ready."""
        _, instructions = self.tick()
        launched = [it.instance for it in instructions if isinstance(it, LaunchInstance)]
        self.happen(
            *(InstanceReady(instance, Machine(MachineId(f"m-{instance}"), _EACH)) for instance in launched)
        )
        if len(self.state.instances) != self.instances:
            raise RuntimeError(f"{len(self.state.instances)} instances instead of {self.instances}")

    def submit(self, shapes: int, jobs: int, array_size: int | None) -> None:
        """Queue jobs, each with strings of its own as the wire would bring them."""
        for number in range(jobs):
            self.happen(
                SubmitJob(
                    JobId(str(uuid.uuid4())),
                    f"job-{number}",
                    QueueName(str(_QUEUE)),
                    f"shape-{number % shapes}",
                    array_size=array_size,
                )
            )

    def start(self, instructions: list[Instruction]) -> list[StartAttempt]:
        """Report attempts as started."""
        starts = [it for it in instructions if isinstance(it, StartAttempt)]
        self.happen(*(AttemptStarted(it.token, self.now) for it in starts))
        return starts

    def end_one_per_instance(self, running: list[StartAttempt]) -> None:
        """Let one attempt of each instance end, so that as many places become free."""
        by_instance = {it.instance: it for it in running}
        self.happen(*(AttemptExited(it.token, self.now, 0) for it in by_instance.values()))


def measure(kind: str, jobs: int, instances: int) -> dict[str, Any]:
    """Fill a backlog and measure ticks on it: `arrays`, `shapes` (each array of its own) or `singles`."""
    cluster = Cluster(instances)
    with spared_by_the_collector():
        cluster.launch()
    gc.collect()
    before_mib = resident_mib()
    begin = time.process_time()
    cluster.submit(SHAPES if kind == "shapes" else 1, jobs, None if kind == "singles" else ARRAY_SIZE)
    submit_s = time.process_time() - begin
    gc.collect()
    grown_mib = resident_mib() - before_mib
    queued = cluster.state.backlog.count
    first_ms, instructions = cluster.tick()
    running = cluster.start(instructions)
    unreserved = [cluster.tick()[0] for _ in range(20)]
    cluster.now += 120_000  # so long that the scheduler also looks for a place to reserve
    full = [cluster.tick()[0] for _ in range(20)]
    cluster.end_one_per_instance(running)
    refill_ms, placed = cluster.tick()
    return {
        "queued": queued,
        "submit_s": submit_s,
        "grown_mib": grown_mib,
        "first_ms": first_ms,
        "first_placements": len(running),
        "unreserved_ms": unreserved,
        "full_ms": full,
        "refill_ms": refill_ms,
        "refill_placements": len([it for it in placed if isinstance(it, StartAttempt)]),
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
