"""Prints the benchmark: the published table's own lines, what each part cost, and what that says.

Sentences are put together from the figures and say nothing that these do not. Must not measure or calculate more than
a ratio.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import click

from windfall.cli.bench import published
from windfall.cli.bench.reading import BreakEven, Mode, Row, break_evens, rate, rows, totals
from windfall.cli.bench.results import CPU, GPU, Results
from windfall.cli.bench.wording import rate as rate_text
from windfall.cli.bench.wording import seconds, share, times
from windfall.cli.tables import Column, console, heading, print_table

CEILINGS = (
    (CPU, "fp32_flop_s", "CPU, products in fp32"),
    (CPU, "memory_bytes_s", "CPU, memory copied (read and written)"),
    (GPU, "fp32_flop_s", "GPU, products in fp32 (TF32 off)"),
    (GPU, "tf32_flop_s", "GPU, products in TF32"),
    (GPU, "memory_bytes_s", "GPU, memory copied (read and written)"),
    (GPU, "to_gpu_bytes_s", "to the GPU, pageable"),
    (GPU, "to_gpu_pinned_bytes_s", "to the GPU, page-locked"),
    (GPU, "from_gpu_bytes_s", "from the GPU, pageable"),
    (GPU, "from_gpu_pinned_bytes_s", "from the GPU, page-locked"),
)
WIDTH = 110
LEGEND = """\
RESIDENT: the arrays are on the GPU; median, ± is how far the samples lie apart. WITH TRANSFER: from ordinary memory and
back. PAGE-LOCKED: from and to page-locked memory. COLD: in a process that has not used the GPU, after its imports: the
first CUDA call, loading what this kind of operation needs, and the way there and back. x: CPU divided by GPU."""


def print_report(results: Results) -> None:
    """Everything, for each library that measured on a GPU, or for the CPU alone."""
    _print_ceilings(results)
    libraries: list[str | None] = [*results.gpu_libraries()]
    for library in libraries or [None]:
        lines = rows(results, library)
        _print_table(results, lines, library)
        _print_rates(results, lines, library)
        if library is not None:
            heading(f"What this says ({library})")
            for sentence in sentences(results, lines, library):
                _say(sentence)
        _print_comparison(lines, library)
    heading("Where the published text and its own figures part")
    for finding in published.findings(results.ceiling(GPU, "to_gpu_bytes_s")):
        _say(f"{finding.claim}: {finding.figures}")


def sentences(results: Results, lines: Sequence[Row], library: str) -> list[str]:
    """What the figures of one GPU library say."""
    said = [_spread_of_speed_ups(lines)]
    started_s = results.fact(GPU, "first_call_s", library)
    if started_s is not None:
        said.append(
            f"The first CUDA call of a process takes {seconds(started_s)}, importing {library} before it"
            f" {seconds(results.fact(GPU, 'import_s', library))}: a process for each small task pays both every time."
        )
    largest = max(
        (line for line in lines if line.operation.flops), key=lambda line: line.operation.size, default=None
    )
    if largest is not None and Mode.TRANSFER in largest.gpu_s:
        said.append(_transfer_of(largest))
    said += [_break_even(break_even) for break_even in break_evens(results, library)]
    return said


def _spread_of_speed_ups(lines: Sequence[Row]) -> str:
    parts = []
    for mode in Mode:
        ratios = sorted(ratio for line in lines if (ratio := line.speed_up(mode)) is not None)
        if ratios:
            parts.append(f"{times(ratios[0])} to {times(ratios[-1])} {mode}")
    return f"The GPU's speed-up over the fastest CPU library: {', '.join(parts)}."


def _transfer_of(row: Row) -> str:
    whole_s, resident_s = row.gpu_s[Mode.TRANSFER], row.gpu_s[Mode.RESIDENT]
    pinned = f"; from page-locked memory it takes {seconds(row.pinned_s)}" if row.pinned_s is not None else ""
    return (
        f"Of the {seconds(whole_s)} that {row.operation.name} takes with transfer from ordinary memory,"
        f" {share(1 - resident_s / whole_s)} is the way there and back{pinned}. What stays on the GPU between"
        " two operations pays it once."
    )


def _break_even(break_even: BreakEven) -> str:
    if break_even.edge is None:
        return f"Break-even of products, {break_even.mode}: {break_even.note}."
    size = f"{break_even.edge:,.0f} x {break_even.edge:,.0f}"
    return f"Break-even of products, {break_even.mode}: below {size} the CPU wins."


def _print_ceilings(results: Results) -> None:
    heading("Ceilings measured in this run")
    ceilings = [(text, results.ceiling(device, name), name) for device, name, text in CEILINGS]
    print_table(
        [Column("CEILING"), Column("BEST", right=True)],
        [
            [text, rate_text(value, in_flops="flop" in name)]
            for text, value, name in ceilings
            if value is not None
        ],
    )


def _print_table(results: Results, lines: Sequence[Row], library: str | None) -> None:
    if library is None:
        heading("The suite on the CPU")
        columns = [Column("OPERATION"), Column("CPU", right=True), Column("WITH")]
        print_table(
            columns, [[line.operation.name, seconds(line.cpu_s), line.cpu_library or ""] for line in lines]
        )
        return
    gpu = results.fact(GPU, "gpu", library) or "GPU"
    heading(f"The suite: CPU beside {gpu} with {library} {results.fact(GPU, 'version', library)}")
    columns = [
        Column("OPERATION"),
        Column("CPU", right=True),
        Column("WITH", optional=True),
        Column("GPU RESIDENT", right=True),
        Column("±", right=True, optional=True),
        Column("WITH TRANSFER", right=True),
        Column("PAGE-LOCKED", right=True, optional=True),
        Column("COLD", right=True),
        *(Column(f"x {mode.upper()}", right=True) for mode in Mode),
    ]
    table = [
        [
            line.operation.name,
            seconds(line.cpu_s),
            line.cpu_library or "",
            seconds(line.gpu_s.get(Mode.RESIDENT)),
            share(line.gpu_spread),
            seconds(line.gpu_s.get(Mode.TRANSFER)),
            seconds(line.pinned_s),
            seconds(line.gpu_s.get(Mode.COLD)),
            *(times(line.speed_up(mode)) for mode in Mode),
        ]
        for line in lines
    ]
    print_table(columns, [*table, _total(results, lines, library)])
    click.echo(LEGEND)


def _total(results: Results, lines: Sequence[Row], library: str) -> list[str]:
    cpu_s, gpu_s = totals(lines)
    started_s = results.fact(GPU, "first_call_s", library)
    firsts = [results.find(GPU, line.operation, "first", library) for line in lines]
    if started_s is not None and all(firsts):
        gpu_s[Mode.COLD] = started_s + sum(first.typical_s for first in firsts if first is not None)
    ratios = [times(cpu_s / gpu_s[mode] if cpu_s and mode in gpu_s else None) for mode in Mode]
    return [
        "All, in one process",
        seconds(cpu_s),
        "",
        seconds(gpu_s.get(Mode.RESIDENT)),
        "",
        seconds(gpu_s.get(Mode.TRANSFER)),
        "",
        seconds(gpu_s.get(Mode.COLD)),
        *ratios,
    ]


def _print_rates(results: Results, lines: Sequence[Row], library: str | None) -> None:
    heading("How near to the ceilings (products in FLOP/s; images in the bytes that must move, once)")
    columns = [Column("OPERATION"), Column("CPU", right=True), Column("OF CEILING", right=True)]
    if library is not None:
        columns += [
            Column("GPU", right=True),
            Column("OF CEILING", right=True),
            Column("GPU IN TF32", right=True),
        ]
    table = []
    for line in lines:
        cells = [line.operation.name]
        for device in (CPU, GPU) if library is not None else (CPU,):
            reached = rate(results, line, device)
            cells += [
                rate_text(reached.per_s, in_flops=reached.in_flops) if reached else "-",
                share(reached.share if reached else None),
            ]
        if library is not None:
            cells.append(rate_text(line.operation.flops / line.tf32_s, in_flops=True) if line.tf32_s else "")
        table.append(cells)
    print_table(columns, table)


def _print_comparison(lines: Sequence[Row], library: str | None) -> None:
    heading(
        f"Beside the published figures ({published.CPU_INSTANCE} and {published.GPU_INSTANCE} with an"
        f" {published.GPU_MODEL}; what their GPU times include was not published)"
    )
    columns = [
        Column("OPERATION"),
        Column("CPU THERE", right=True),
        Column("CPU HERE", right=True),
        Column("GPU THERE", right=True),
    ]
    if library is not None:
        columns += [Column("RESIDENT HERE", right=True), Column("WITH TRANSFER HERE", right=True)]
    columns.append(Column("SPEED-UP THERE", right=True))
    if library is not None:
        columns.append(Column("RESIDENT HERE", right=True))
    table = []
    for line in lines:
        there = published.line(line.operation)
        if there is None:
            continue
        cells = [line.operation.name, seconds(there.cpu_s), seconds(line.cpu_s), seconds(there.gpu_s)]
        if library is not None:
            cells += [seconds(line.gpu_s.get(mode)) for mode in (Mode.RESIDENT, Mode.TRANSFER)]
        cells.append(times(there.speed_up))
        if library is not None:
            cells.append(times(line.speed_up(Mode.RESIDENT)))
        table.append(cells)
    print_table(columns, table)


def _say(text: str) -> None:
    width = min(WIDTH, console().width)
    click.echo(textwrap.fill(text, width, initial_indent="- ", subsequent_indent="  "))
