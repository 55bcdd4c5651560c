"""Writes a synthetic trace of GPU jobs for `windfall simulate`: made up, not recorded anywhere.

    python examples/make_trace.py [JOBS] [SEED] > trace.csv

Jobs arrive in working hours, most are short and small, a few are long and large, and one of four users submits most.
"""

from __future__ import annotations

import csv
import random
import sys

DAY_S = 24 * 3600
COLUMNS = ("submit_s", "length_s", "cpus", "gpus", "memory_mib", "user", "priority")


def rows(count: int, seed: int) -> list[tuple[object, ...]]:
    """The jobs, by the time of their submission."""
    rng = random.Random(seed)
    jobs = []
    for _ in range(count):
        hour = min(23.99, max(0.0, rng.gauss(14, 4)))
        submit_s = int(rng.randrange(2) * DAY_S + hour * 3600)
        length_s = min(8 * 3600, max(20, int(rng.lognormvariate(6.3, 1.4))))
        gpus = rng.choices((0, 1, 2, 4), (20, 55, 15, 10))[0]
        user = rng.choices(("ann", "bob", "cem", "dia"), (55, 20, 15, 10))[0]
        jobs.append((submit_s, length_s, max(2, 8 * gpus), gpus, 4096 * max(1, gpus), user, rng.randrange(3)))
    return sorted(jobs)


def main() -> None:
    """Write the trace to standard output."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows(count, int(sys.argv[2]) if len(sys.argv) > 2 else 1))


if __name__ == "__main__":
    main()
