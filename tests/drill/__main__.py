"""`python -m tests.drill --runs N [--seed S]`: says how each run ended, and fails if one ended with other bits."""

from __future__ import annotations

import argparse
import sys

from tests.drill.drill import Drill


def main() -> int:
    """Run the drill; the exit code says whether every run ended with the bits of an uninterrupted one."""
    parser = argparse.ArgumentParser(prog="python -m tests.drill", description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1, help="the first seed; run k has seed + k")
    parser.add_argument("--at-once", type=int, default=6)
    given = parser.parse_args()
    with Drill() as drill:
        wrong = drill.play(range(given.seed, given.seed + given.runs), at_once=given.at_once, say=print)
        print(f"{given.runs} runs, {drill.blows:,} blows {dict(drill.struck)}, {len(wrong)} wrong")
        for text in wrong:
            print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
