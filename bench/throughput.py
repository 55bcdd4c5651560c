"""Jobs per second for `true` with its own log, through the API: an array, and single SubmitJob calls.

From the start of the (first) SubmitJob call until DescribeJobs shows all as SUCCEEDED, in turns with the bare
loop.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from bench import bare_loop
from bench.machine import children_cpu_s, cpu_s, wait_until_quiet
from bench.results import Bench, Result, middle
from bench.running_daemon import DEFINITION, QUEUE, RunningDaemon
from bench.wire import Connection, send_all

#: Jobs at once. On two cores 4 at once give about half of this rate, 16 a little less, 128 a little more.
VCPUS = 256
POLL_S = 0.05
LONGEST_S = 300.0
SHARE = 0.8
_MOST_DESCRIBED = 100


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor milliseconds that one job takes, and where."""

    daemon: float
    agent: float
    #: The process of the job itself: exec, ld.so, exit.
    job: float

    @property
    def total(self) -> float:
        """All of it: cores / total is the most that can be done in a second."""
        return self.daemon + self.agent + self.job


@dataclass(slots=True)
class Runs:
    """What was measured of one kind of submission."""

    rates: list[float] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)

    @property
    def cost(self) -> Cost:
        """The median of each part."""
        return Cost(
            *(middle([getattr(cost, part) for cost in self.costs]) for part in ("daemon", "agent", "job"))
        )


def measure(bench: Bench) -> list[Result]:
    """All kinds in one daemon, a few runs each, with a run of the bare loop before each round."""
    bare: list[bare_loop.Pace] = []
    size, singles = bench.count(5_000, 1_000), bench.count(2_000, 500)
    kinds = {f"array of {size:,}": (size, 0), f"{singles:,} SubmitJob calls, 1 connection": (singles, 1)}
    kinds[f"{singles:,} SubmitJob calls, 8 connections"] = (singles, 8)
    found = {name: Runs() for name in kinds}
    with RunningDaemon(bench.workspace, VCPUS) as daemon:
        connection = Connection(daemon.account)
        daemon.declare(connection)
        run_array(daemon, connection, 200)
        for number in range(1, bench.count(3, 2) + 1):
            wait_until_quiet()
            bare.append(best_bare(bench))
            bench.say(
                f"bare loop, round {number}: {bare[-1].per_s:,.0f}/s, {bare[-1].cpu_ms:.2f} ms of CPU each"
            )
            for name, (count, connections) in kinds.items():
                rate, cost = _one(daemon, connection, count, connections)
                found[name].rates.append(rate)
                found[name].costs.append(cost)
                bench.say(
                    f"{name}, round {number}: {rate:,.0f} jobs/s; ms of CPU a job: daemon {cost.daemon:.2f}, "
                    f"agent {cost.agent:.2f}, the job {cost.job:.2f}"
                )
        connection.close()
    return [_result(name, runs, bare) for name, runs in found.items()]


def best_bare(bench: Bench, at_once: int = bare_loop.IN_FLIGHT) -> bare_loop.Pace:
    """The best of three runs: somebody else's load should not shorten the yardstick."""
    return max(bare_loop.run(bench.count(3_000, 1_000), bench.workspace, at_once) for _ in range(3))


def _one(daemon: RunningDaemon, connection: Connection, count: int, connections: int) -> tuple[float, Cost]:
    agent = daemon.agent_pid
    before = (cpu_s(daemon.pid), cpu_s(agent), children_cpu_s(agent))
    rate = (
        run_singles(daemon, connection, count, connections)
        if connections
        else run_array(daemon, connection, count)
    )
    after = (cpu_s(daemon.pid), cpu_s(agent), children_cpu_s(agent))
    used = [(now - then) / count * 1000 for now, then in zip(after, before, strict=True)]
    return rate, Cost(*used)


def _result(name: str, runs: Runs, bare: list[bare_loop.Pace]) -> Result:
    # Each round has a bare loop of its own, so that what others do meanwhile weighs on both.
    ratio = middle([rate / pace.per_s for rate, pace in zip(runs.rates, bare, strict=True)])
    cost, bare_ms = runs.cost, middle([pace.cpu_ms for pace in bare])
    return Result(
        f"jobs/s, {name}",
        middle(runs.rates),
        "jobs/s",
        middle([pace.per_s for pace in bare]),
        "bare posix_spawn loop, processes/s",
        ratio,
        f"{SHARE} of the bare loop",
        ratio >= SHARE,
        f"medians of {len(runs.rates)}, at most {VCPUS} jobs at once. Processor time a job: daemon "
        f"{cost.daemon:.2f} ms, agent {cost.agent:.2f} ms, the job's own process {cost.job:.2f} ms; bare loop "
        f"{bare_ms:.2f} ms in all; {bare_ms / cost.total:.2f} of the bare loop by processor time",
        details={
            "runs": runs.rates,
            "bare": [pace.per_s for pace in bare],
            "cpu_ms": [[it.daemon, it.agent, it.job] for it in runs.costs],
            "bare_cpu_ms": [pace.cpu_ms for pace in bare],
        },
    )


def run_array(daemon: RunningDaemon, connection: Connection, size: int) -> float:
    """Run one array and answer its children per second."""
    logs = daemon.log_count()
    begin = time.perf_counter()
    job_id = connection.call(
        "SubmitJob",
        jobName="array",
        jobQueue=QUEUE,
        jobDefinition=DEFINITION,
        arrayProperties={"size": size},
    )["jobId"]
    described = _wait_for(connection, [job_id])[0]
    rate = size / (time.perf_counter() - begin)
    succeeded = described["arrayProperties"]["statusSummary"]["SUCCEEDED"]
    _check(succeeded, size, "children that SUCCEEDED in the summary")
    _check(_listed(connection, job_id), size, "children that ListJobs shows as SUCCEEDED")
    _check(daemon.log_count() - logs, size, "logs")
    return rate


def run_singles(daemon: RunningDaemon, connection: Connection, count: int, connections: int) -> float:
    """Submit single jobs over so many connections and answer jobs per second until the last has ended."""
    logs = daemon.log_count()
    requests = [
        daemon.account.request(
            "SubmitJob", {"jobName": f"single-{number}", "jobQueue": QUEUE, "jobDefinition": DEFINITION}
        )
        for number in range(count)
    ]
    begin, begin_ms = time.perf_counter(), time.time() * 1000
    ids = [answer["jobId"] for answer in send_all(daemon.account, requests, connections)]
    # Jobs start first come first: when the last few have ended, nearly all have. stoppedAt tells the exact end.
    _wait_for(connection, ids[-10:])
    seen_s = time.perf_counter() - begin
    stopped_ms = 0.0
    for first in range(0, count, _MOST_DESCRIBED):
        described = _wait_for(connection, ids[first : first + _MOST_DESCRIBED])
        stopped_ms = max(stopped_ms, *(job["stoppedAt"] for job in described))
    _check(daemon.log_count() - logs, count, "logs")
    return count / max(seen_s, (stopped_ms - begin_ms) / 1000)


def _wait_for(connection: Connection, ids: list[str]) -> list[dict[str, Any]]:
    deadline = time.monotonic() + LONGEST_S
    while True:
        jobs: list[dict[str, Any]] = connection.call("DescribeJobs", jobs=ids)["jobs"]
        states = {job["status"] for job in jobs}
        if states == {"SUCCEEDED"}:
            _check(len(jobs), len(ids), "described jobs")
            return jobs
        if "FAILED" in states or time.monotonic() > deadline:
            raise RuntimeError(f"jobs did not succeed: {states}")
        time.sleep(POLL_S)


def _listed(connection: Connection, array_id: str) -> int:
    count = 0
    more: dict[str, str] = {}
    while True:
        page = connection.call(
            "ListJobs", arrayJobId=array_id, jobStatus="SUCCEEDED", maxResults=1000, **more
        )
        count += len(page["jobSummaryList"])
        if not page.get("nextToken"):
            return count
        more = {"nextToken": page["nextToken"]}


def _check(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise RuntimeError(f"{found} {what} instead of {expected}: the figure would be wrong")
