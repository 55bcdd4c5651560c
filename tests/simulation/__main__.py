"""`python -m tests.simulation --seed N` replays one world with its trace; `--seeds K` runs many and sums up."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.store import BrokenPromise
from tests.simulation.world import STEPS, Outcome, run


def attempt(seed: int, steps: int) -> Outcome | str:
    """The outcome of a world, or what was broken in it."""
    try:
        return run(seed, steps)
    except BrokenPromise as broken:
        return str(broken)


def _some(arguments: tuple[list[int], int]) -> list[Outcome | str]:
    seeds, steps = arguments
    return [attempt(seed, steps) for seed in seeds]


def run_many(first: int, count: int, steps: int, processes: int) -> int:
    """Run many worlds, print one line of summary and the first failure; the exit status."""
    began = time.monotonic()
    seeds = range(first, first + count)
    chunks = [(list(seeds[start : start + 25]), steps) for start in range(0, count, 25)]
    outcomes: list[Outcome | str] = []
    with ProcessPoolExecutor(processes) as pool:
        for part in pool.map(_some, chunks):
            outcomes += part
    kept = [outcome for outcome in outcomes if isinstance(outcome, Outcome)]
    broken = [outcome for outcome in outcomes if isinstance(outcome, str)]
    print(
        f"{len(kept)} of {count} worlds kept every promise in {time.monotonic() - began:.1f} s:"
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
    parser.add_argument("--steps", type=int, default=STEPS, help="how long things go wrong in a world")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--quiet", action="store_true", help="with --seed: print no trace")
    parser.add_argument("--verbose", action="store_true", help="with --seed: print the trace (the default)")
    options = parser.parse_args()
    if options.seed is None:
        return run_many(options.first, options.seeds, options.steps, options.processes)
    try:
        print(run(options.seed, options.steps, tell=None if options.quiet else print))
    except BrokenPromise as broken:
        print(broken, file=sys.stderr)
        cause = broken.__cause__
        if cause is not None and not isinstance(cause, BrokenPromise):
            raise
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
