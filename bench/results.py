"""What a measurement answers, and how it is shown, kept and put into the page.

Decides the form of figures; must not know how any of them is measured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass(frozen=True, slots=True)
class Result:
    """One figure beside what it is compared with."""

    name: str
    value: float
    unit: str
    #: What the figure is held against, measured in the same run or known from elsewhere.
    reference: float | None = None
    #: What the reference is.
    beside: str = ""
    #: value / reference, where that says something.
    ratio: float | None = None
    #: What Windfall holds itself to, in words.
    target: str = ""
    #: Whether the target is reached; None where there is none.
    reached: bool | None = None
    note: str = ""
    #: The one-minute load average when the figure was taken: others may use the machine too.
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    #: Single runs and whatever else a reader may want.
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Bench:
    """One run of the benchmarks: how thorough it is, where files go and where progress is told."""

    quick: bool
    workspace: Path
    say: Callable[[str], None]

    def count(self, full: int, quick: int) -> int:
        """How many of something to do."""
        return quick if self.quick else full


def middle(values: Sequence[float]) -> float:
    """The median."""
    return float(median(values))


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]


def figure(value: float | None) -> str:
    """A number with as many digits as it deserves."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def line(result: Result) -> str:
    """One figure for a terminal."""
    verdict = {None: "", True: "reached", False: "NOT reached"}[result.reached]
    beside = f"{result.beside} {figure(result.reference)}" if result.reference is not None else result.beside
    ratio = f"ratio {result.ratio:.2f}" if result.ratio is not None else ""
    target = f"target {result.target}: {verdict}" if result.target else ""
    parts = [f"{result.name}: {figure(result.value)} {result.unit}", beside, ratio, target]
    return " | ".join(part for part in parts if part) + f" | load {result.load:.1f}"


def table(results: Sequence[Result]) -> str:
    """All figures as a Markdown table."""
    rows = ["| what | measured | beside | ratio | target | reached | load |", "|---|---|---|---|---|---|---|"]
    for it in results:
        beside = f"{it.beside}: {figure(it.reference)}" if it.reference is not None else it.beside or "-"
        ratio = f"{it.ratio:.2f}" if it.ratio is not None else "-"
        reached = {None: "-", True: "yes", False: "**no**"}[it.reached]
        cells = (
            it.name,
            f"{figure(it.value)} {it.unit}",
            beside,
            ratio,
            it.target or "-",
            reached,
            f"{it.load:.1f}",
        )
        rows.append(f"| {' | '.join(cells)} |")
    notes = [f"- {it.name}: {it.note}" for it in results if it.note]
    return "\n".join(rows) + ("\n\n" + "\n".join(notes) if notes else "") + "\n"


def write_json(path: Path, machine: dict[str, Any], results: Sequence[Result]) -> None:
    """Keep a run for programs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"machine": machine, "results": [asdict(it) for it in results]}, indent=1) + "\n"
    )


def write_page(page: Path, machine: dict[str, Any], results: Sequence[Result], raw: str) -> None:
    """Replace the measured part of the page; what people wrote around it stays."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    facts = "\n".join(f"- {name}: {value}" for name, value in machine.items())
    part = f"{BEGIN}\n{facts}\n\n{table(results)}\nRaw output:\n\n```text\n{raw.rstrip()}\n```\n{END}"
    page.write_text(before + part + after)
