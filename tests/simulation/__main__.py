"""`python -m tests.simulation --seed N` replays one world with its trace; `--seeds K` runs many and sums up.

With `--fleet` these are worlds with many machines; without it every tenth is run as one besides.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.simulation import fleet_worlds
from tests.simulation.fleet_worlds import run_fleet
from tests.simulation.store import BrokenPromise
from tests.simulation.world import STEPS, Outcome, run


def attempt(seed: int, steps: int, *, fleet: bool) -> Outcome | str:
    """The outcome of a world, or what was broken in it."""
    try:
        return run_fleet(seed, steps) if fleet else run(seed, steps)
    except BrokenPromise as broken:
        return str(broken)


def _some(arguments: tuple[list[int], int, bool]) -> list[Outcome | str]:
    seeds, steps, fleet = arguments
    logging.disable(logging.WARNING)  # Machines are lost all the time there.
    return [attempt(seed, steps, fleet=fleet) for seed in seeds]


def run_many(seeds: range, steps: int, processes: int, *, fleet: bool) -> int:
    """Run many worlds, print one line of summary and the first failure; the exit status."""
    began = time.monotonic()
    count, size = len(seeds), 5 if fleet else 25
    chunks = [(list(seeds[start : start + size]), steps, fleet) for start in range(0, count, size)]
    outcomes: list[Outcome | str] = []
    with ProcessPoolExecutor(processes) as pool:
        for part in pool.map(_some, chunks):
            outcomes += part
    kept = [outcome for outcome in outcomes if isinstance(outcome, Outcome)]
    broken = [outcome for outcome in outcomes if isinstance(outcome, str)]
    kind = "worlds with many machines" if fleet else "worlds"
    print(
        f"{len(kept)} of {count} {kind} kept every promise in {time.monotonic() - began:.1f} s:"
        f" {sum(o.jobs for o in kept):,} jobs, {sum(o.attempts for o in kept):,} attempts,"
        f" {sum(o.crashes for o in kept):,} daemon crashes, {sum(o.events for o in kept):,} events"
    )
    for text in broken[:1]:
        print(f"first failure: {text}")
    if len(broken) > 1:
        print("also:", " ".join(text.split(":")[0].removeprefix("seed ") for text in broken[1:30]))
    return 1 if broken else 0


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this world and print all that happens in it")
    parser.add_argument("--seeds", "--runs", type=int, default=200, help="how many worlds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed of --seeds")
    parser.add_argument("--steps", type=int, help="how long things go wrong in a world")
    parser.add_argument("--fleet", action="store_true", help="worlds with many machines")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--quiet", action="store_true", help="with --seed: print no trace")
    parser.add_argument("--verbose", action="store_true", help="with --seed: print the trace (the default)")
    options = parser.parse_args()
    if options.seed is None:
        seeds = range(options.first, options.first + options.seeds)
        broken = 0
        if not options.fleet:
            broken = run_many(seeds, options.steps or STEPS, options.processes, fleet=False)
            seeds = seeds[: max(1, len(seeds) // 10)]
        return run_many(seeds, options.steps or fleet_worlds.STEPS, options.processes, fleet=True) or broken
    try:
        tell = None if options.quiet else print
        if options.fleet:
            print(run_fleet(options.seed, options.steps or fleet_worlds.STEPS, tell=tell))
        else:
            print(run(options.seed, options.steps or STEPS, tell=tell))
    except BrokenPromise as broken:
        print(broken, file=sys.stderr)
        cause = broken.__cause__
        if cause is not None and not isinstance(cause, BrokenPromise):
            raise
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
