"""`python -m bench [NAME ...] [--quick] [--write-docs]`: measures, shows figures as they come, keeps them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from bench import (
    at_once,
    changeover,
    deadlines,
    idle_memory,
    isolation,
    latency,
    page,
    page_browser,
    ray_door,
    restart,
    scheduling,
    shares,
    step_cost,
    submit_rate,
    sync,
    takeover,
    throughput,
    usher,
    warm_workers,
)
from bench.machine import describe
from bench.results import Bench, Result, line, table, write_json, write_page
from bench.running_daemon import ROOT
from bench.workspace import Workspace, create_us

MEASUREMENTS: dict[str, Callable[[Bench], list[Result]]] = {
    "throughput": throughput.measure,
    "at-once": at_once.measure,
    "latency": latency.measure,
    "submit": submit_rate.measure,
    "scheduling": scheduling.measure,
    "shares": shares.measure,
    "deadlines": deadlines.measure,
    "restart": restart.measure,
    "takeover": takeover.measure,
    "memory": idle_memory.measure,
    "isolation": isolation.measure,
    "page": page.measure,
    "page-browser": page_browser.measure,
    "changeover": changeover.measure,
    "step": step_cost.measure,
    "sync": sync.measure,
    "warm": warm_workers.measure,
    "usher": usher.measure,
    "ray": ray_door.measure,
}


def main(arguments: list[str]) -> int:
    """Run what was asked for. A missed target is told, not an error: figures are for people to judge."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure Windfall beside a bare posix_spawn loop on this machine."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(MEASUREMENTS)} (all)")
    parser.add_argument("--quick", action="store_true", help="smaller numbers: minutes become half a minute")
    parser.add_argument("--write-docs", action="store_true", help="put the figures into docs/benchmarks.md")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in MEASUREMENTS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(MEASUREMENTS)}")
    workspace = Workspace()
    raw: list[str] = []
    begin = time.monotonic()

    def say(text: str) -> None:
        raw.append(f"{time.monotonic() - begin:6.1f} s  {text}")
        print(raw[-1], flush=True)

    machine = describe(workspace.path, " ".join(["python -m bench", *arguments]))
    machine["creating a file"] = f"{workspace.create_us:.0f} us of processor time at the start"
    for name, value in machine.items():
        print(f"{name}: {value}")
    results: list[Result] = []
    try:
        for name in given.names or MEASUREMENTS:
            say(f"--- {name}")
            for result in MEASUREMENTS[name](Bench(given.quick, workspace.path, say)):
                results.append(result)
                say(line(result))
    finally:
        machine["creating a file"] += f", {create_us(workspace.path):.0f} us at the end"
        workspace.remove()
        if results:
            write_json(ROOT / "build" / "bench" / f"{time.strftime('%Y%m%d-%H%M%S')}.json", machine, results)
    print("\n" + table(results))
    if given.write_docs:
        write_page(ROOT / "docs" / "benchmarks.md", machine, results, "\n".join(raw))
    missed = [result.name for result in results if result.reached is False]
    if missed:
        print(f"out of reach here: {'; '.join(missed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
