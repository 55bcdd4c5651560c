"""`python -m bench.spot [TRACES] [--quick] [--write-docs]`: deadline policies over recorded spot capacity.

The real policy code, beside the published ones and the optimum in hindsight, on time that no table was fitted to.
Without traces it uses synthetic ones, which say whether it works and nothing about real markets.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

from bench.results import percentile
from bench.running_daemon import ROOT
from bench.spot.cells import NAMES, Bill, ZoneSet, bills, varied
from bench.spot.traces import Trace, read_trace, synthetic_traces

PAGE = ROOT / "docs/deadlines.md"
BEGIN, END = "<!-- written by make bench-spot -->", "<!-- end of bench-spot -->"
DEADLINES = (1.05, 1.25, 1.5, 2.0)
CHANGEOVERS_MIN = (4, 6, 12, 30)
#: The cells of the first goal.
GOAL_DEADLINES, GOAL_CHANGEOVER = (1.05, 1.25, 1.5), 12


def main(arguments: list[str]) -> int:
    """Compare, print, and put the tables into the page where asked."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.spot", description="Compare deadline policies on spot traces."
    )
    parser.add_argument("traces", nargs="?", type=Path, help="the directory with the recorded traces")
    parser.add_argument("--quick", action="store_true", help="two zones of a set and two changeovers")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/deadlines.md")
    given = parser.parse_args(arguments)
    sets = zone_sets(given.traces)
    changeovers: Sequence[int] = CHANGEOVERS_MIN
    if given.quick:
        sets = [ZoneSet(each.name, each.zones[:2], each.spot_price) for each in sets]
        changeovers = (4, 12)
    with ProcessPoolExecutor(2) as pool:
        pieces = [
            (each, zone, minutes) for each, minutes in product(sets, changeovers) for zone in each.zones
        ]
        jobs = [
            pool.submit(bills, each.name, [zone], each.spot_price, minutes, DEADLINES)
            for each, zone, minutes in pieces
        ]
        pooled = [
            (
                name,
                pool.submit(bills, each.name, _named(each, zones), each.spot_price, 12, (1.25,)),
                each,
                zones,
            )
            for each in sets
            for name, zones in each.pools
        ]
        varying = [
            pool.submit(varied, [zone], each.spot_price, 12, DEADLINES)
            for each in sets
            for zone in each.zones
        ]
        single = [bill for job in jobs for bill in job.result()]
        text = "\n".join(
            (
                *_cells_table(single, sets, changeovers),
                "",
                *_pools_table(
                    single, [(name, job.result(), each, zones) for name, job, each, zones in pooled]
                ),
                "",
                *_summary(single, [job.result() for job in varying]),
            )
        )
    print(text)
    if given.write_docs:
        page = PAGE.read_text()
        before, _, rest = page.partition(BEGIN)
        PAGE.write_text(before + BEGIN + "\n" + text + "\n" + END + rest.partition(END)[2])
    return int(any(bill.missed for bill in single))


def zone_sets(root: Path | None) -> list[ZoneSet]:
    """The sets of zones of a directory of traces, or a synthetic one."""
    if root is None:
        zones = tuple(synthetic_traces(seed=15, zones=4, days=30))
        return [ZoneSet("synthetic", zones, 0.3, (("both", tuple(zone.name for zone in zones[:2])),))]
    aws = tuple(read_trace(path) for path in sorted((root / "aws_v100_2023").glob("*.json")))
    files = sorted((root / "gcp_h100_2025").glob("*.json"))
    if not aws or not files:
        sys.exit(
            f"{root} has no traces in aws_v100_2023/ and gcp_h100_2025/; see docs/deadlines.md for their form"
        )
    regions = sorted({zone.name[:-1] for zone in aws})
    west = tuple(path.stem for path in files if path.stem.startswith("us-west1"))
    return [
        ZoneSet(
            "AWS V100 2023",
            aws,
            0.318,
            tuple(
                (region, tuple(zone.name for zone in aws if zone.name[:-1] == region)) for region in regions
            ),
        ),
        ZoneSet("GCP H100", tuple(read_trace(path) for path in files), 0.22, (("H100 us-west1", west),)),
        ZoneSet("GCP 8 x H100", tuple(read_trace(path, 8) for path in files), 0.22),
    ]


def _named(zone_set: ZoneSet, names: Sequence[str]) -> list[Trace]:
    return [zone for zone in zone_set.zones if zone.name in names]


def _means(some: Iterable[Bill]) -> tuple[float, ...]:
    costs = list(zip(*(bill.costs for bill in some), strict=True))
    return tuple(sum(column) / len(column) for column in costs)


def _gaps(means: Sequence[float]) -> tuple[float, float, float]:
    """How much more than the optimum Uniform Progress and Windfall pay, and the part of the first that is closed."""
    by = dict(zip(NAMES, means, strict=True))
    uniform, own, least = by["uniform"], by["windfall"], by["omniscient"]
    closed = (uniform - own) / (uniform - least) if uniform > least else 0.0
    return uniform / least - 1, own / least - 1, closed


def _cells_table(single: list[Bill], sets: Sequence[ZoneSet], changeovers: Sequence[int]) -> list[str]:
    head = ("capacity", "deadline / work", "changeover", "tasks", "Greedy", "Uniform Progress", "UP-loose")
    rows = _headed(*head, "**Windfall**", "optimum", "gap of UP", "gap of Windfall", "closed")
    for each, minutes, deadline in product(sets, changeovers, DEADLINES):
        some = [bill for bill in single if _is_of(bill, each.name, minutes, deadline)]
        if not some:
            continue
        means = _means(some)
        uniform, own, closed = _gaps(means)
        figures = [f"{mean:.3f}" for mean in means]
        figures[NAMES.index("windfall")] = f"**{figures[NAMES.index('windfall')]}**"
        rows.append(
            f"| {each.name} | {deadline} | {minutes} min | {len(some)} | {' | '.join(figures)} |"
            f" {uniform:.1%} | {own:.1%} | {closed:.0%} |"
        )
    return rows


def _is_of(bill: Bill, set_name: str, minutes: int, deadline: float) -> bool:
    cell = bill.cell
    return (cell.set_name, cell.changeover_min, cell.deadline) == (set_name, minutes, deadline)


def _pools_table(
    single: list[Bill], pooled: list[tuple[str, list[Bill], ZoneSet, tuple[str, ...]]]
) -> list[str]:
    head = ("pool (deadline / work 1.25, 12 min)", "zones", "one zone: UP", "one zone: optimum")
    rows = _headed(*head, "pool: UP", "**pool: Windfall**", "pool: optimum")
    for name, some, each, zones in pooled:
        apart = [bill for bill in single if _is_of(bill, each.name, 12, 1.25) and bill.zone in zones]
        one, all_of = (
            dict(zip(NAMES, _means(apart), strict=True)),
            dict(zip(NAMES, _means(some), strict=True)),
        )
        rows.append(
            f"| {name} | {len(zones)} | {one['uniform']:.3f} | {one['omniscient']:.3f} | {all_of['uniform']:.3f} |"
            f" **{all_of['windfall']:.3f}** | {all_of['omniscient']:.3f} |"
        )
    return rows


def _summary(single: list[Bill], varying: list[tuple[int, int]]) -> list[str]:
    cells: dict[tuple[str, float, int], list[Bill]] = {}
    for bill in single:
        cell = bill.cell
        cells.setdefault((cell.set_name, cell.deadline, cell.changeover_min), []).append(bill)
    gaps = {key: _gaps(_means(some)) for key, some in cells.items()}
    goal = [gap[1] for key, gap in gaps.items() if key[1] in GOAL_DEADLINES and key[2] == GOAL_CHANGEOVER]
    short = [gap[1] for key, gap in gaps.items() if key[1] >= 1.25 and key[2] == 4]
    every = [_means(some) for some in cells.values()]
    uniform = sum(means[1] - means[4] for means in every)
    closed = sum(means[1] - means[3] for means in every) / uniform if uniform else 0.0
    regrets = [percentile([bill.costs[3] - bill.costs[1] for bill in some], 95) for some in cells.values()]
    tasks, missed = (sum(column) for column in zip(*varying, strict=True))
    every_miss, worse = sum(bill.missed for bill in single), sum(gap[1] > gap[0] for gap in gaps.values())
    mean_closed = _mean([gap[2] for gap in gaps.values()])
    return [
        *_headed("what", "goal", "reached"),
        f"| deadlines missed, {len(single)} tasks by four policies within the shield | 0 | {every_miss} |",
        f"| deadlines missed when changeovers vary up to the shield's, {tasks} tasks | 0 | {missed} |",
        f"| mean gap to the optimum, changeover 12 min, deadline / work 1.05 to 1.5 | 8 % | {_mean(goal):.1%} |",
        f"| mean gap to the optimum, changeover 4 min, deadline / work from 1.25 | 2 % | {_mean(short):.1%} |",
        f"| closed of Uniform Progress's gap, mean of the {len(gaps)} cells | 50 % | {mean_closed:.0%} |",
        f"| closed of Uniform Progress's gap, all cells together | 50 % | {closed:.0%} |",
        f"| cells in which Windfall costs more than Uniform Progress | 0 | {worse} |",
        (
            f"| regret against Uniform Progress, 95th percentile, worst cell, of the on-demand cost | 5 % |"
            f" {max(regrets):.1%} |"
        ),
    ]


def _headed(*names: str) -> list[str]:
    return ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
