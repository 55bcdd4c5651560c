"""The entry of the program inside a job: `measure` the suite, or do one or many `task`s.

Writes each result as one line that begins with MARK, so that whatever else a library prints does no harm. Decides
the order of things; must not know how anything is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from windfall.cli.bench.suite.ceilings import measure_ceilings
from windfall.cli.bench.suite.libraries import CPU, GPU
from windfall.cli.bench.suite.measuring import Measurer, opened
from windfall.cli.bench.suite.operations import operations, sweep
from windfall.cli.bench.suite.tasks import run_lines, run_tasks

MARK = "windfall-bench: "


def main(arguments: list[str]) -> int:
    """Do what the command line says; the exit code is 0, or 3 when there is no such device."""
    parser = argparse.ArgumentParser(prog="windfall-bench")
    parser.add_argument("what", choices=["measure", "task", "lines"])
    parser.add_argument("--device", choices=[CPU, GPU], default=CPU)
    parser.add_argument("--libraries", default="numpy", help="comma-separated")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--brief", action="store_true", help="no ceilings, fewer small sizes")
    options = parser.parse_args(arguments)
    libraries = options.libraries.split(",")
    if options.what == "task":
        return run_tasks(libraries[0], options.device, options.first, options.count)
    if options.what == "lines":
        return run_lines(libraries[0], options.device)
    tell({"fact": "machine", "device": options.device, "library": "", "value": machine(options.threads)})
    answered = [
        measure(name, options.device, options.threads, quick=options.quick, brief=options.brief)
        for name in libraries
    ]
    return 0 if any(answered) else 3


def measure(name: str, device: str, threads: int, *, quick: bool, brief: bool = False) -> bool:
    """Run the suite with one library; false when its device does not answer."""
    library = opened(name, device, threads, tell)
    if library is None:
        tell({"fact": "no_device", "device": device, "library": name, "value": True})
        return False
    measurer = Measurer(library, tell, quick=quick)
    for operation in operations(quick=quick):
        measurer.measure(operation)
    # Only now: the first operation above has to be the first that the process ever does.
    measurer.check()
    for operation in sweep(quick=quick or brief):
        measurer.measure_small(operation)
    if not brief:
        measure_ceilings(library, threads, tell, quick=quick)
    return True


def machine(threads: int) -> dict[str, Any]:
    """What the program can see of where it runs."""
    models = {
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        if line.startswith("model name")
    }
    return {
        "cpu": ", ".join(sorted(models)) or platform.machine(),
        "cores": os.cpu_count(),
        "threads": threads,
        "python": platform.python_version(),
        "executable": sys.executable,
        "kernel": platform.release(),
    }


def tell(result: dict[str, Any]) -> None:
    """One result as one line, at once."""
    sys.stdout.write(f"{MARK}{json.dumps(result)}\n")
    sys.stdout.flush()
