"""From the start of a SubmitJob call to the start of its process on a machine with nothing else to do.

The job is `date`, which writes down when it ran; its own way to the clock (exec, the dynamic linker) is inside
the figure, and inside that of the bare posix_spawn beside it.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.bare_loop import start_latency_ms
from bench.machine import wait_until_quiet
from bench.results import Bench, Result, percentile
from bench.running_daemon import QUEUE, RunningDaemon
from bench.wire import Connection

DATE = "bench-date"
P50_MS, P99_MS = 5.0, 30.0
WARM_UP = 20
#: Between the end of one job and the next submission.
PAUSE_S = 0.02


def measure(bench: Bench) -> list[Result]:
    """Submit one job after another and read from each log when its process ran."""
    count = bench.count(300, 60)
    with RunningDaemon(bench.workspace, 2) as daemon:
        connection = Connection(daemon.account)
        daemon.declare(connection)
        daemon.define(connection, DATE, ["/bin/date", "+%s.%N"])
        busy = wait_until_quiet()
        bare = start_latency_ms(bench.count(100, 30), bench.workspace)
        found = []
        for number in range(count + WARM_UP):
            found.append(_one(daemon, connection))
            if number % 50 == 49:
                bench.say(f"latency: {number + 1} jobs, p50 so far {percentile(found, 50):.1f} ms")
        connection.close()
    found = found[WARM_UP:]
    note = f"{count} jobs one after another; others used {busy:.0%} of the processors just before"
    details = {"runs": [round(value, 3) for value in found], "bare": [round(value, 3) for value in bare]}
    return [
        _result("SubmitJob to process start, p50", found, bare, 50, P50_MS, note, details),
        _result("SubmitJob to process start, p99", found, bare, 99, P99_MS, "", {}),
    ]


def _result(
    name: str,
    found: list[float],
    bare: list[float],
    percent: float,
    target_ms: float,
    note: str,
    details: dict[str, list[float]],
) -> Result:
    value, reference = percentile(found, percent), percentile(bare, percent)
    return Result(
        name,
        value,
        "ms",
        reference,
        "bare posix_spawn, ms",
        value / reference,
        f"{target_ms:.0f} ms",
        value <= target_ms,
        note,
        details=dict(details),
    )


def _one(daemon: RunningDaemon, connection: Connection) -> float:
    begin = time.time()
    job_id = connection.call("SubmitJob", jobName="date", jobQueue=QUEUE, jobDefinition=DATE)["jobId"]
    time.sleep(PAUSE_S)
    while True:
        job = connection.call("DescribeJobs", jobs=[job_id])["jobs"][0]
        if job["status"] == "SUCCEEDED":
            break
        if job["status"] == "FAILED":
            raise RuntimeError(f"the job failed: {job.get('statusReason')}")
        time.sleep(0.01)
    task = Path(job["container"]["logStreamName"]).name
    ran = float((daemon.data / "logs" / f"{task}.log").read_text())
    time.sleep(PAUSE_S)
    return (ran - begin) * 1000
