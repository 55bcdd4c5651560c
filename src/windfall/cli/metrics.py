"""`windfall metrics`: what a job used over time, as curves in the terminal, as CSV or as JSON.

Decides which curves are worth a frame and what their tops stand for. Must not measure: the agent did.
"""

from __future__ import annotations

import csv
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windfall.cli.attempts import size
from windfall.cli.client import connect
from windfall.cli.cost import since_at
from windfall.cli.errors import BadUsage, CliError
from windfall.cli.listing import job_id
from windfall.cli.options import data_option, job_argument, json_option, print_json
from windfall.cli.wording import duration

if TYPE_CHECKING:
    from rich.text import Text

    from windfall.cli.plotting import Curve, Point

#: From this width on two curves stand side by side.
TWO_COLUMNS = 120
#: Wider curves say no more; and where output goes to a file it is as wide as that.
WIDEST, FILE_WIDTH = 200, 100
HEIGHT = 4
#: A job that ran for less than this was never looked at.
GROWN_S = 1.5

Answer = dict[str, Any]


@click.command()
@job_argument
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="An earlier attempt (the newest one).")
@click.option("--since", metavar="30m", help="Only this time until now (30m, 12h, 7d, 2w, all).")
@click.option("--csv", "as_csv", is_flag=True, help="Print all samples as CSV, one a line.")
@data_option
@json_option
def metrics(
    job: str, attempt: int | None, since: str | None, as_csv: bool, data: Path | None, as_json: bool
) -> None:
    """Plot what a job used: GPUs, CPU, memory, disk, network.

    Means are by time. The use of a GPU that several jobs share is the device's.
    """
    if as_csv and as_json:
        raise BadUsage("--csv excludes --json; choose one")
    client = connect(data)
    now = time.time_ns() // 1_000_000
    since_ms = since_at(since, now) if since is not None else 0
    answer = client.own("Samples", jobId=job_id(client, job), attempt=attempt, sinceAt=since_ms)
    if as_json:
        print_json(answer)
        return
    if not answer["samples"]:
        raise CliError(why_none(answer, now, since))
    if as_csv:
        _print_csv(answer)
        return
    from windfall.cli.tables import console

    out = console()
    for line in page(answer, min(out.width, WIDEST) if out.width < 1000 else FILE_WIDTH):
        line.rstrip()
        out.print(line, soft_wrap=True)


def why_none(answer: Answer, now: int, since: str | None = None) -> str:
    """Why there is nothing to show, and what to do."""
    name = f"job {answer['jobName']} ({answer['jobId']})"
    started_at = answer["startedAt"]
    if answer["attempt"] is None and answer["state"] == "FAILED":
        return f"{name} ended before it ran; `windfall why` says how"
    if answer["attempt"] is None:
        return f"{name} has not run yet: it is {answer['state']}; `windfall why` says what it waits for"
    if not answer["sampleEveryS"]:
        return "sampling is turned off; set sample_every_s to seconds, such as 2, and start the daemon again"
    if started_at is None:
        return f"attempt {answer['attempt']} of {name} has not started; nothing is measured before it does"
    ran_s = ((answer["stoppedAt"] or now) - started_at) / 1000
    if ran_s < GROWN_S + 2 * answer["sampleEveryS"]:
        word = "has run" if answer["stoppedAt"] is None else "ran"
        return (
            f"attempt {answer['attempt']} of {name} {word} for {duration(round(ran_s * 1000))}, "
            f"too short for a sample; one is taken every {answer['sampleEveryS']:g} s"
        )
    if since is not None:
        return f"{name} has no samples from the last {since}; leave --since out to see all of them"
    return f"no samples of attempt {answer['attempt']} of {name} are kept; they go when its log does"


def page(answer: Answer, width: int) -> list[Text]:
    """All lines for a terminal of this width."""
    from rich.text import Text

    from windfall.cli.plotting import LABEL_WIDTH, frame, side_by_side
    from windfall.cli.tables import plain, shown_ids

    samples = answer["samples"]
    begin, end = samples[0]["at"] - samples[0]["spanMs"], samples[-1]["at"]
    (shown_id,) = shown_ids([answer["jobId"]], room=width >= 80)
    about = f"  {answer['state']}  attempt {answer['attempt']}  {shown_id}"
    name = Text(plain(answer["jobName"]), style="bold")
    name.truncate(max(8, width - len(about)), overflow="ellipsis")
    head = name.append(about, style="dim")
    lines = [head, Text("")]
    two = width >= TWO_COLUMNS
    each = (width - 4) // 2 if two else width
    frames = [frame(curve, begin, end, each, HEIGHT) for curve in curves(answer)]
    if two:
        frames += [[]] * (len(frames) % 2)
        pairs = zip(frames[::2], frames[1::2], strict=True)
        frames = [side_by_side(left, right, each + 4) for left, right in pairs]
    for framed in frames:
        lines += framed
    axis = _axis(begin, end, each, LABEL_WIDTH)
    lines += side_by_side([axis], [axis], each + 4) if two else [axis]
    lines += _each_gpu(answer, begin, end, width)
    if words := _notes(answer):
        lines += [Text(""), *(Text(line, style="dim") for line in textwrap.wrap(words, width))]
    return lines


def curves(answer: Answer) -> list[Curve]:
    """What is worth a frame: curves of which something is known."""
    from windfall.cli.plotting import Curve

    gpus = answer["gpus"]
    memory_mib = sum(gpu["memoryMib"] or 0 for gpu in gpus)
    power_w = sum(gpu["powerLimitW"] or 0 for gpu in gpus)
    drawn = []
    if gpus:
        of_all = "" if len(gpus) == 1 else f", mean of {len(gpus)}"
        drawn += [
            Curve(f"GPU use{of_all}", _points(answer, _mean("busy")), _percent, 1.0, "green"),
            Curve("GPU memory", _points(answer, _sum("memoryBytes")), _gib, memory_mib * 2.0**20, "magenta"),
            Curve("GPU power", _points(answer, _sum("powerW")), lambda w: f"{w:,.0f} W", power_w, "yellow"),
            Curve("PCIe", _points(answer, _sum("pcieRxBytesS", "pcieTxBytesS")), _rate, 0.0, "blue"),
        ]
    drawn += [
        Curve("CPU", _points(answer, _own("cpuCores")), _cores, answer["vcpus"] or 0.0, "green"),
        Curve("memory", _points(answer, _own("memoryBytes")), _gib, answer["memoryMib"] * 2.0**20, "magenta"),
        Curve("disk", _points(answer, _own("readBytesS", "writeBytesS")), _rate, 0.0, "yellow"),
        Curve("network", _points(answer, _own("netRxBytesS", "netTxBytesS")), _rate, 0.0, "blue"),
        Curve("steps", _points(answer, _steps), lambda s: f"{s:.3g}/s", 0.0, "cyan"),
    ]
    return [curve for curve in drawn if curve.known]


def _points(answer: Answer, value: Callable[[Answer], float | None]) -> list[Point]:
    from windfall.cli.plotting import Point

    return [Point(sample["at"], sample["spanMs"], value(sample)) for sample in answer["samples"]]


def _own(*names: str) -> Callable[[Answer], float | None]:
    return lambda sample: _added([sample[name] for name in names])


def _sum(*names: str) -> Callable[[Answer], float | None]:
    return lambda sample: _added([gpu[name] for gpu in sample["gpus"] for name in names])


def _mean(name: str) -> Callable[[Answer], float | None]:
    def mean(sample: Answer) -> float | None:
        values = [gpu[name] for gpu in sample["gpus"] if gpu[name] is not None]
        return sum(values) / len(values) if values else None

    return mean


def _added(values: list[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) if measured else None


def _steps(sample: Answer) -> float | None:
    return None if sample["steps"] is None else sample["steps"] / sample["spanMs"] * 1000


def _each_gpu(answer: Answer, begin: int, end: int, width: int) -> list[Text]:
    """A line for each of several GPUs: one that does nothing hides in a mean."""
    from rich.text import Text

    from windfall.cli.plotting import Curve, Point, columns, spark, summary

    if len(answer["gpus"]) < 2:
        return []
    lines = [Text(""), Text("each GPU's use", style="bold")]
    for number, gpu in enumerate(answer["gpus"]):
        points = [
            Point(sample["at"], sample["spanMs"], sample["gpus"][number]["busy"])
            for sample in answer["samples"]
        ]
        figures = summary(Curve("", points, _percent))
        room = max(8, min(60, width - len(gpu["id"][:12]) - len(figures) - 4))
        drawn = spark(columns(points, begin, end, room), 1.0)
        lines.append(Text(f"{gpu['id'][:12]}  ").append(drawn, style="green").append(f"  {figures}", "dim"))
    return lines


def _axis(begin: int, end: int, width: int, indent: int) -> Text:
    """The times at both ends, and how long that is."""
    from datetime import UTC, datetime

    from rich.text import Text

    form = "%H:%M:%S" if end - begin < 86_400_000 else "%m-%d %H:%M"
    left, right = (datetime.fromtimestamp(at / 1000, UTC).astimezone().strftime(form) for at in (begin, end))
    middle = duration(end - begin)
    room = max(len(left) + len(middle) + len(right) + 2, width - indent - 1)
    gap = room - len(left) - len(middle) - len(right)
    return Text(" " * (indent + 1) + left + " " * (gap // 2) + middle + " " * (gap - gap // 2) + right, "dim")


def _notes(answer: Answer) -> str:
    """What else was measured, in a line."""
    from windfall.cli.plotting import Curve, summary

    names = (
        ("SM active", "smActive"),
        ("SM occupancy", "smOccupancy"),
        ("tensor cores", "tensorActive"),
        ("GPU memory bandwidth", "memoryActive"),
    )
    said = []
    for words, name in names if answer["gpus"] else ():
        curve = Curve("", _points(answer, _mean(name)), _percent)
        if curve.known:
            said.append(f"{words} {summary(curve).split('  ')[1]}")
    return ", ".join(said)


def _print_csv(answer: Answer) -> None:
    """One line a sample; the members of the JSON form, those of GPUs with the GPU's number before."""
    samples = answer["samples"]
    own = [name for name in samples[0] if name != "gpus"]
    per_gpu = list(samples[0]["gpus"][0]) if samples[0]["gpus"] else []
    titles = [f"gpu{n}.{name}" for n in range(len(answer["gpus"])) for name in per_gpu]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*own, *titles])
    for sample in samples:
        writer.writerow(
            [*(sample[name] for name in own), *(gpu[name] for gpu in sample["gpus"] for name in per_gpu)]
        )


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _cores(cores: float) -> str:
    return f"{cores:.2f}".rstrip("0").rstrip(".") or "0"


def _gib(count: float) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"


def _rate(count: float) -> str:
    return f"{size(round(count))}/s"
