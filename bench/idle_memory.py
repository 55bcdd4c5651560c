"""Memory of an idle daemon with its agent and warden, after a little work."""

from __future__ import annotations

import time

from bench.machine import proportional_mib, resident_mib
from bench.results import Bench, Result
from bench.running_daemon import RunningDaemon
from bench.throughput import run_array
from bench.wire import Connection

TARGET_MIB = 120.0
SETTLE_S = 3.0


def measure(bench: Bench) -> list[Result]:
    """Run a small array, wait a moment and look."""
    with RunningDaemon(bench.workspace, 8) as daemon:
        connection = Connection(daemon.account)
        daemon.declare(connection)
        run_array(daemon, connection, 20)
        connection.close()
        time.sleep(SETTLE_S)
        pids = {"daemon": daemon.pid, "agent": daemon.agent_pid, "warden": daemon.warden_pid}
        resident = {name: resident_mib(pid) for name, pid in pids.items()}
        proportional = {name: proportional_mib(pid) for name, pid in pids.items()}
    total = sum(proportional.values())
    each = ", ".join(f"{name} {resident[name]:.0f} (PSS {proportional[name]:.0f})" for name in pids)
    bench.say(f"idle memory in MiB: {each}")
    return [
        Result(
            "memory of an idle daemon, agent and warden (PSS)",
            total,
            "MiB",
            9,
            "HyperQueue, MiB",
            target=f"{TARGET_MIB:.0f} MiB",
            reached=total <= TARGET_MIB,
            note=f"RSS in MiB: {each}; RSS together {sum(resident.values()):.0f}",
            details={"rss": resident, "pss": proportional},
        )
    ]
