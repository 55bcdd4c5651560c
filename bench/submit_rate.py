"""Signed SubmitJob calls per second that a daemon makes durable, while nothing can run.

The environment is DISABLED, so that only the way from the socket to the disk is measured. Requests are signed
beforehand, so that the client hardly costs anything.
"""

from __future__ import annotations

import time

from bench.machine import cpu_s, resident_mib
from bench.results import Bench, Result, middle
from bench.running_daemon import DEFINITION, QUEUE, RunningDaemon
from bench.wire import Connection, send_all

CONNECTIONS = 16
TARGET = 1_000


def measure(bench: Bench) -> list[Result]:
    """Send several thousand calls over 16 connections, three times."""
    count = bench.count(5_000, 1_000)
    rates, per_core, growth_kib = [], [], []
    with RunningDaemon(bench.workspace, 2) as daemon:
        connection = Connection(daemon.account)
        daemon.declare(connection, enabled=False)
        _run(daemon, 500)
        for number in range(1, bench.count(3, 2) + 1):
            before_mib, before_s = resident_mib(daemon.pid), cpu_s(daemon.pid)
            seconds = _run(daemon, count)
            rates.append(count / seconds)
            per_core.append(count / (cpu_s(daemon.pid) - before_s))
            growth_kib.append((resident_mib(daemon.pid) - before_mib) * 1024 / count)
            bench.say(f"SubmitJob, round {number}: {rates[-1]:,.0f} calls/s, {per_core[-1]:,.0f} per core")
        connection.close()
    details = {"calls/s": rates, "calls/s per core": per_core, "KiB of RSS per job": growth_kib}
    return [
        Result(
            "signed, durable SubmitJob calls",
            middle(rates),
            "calls/s",
            50,
            "AWS Batch's limit, calls/s",
            target=f"{TARGET:,}/s",
            reached=middle(rates) >= TARGET,
            note=f"{CONNECTIONS} connections, client on the same machine, {count:,} calls a run",
            details=details,
        ),
        Result(
            "the same per second of processor time of the daemon",
            middle(per_core),
            "calls/s",
            target=f"{TARGET:,}/s on one core",
            reached=middle(per_core) >= TARGET,
            note=f"{1000 / middle(per_core):.2f} ms a call; the daemon's memory grew by "
            f"{middle(growth_kib):.1f} KiB a queued job, its caches included",
        ),
    ]


def _run(daemon: RunningDaemon, count: int) -> float:
    requests = [
        daemon.account.request(
            "SubmitJob", {"jobName": f"queued-{number}", "jobQueue": QUEUE, "jobDefinition": DEFINITION}
        )
        for number in range(count)
    ]
    begin = time.perf_counter()
    answers = send_all(daemon.account, requests, CONNECTIONS)
    seconds = time.perf_counter() - begin
    if len({answer["jobId"] for answer in answers}) != count:
        raise RuntimeError("the daemon gave fewer job ids than calls")
    return seconds
