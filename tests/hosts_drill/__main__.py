"""`python -m tests.hosts_drill --rounds N [--seed S]`: says how each round ended, and fails if one ended wrongly."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.hosts_drill.drill import HostsDrill, Verdict
from tests.hosts_in_a_box import missing_host_part
from tests.tidy.tree import ROOT


def main(kind: type[HostsDrill] = HostsDrill, missing: str = "") -> int:
    """Run a drill; the exit code says whether every round ended as it must."""
    name = f"drill-{kind.engine}"
    parser = argparse.ArgumentParser(
        prog=f"make {name}", description="rounds of misfortune, from their seeds"
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1, help="the first seed; round k has seed + k")
    given = parser.parse_args()
    if missing := missing or missing_host_part():
        print(f"make {name} cannot run here: {missing}")
        return 1
    kept = ROOT / "build" / name
    wrong: list[Verdict] = []
    print(f"seeds {given.seed} to {given.seed + given.rounds - 1}")
    print(f"{'SEED':>6} {'JOBS':>5} {'ATTEMPTS':>9} {'LOST':>5} {'SECONDS':>8}  {'ENDED':6} BLOWS")
    with tempfile.TemporaryDirectory(prefix=f"windfall-{name}-") as place, kind(Path(place)) as drill:
        for seed in range(given.seed, given.seed + given.rounds):
            verdict = drill.play(seed)
            print(
                f"{seed:6} {verdict.jobs:5} {verdict.attempts:9} {verdict.lost:5} {verdict.took_s:8.0f}"
                f"  {'WRONG' if verdict.wrong else 'right':6} {', '.join(verdict.blows)}",
                flush=True,
            )
            if verdict.wrong:
                wrong.append(verdict)
                drill.keep_logs(kept / f"seed-{seed}")
                print("\n".join(f"       {text}" for text in verdict.wrong), flush=True)
    print(f"{given.rounds} rounds, {len(wrong)} wrong")
    for verdict in wrong:
        print(f"the logs of seed {verdict.seed} are in {kept / f'seed-{verdict.seed}'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
