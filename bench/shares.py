"""Tick time with 500 active shares and 100,000 queued jobs, beside the same jobs in a queue without shares.

    python -m bench.shares SHARES JOBS

measures one backlog in a fresh process and writes the figures as JSON. A tick must cost shares and heads, not jobs.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import uuid
from typing import Any

from bench.cluster import Cluster
from bench.results import Bench, Result, middle
from bench.running_daemon import ROOT, environment
from windfall.capacity.environments import JobQueue
from windfall.capacity.policies import FairShare, SchedulingPolicy
from windfall.control.commands.policies import CreateSchedulingPolicy
from windfall.control.events import CreateJobQueue, SubmitJob
from windfall.jobs.ids import EnvironmentName, JobId, QueueName

SHARES, INSTANCES = 500, 1_000
TICK_MS = 50.0
_QUEUE, _FIFO = QueueName("fair"), QueueName("queue")


def measure(bench: Bench) -> list[Result]:
    """Full and refilling ticks of a fair-share queue, and of a plain one."""
    jobs = bench.count(100_000, 20_000)
    runs = [_child(SHARES, jobs) for _ in range(bench.count(3, 1))]
    plain = [_child(0, jobs) for _ in range(bench.count(3, 1))]
    full = [tick for run in runs for tick in run["full_ms"]]
    beside = middle([tick for run in plain for tick in run["full_ms"]])
    refill = middle([run["refill_ms"] for run in runs])
    placed = runs[0]["refill_placements"]
    words = f"{jobs:,} queued in {SHARES} shares"
    bench.say(f"tick with {words}: {middle(full):.1f} ms when full; without shares {beside:.1f} ms")
    return [
        Result(
            f"tick, {words}, {INSTANCES:,} instances full",
            middle(full),
            "ms",
            beside,
            "the same without shares, ms",
            middle(full) / beside if beside else None,
            f"{TICK_MS:.0f} ms",
            middle(full) <= TICK_MS,
            f"worst of {len(full)}: {max(full):.1f} ms",
            details={"full_ms": full},
        ),
        Result(
            f"tick that fills {placed:,} free places, {words}",
            refill,
            "ms",
            note=f"{refill / max(1, placed) * 1000:.0f} us a placement, one job at a time by score",
        ),
    ]


def _child(shares: int, jobs: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.shares", str(shares), str(jobs)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _measured(shares: int, jobs: int) -> dict[str, Any]:
    cluster = Cluster(INSTANCES)
    policy = SchedulingPolicy("fair", FairShare(decay_s=3600))
    fair = JobQueue(_QUEUE, 1, (EnvironmentName("cluster"),), policy=policy.name)
    cluster.happen(CreateSchedulingPolicy(policy), CreateJobQueue(fair))
    cluster.launch()
    for number in range(jobs):
        share = f"share{number % shares}" if shares else None
        job_id, queue = JobId(str(uuid.uuid4())), _QUEUE if shares else _FIFO
        cluster.happen(SubmitJob(job_id, f"job-{number}", queue, "shape-0", share=share))
    gc.collect()
    cluster.now += 120_000  # so long that the scheduler also looks for a place to reserve
    _, instructions = cluster.tick()
    running = cluster.start(instructions)
    full = [cluster.tick()[0] for _ in range(20)]
    cluster.end_one_per_instance(running)
    refill_ms, placed = cluster.tick()
    return {"full_ms": full, "refill_ms": refill_ms, "refill_placements": len(cluster.start(placed))}


if __name__ == "__main__":
    print(json.dumps(_measured(int(sys.argv[1]), int(sys.argv[2]))))
