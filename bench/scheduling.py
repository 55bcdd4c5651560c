"""Tick time and memory with a million queued jobs and thousands of instances; each backlog in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from bench.cluster import ARRAY_SIZE, SHAPES
from bench.results import Bench, Result, middle
from bench.running_daemon import ROOT, environment

TICK_MS = 50.0
ARRAYS_MB = 100.0
SINGLE_BYTES = 2_000
INSTANCES, MANY_INSTANCES = 1_000, 10_000


def measure(bench: Bench) -> list[Result]:
    """Arrays of one shape, arrays of a hundred shapes, and single jobs."""
    arrays, singles = bench.count(100, 20), bench.count(100_000, 20_000)
    results: list[Result] = []
    queued = f"{arrays * ARRAY_SIZE:,} queued in {arrays} arrays of"
    for kind, jobs, instances, words in (
        ("arrays", arrays, INSTANCES, f"{queued} one shape"),
        ("shapes", arrays, INSTANCES, f"{queued} {min(arrays, SHAPES)} shapes"),
        ("singles", singles, INSTANCES, f"{singles:,} queued as singles"),
        ("shapes", arrays, bench.count(MANY_INSTANCES, 2_000), f"{queued} {min(arrays, SHAPES)} shapes"),
    ):
        runs = [_child(kind, jobs, instances) for _ in range(bench.count(3, 1))]
        results += _results(kind, f"{words}, {instances:,} instances", jobs, runs)
        full = middle([tick for run in runs for tick in run["full_ms"]])
        bench.say(
            f"tick with {words} on {instances:,} instances: {full:.1f} ms when full; grew by {_grown(runs):.1f} MiB"
        )
    return results


def _child(kind: str, jobs: int, instances: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.cluster", kind, str(jobs), str(instances)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _grown(runs: list[dict[str, Any]]) -> float:
    return middle([run["grown_mib"] for run in runs])


def _results(kind: str, words: str, jobs: int, runs: list[dict[str, Any]]) -> list[Result]:
    full = [tick for run in runs for tick in run["full_ms"]]
    unreserved = middle([tick for run in runs for tick in run["unreserved_ms"]])
    refill = middle([run["refill_ms"] for run in runs])
    placed = runs[0]["refill_placements"]
    first, first_placed = middle([run["first_ms"] for run in runs]), runs[0]["first_placements"]
    results = [
        Result(
            f"tick, {words} full",
            middle(full),
            "ms",
            target=f"{TICK_MS:.0f} ms",
            reached=middle(full) <= TICK_MS,
            note=f"looks for a place to reserve; {unreserved:.1f} ms while no job has waited long enough for that; "
            f"worst of {len(full)}: {max(full):.1f} ms",
            details={"full_ms": full},
        ),
        Result(
            f"tick that fills {placed:,} free places, {words}",
            refill,
            "ms",
            note=f"{refill / max(1, placed) * 1000:.0f} us a placement; the first tick placed {first_placed:,} jobs "
            f"in {first:.0f} ms",
        ),
    ]
    grown = _grown(runs)
    rate = middle([run["queued"] / run["submit_s"] for run in runs])
    if kind == "singles":
        each = grown * 1024 * 1024 / jobs
        results.append(
            Result(
                f"memory of a queued single job ({jobs:,} queued)",
                each,
                "bytes",
                2_300,
                "HyperQueue, bytes",
                each / 2_300,
                f"{SINGLE_BYTES:,} bytes",
                each <= SINGLE_BYTES,
                f"growth of RSS over the submissions; the reactor alone takes {rate:,.0f} submissions/s",
            )
        )
    elif kind == "arrays":
        results.append(
            Result(
                f"memory of {words}",
                grown * 1.048576,
                "MB",
                target=f"{ARRAYS_MB:.0f} MB for 1,000,000",
                reached=grown * 1.048576 <= ARRAYS_MB,
                note=f"growth of RSS; the reactor alone queues {rate:,.0f} children/s",
            )
        )
    return results
