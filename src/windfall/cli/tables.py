"""Tables and coloured words that fit the terminal they are printed in.

Ids are never cut: they are shown whole where there is room and else as a prefix that still names one row.
Other people's texts are never markup and never move the cursor. Must not know what the rows mean.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windfall.cli.notes import note

#: Where output is read by a program there is no edge to fit.
UNBOUNDED = 10_000
SHORT_ID = 8
#: A column is not cut to less than this.
NARROWEST = 8
#: A text that folds stands in its column from this width on, and else below its row.
NARROWEST_FOLDED = 30
GAP = "  "

STATE_STYLES = {
    "SUBMITTED": "cyan",
    "PENDING": "cyan",
    "RUNNABLE": "yellow",
    "SCHEDULED": "blue",
    "STARTING": "blue",
    "RUNNING": "blue",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "ENABLED": "green",
    "DISABLED": "yellow",
}

Cell = str | Text


@dataclass(frozen=True, slots=True)
class Column:
    """A column's title, and what it does in a narrow terminal: stays, is cut, goes, or folds (the last one)."""

    title: str
    shrinks: bool = False
    right: bool = False
    #: Those with the highest number go first, the last ones first among equals; 0 stays.
    optional: int = 0
    folds: bool = False
    #: The width that it is cut to before an optional column goes.
    least: int = 0


class _Stdout(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to main, which knows the exit code for it."""
        raise BrokenPipeError


def console() -> Console:
    """The console of stdout: colours on a terminal only, and never with NO_COLOR."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else UNBOUNDED
    return _Stdout(highlight=False, markup=False, emoji=False, width=width)


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
    """Print rows under their titles, as wide as the terminal, and name the columns that had no room there."""
    out = console()
    lines = table_lines(columns, rows, out.width)
    for line in lines:
        # The terminal may still be narrower than what must not be cut; then it breaks the line, not we.
        out.print(line, soft_wrap=True)
    shown = lines[0].plain
    left_out = [column.title for column in columns if column.optional and column.title not in shown]
    if left_out:
        note(f"left out for lack of width: {', '.join(left_out)} (a wider terminal or --json shows them)")


def print_indented(text: str, indent: int = len(GAP), style: str = "") -> None:
    """Print a text some columns in, cut between words."""
    out = console()
    for line in Text(plain(text), style=style).wrap(out, max(NARROWEST_FOLDED, out.width - indent)):
        line.rstrip()
        out.print(Text(" " * indent).append(line), soft_wrap=True)


def table_lines(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], room: int) -> list[Text]:
    """The lines of a table, its titles first, in that much room."""
    if columns[-1].folds:
        return _folded(columns, [list(row) for row in rows], room)
    cells = [[cell if isinstance(cell, Text) else Text(plain(cell)) for cell in row] for row in rows]
    widths = [
        max([len(column.title), *(row[number].cell_len for row in cells)])
        for number, column in enumerate(columns)
    ]
    shown_widths = fitted(columns, widths, room)
    titles = [Text(column.title, style="bold") for column in columns]
    lines = []
    for row in [titles, *cells]:
        line = Text()
        for number, width in shown_widths.items():
            cell = row[number].copy()
            cell.truncate(width, overflow="ellipsis")
            cell.align("right" if columns[number].right else "left", width)
            line.append(cell).append(GAP)
        line.rstrip()
        lines.append(line)
    return lines


def _folded(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], room: int) -> list[Text]:
    """The lines of a table whose last column is shown whole: beside the others, or below them if it has no room."""
    heads = table_lines(columns[:-1], [row[:-1] for row in rows], room)
    texts = [cell if isinstance(cell, Text) else Text(plain(cell)) for cell in (row[-1] for row in rows)]
    beside = max(head.cell_len for head in heads) + len(GAP)
    fits = room - beside >= min(NARROWEST_FOLDED, max([len(columns[-1].title), *map(len, texts)]))
    indent = beside if fits else len(GAP)
    lines = []
    for head, text in zip(
        heads, [Text(columns[-1].title if fits else "", style="bold"), *texts], strict=True
    ):
        parts = [
            part for part in text.wrap(console(), max(NARROWEST_FOLDED, room - indent)) if part.plain.strip()
        ]
        if fits and parts:
            head.pad_right(indent - head.cell_len)
            head.append(parts.pop(0))
        lines.append(head)
        lines += [Text(" " * indent).append(part) for part in parts]
    for line in lines:
        line.rstrip()
    return lines


def fitted(columns: Sequence[Column], widths: Sequence[int], room: int) -> dict[int, int]:
    """The columns to show, by number, with their widths.

    The widest shrink first, down to what each would keep; then optional ones go; then the
    others shrink further, those first that would keep least.
    """
    shown_widths = dict(enumerate(widths))
    while sum(shown_widths.values()) + len(GAP) * (len(shown_widths) - 1) > room:
        cut = [n for n in shown_widths if columns[n].shrinks and shown_widths[n] > NARROWEST]
        shrinkable = [n for n in cut if shown_widths[n] > columns[n].least]
        optional = [n for n in shown_widths if columns[n].optional]
        if not shrinkable and optional:
            del shown_widths[max(optional, key=lambda n: (columns[n].optional, n))]
        elif shrinkable:
            shown_widths[max(shrinkable, key=lambda n: (shown_widths[n], n))] -= 1
        elif cut:
            shown_widths[min(cut, key=lambda n: (columns[n].least, -shown_widths[n], -n))] -= 1
        else:
            break
    return shown_widths


def print_fields(fields: Iterable[tuple[str, Cell]]) -> None:
    """Print names and values, a value that is too long going on below itself; empty ones are left out."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in fields:
        if value:
            table.add_row(name, value if isinstance(value, Text) else Text(plain(value)))
    print_grid(table)


def print_grid(grid: Table) -> None:
    """Print a grid without the blanks that Rich fills its last column with: they copy and compare badly."""
    out = console()
    with out.capture() as captured:
        out.print(grid)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def heading(text: str) -> None:
    """Print a title above what belongs to it."""
    console().print(Text(f"\n{text}", style="bold"))


def job_heading(name: str, job_id: str, status: str) -> None:
    """Print a job's name, id and state in one line; the id is a prefix where there is no room for all of it."""
    out = console()
    room = out.width - len(GAP) - len(plain(name)) - len(status)
    (shown,) = shown_ids([job_id], room=len(job_id) <= room)
    out.print(Text.assemble(plain(name), " ", shown, " ", state(status)))


def state(name: str) -> Text:
    """A state in its colour."""
    return Text(name, style=STATE_STYLES.get(name, ""))


def plain(text: str) -> str:
    """The text without characters that steer a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def shown_ids(ids: Sequence[str], *, room: bool) -> list[str]:
    """The ids whole if there is room, else the shortest prefix (of 8 or more) that tells all of them apart.

    The index of an array's child stays whole.
    """
    if room:
        return list(ids)
    parents = {job_id.partition(":")[0] for job_id in ids}
    length = SHORT_ID
    while len({parent[:length] for parent in parents}) < len(parents):
        length += 1
    return [_shortened(job_id, length) for job_id in ids]


def has_room(width: int = 140) -> bool:
    """Whether the terminal is wide enough for whole ids."""
    return console().width >= width


def bar(counts: dict[str, int], width: int = 40) -> Text:
    """A bar whose parts are the states' shares, finished ones first."""
    order = ["SUCCEEDED", "FAILED", "RUNNING", "STARTING", "RUNNABLE", "PENDING", "SUBMITTED"]
    total = sum(counts.values())
    drawn = Text()
    passed = 0
    for name in order:
        begin = passed * width // total if total else 0
        passed += counts.get(name, 0)
        end = passed * width // total if total else 0
        letter = "·" if name in {"RUNNABLE", "PENDING", "SUBMITTED"} else "█"
        drawn.append(letter * (end - begin), style=STATE_STYLES[name])
    return drawn


def _shortened(job_id: str, length: int) -> str:
    parent, colon, index = job_id.partition(":")
    return f"{parent[:length]}{colon}{index}"
