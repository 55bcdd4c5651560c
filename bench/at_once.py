"""Jobs per second with few and with many jobs at once, beside the bare loop and HyperQueue with as many at once.

With as many jobs at once as cores, every moment between the end of a job and the start of the next is idle time; with
256 at once there is always something to do. HyperQueue runs where HYPERQUEUE_PYTHON names a Python that has it.
"""

from __future__ import annotations

import os
import subprocess

from bench.bare_loop import Pace
from bench.machine import wait_until_quiet
from bench.results import Bench, Result, middle
from bench.running_daemon import ROOT, RunningDaemon
from bench.throughput import best_bare, run_array
from bench.wire import Connection

#: Jobs at once, and the share of the bare loop to reach.
SHARES = {2: 0.6, 4: 0.7, 16: 0.8, 256: 0.8}


def measure(bench: Bench) -> list[Result]:
    """A daemon of its own for each number of jobs at once."""
    return [_measured(bench, at_once, share) for at_once, share in SHARES.items()]


def _measured(bench: Bench, at_once: int, share: float) -> Result:
    size, rates, paces = bench.count(3_000, 600), [], []
    hyperqueue: list[float] = []
    with RunningDaemon(bench.workspace, at_once) as daemon:
        connection = Connection(daemon.account)
        daemon.declare(connection)
        run_array(daemon, connection, 200)
        for _ in range(bench.count(3, 2)):
            wait_until_quiet()
            paces.append(best_bare(bench, at_once))
            rates.append(run_array(daemon, connection, size))
            hyperqueue += _hyperqueue(bench, at_once)
        connection.close()
    ratio = _ratio(rates, paces)
    words = f"{at_once} jobs at once"
    bench.say(f"{words}: {middle(rates):,.0f} jobs/s, {ratio:.2f} of the bare loop")
    beside = "HyperQueue was not there"
    if hyperqueue:
        beside = f"HyperQueue {middle(hyperqueue):,.0f}/s, {_ratio(hyperqueue, paces):.2f} of the bare loop"
    return Result(
        f"jobs/s, array of {size:,}, {words}",
        middle(rates),
        "jobs/s",
        middle([pace.per_s for pace in paces]),
        f"bare posix_spawn loop, {at_once} at once, processes/s",
        ratio,
        f"{share} of the bare loop",
        ratio >= share,
        f"medians of {len(rates)}; {beside}",
        details={"runs": rates, "bare": [pace.per_s for pace in paces], "hyperqueue": hyperqueue},
    )


def _ratio(rates: list[float], paces: list[Pace]) -> float:
    # Each round has a bare loop of its own, so that what others do meanwhile weighs on both.
    return middle([rate / pace.per_s for rate, pace in zip(rates, paces, strict=True)])


def _hyperqueue(bench: Bench, at_once: int) -> list[float]:
    """Tasks a second of HyperQueue in one run; nothing where it is not installed."""
    python = os.environ.get("HYPERQUEUE_PYTHON")
    if python is None:
        return []
    script = ROOT / "bench" / "hyperqueue_loop.py"
    count = bench.count(2_000, 500)
    command = [python, str(script), str(at_once), str(count), str(bench.workspace)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(done.stdout.splitlines()[-1])]
