"""What `windfall top` shows: lines for the host, for each GPU and for each job, made to fit a width and a height.

Colours have a meaning: green is well used, yellow half, red is a GPU that is held and does little, or something near
its limit. What is not measured is a dash. Pure: an answer in, lines out.
"""

from __future__ import annotations

from typing import Any

from rich.text import Text

from windfall.cli.attempts import size
from windfall.cli.containers import asked_for
from windfall.cli.plotting import meter
from windfall.cli.tables import Column, plain, shown_ids, table_lines
from windfall.cli.wording import amount, clock, counted, duration, gpu_name

UNKNOWN = "-"
#: A GPU that is held is used well above the first, badly below the second.
WELL_USED, BADLY_USED = 0.7, 0.3
NEARLY_FULL = 0.95
HOT_C = 85.0
_GIB = float(1 << 30)

Answer = dict[str, Any]


def screen(answer: Answer, width: int, height: int | None, trouble: str | None = None) -> list[Text]:
    """All lines; those for which there is no height are counted in the last one."""
    lines = _head(answer, width, trouble)
    gpus = [_gpu(number, gpu, answer, width) for number, gpu in enumerate(answer["gpus"])]
    if gpus:
        room = len(gpus) if height is None else max(1, (height - len(lines)) // 2)
        lines += [Text(""), *gpus[:room]]
        if room < len(gpus):
            lines.append(Text(f"and {len(gpus) - room} more GPUs", style="dim"))
    lines.append(Text(""))
    jobs = answer["jobs"]
    if not jobs:
        lines.append(Text("nothing runs", style="dim"))
        return [*lines, *_waiting(answer, width, None if height is None else height - len(lines))]
    # Running jobs come first; those that wait get what is left, and one line at least.
    least = len(_waiting(answer, width, 1))
    room = len(jobs) if height is None else max(1, height - len(lines) - 2 - least)
    shown = jobs if len(jobs) <= room else jobs[: max(1, room - 1)]
    lines += _jobs(shown, answer["at"], width)
    if len(shown) < answer["running"]:
        lines.append(Text(f"and {answer['running'] - len(shown):,} more", style="dim"))
    return [*lines, *_waiting(answer, width, None if height is None else height - len(lines))]


def _waiting(answer: Answer, width: int, room: int | None) -> list[Text]:
    """The jobs that start next, as far as there is room, and how to see all that wait."""
    count, front = answer["waiting"], answer.get("front") or []
    if not count:
        return []
    # An empty line, the heading and the last line go with them.
    front = front if room is None else front[: max(0, room - 3)]
    verb = "waits" if count == 1 else "wait"
    last = Text(f"{counted(count, 'job')} {verb}; see `windfall jobs --state runnable`", style="dim")
    if not front:
        return [last]
    columns = [
        Column("WAITING"),
        Column("NAME", shrinks=True),
        Column("QUEUE", shrinks=True, optional=1),
        Column("FOR", right=True),
        Column("ASKS FOR", shrinks=True),
    ]
    ids = shown_ids([job["jobId"] for job in front], room=width >= 180)
    rows = [
        [
            shown,
            job["jobName"],
            job["jobQueue"],
            " ".join(duration(max(0, answer["at"] - job["createdAt"])).split()[:2]),
            asked_for(job),
        ]
        for shown, job in zip(ids, front, strict=True)
    ]
    return [Text(""), *table_lines(columns, rows, width), *([last] if len(front) < count else [])]


def _head(answer: Answer, width: int, trouble: str | None) -> list[Text]:
    host, sample = answer["host"], answer["host"]["sample"] or {}
    first = Text().append("windfall", style="bold")
    first.append(f"  {answer['running']:,} running, {answer['waiting']:,} waiting")
    if trouble is not None:
        first.append(f"  {trouble}", style="bold red")
    elif not answer["sampleEveryS"]:
        first.append("  sampling is off (sample_every_s = 0)", style="yellow")
    right = f"load {' '.join(f'{load:.2f}' for load in host['load'])}  {clock(answer['at'])}"
    first.truncate(max(20, width - len(right) - 2), overflow="ellipsis")
    first.append(" " * max(2, width - first.cell_len - len(right))).append(right, style="dim")
    cores, used = sample.get("cpuCores"), sample.get("memoryBytes")
    cpu_share = None if cores is None else cores / host["vcpus"]
    memory = host["memoryMib"] * 2.0**20
    share = None if used is None else used / memory
    bar = max(10, min(40, width - 60))
    lines = [
        first,
        Text("CPU ")
        .append(meter(cpu_share, bar, _load_style(cpu_share)))
        .append(f" {_known(cores, lambda c: f'{c:.1f}'):>6} of {host['vcpus']} cores".ljust(24))
        .append(f"net  in {_rate(sample.get('netRxBytesS'))}  out {_rate(sample.get('netTxBytesS'))}", "dim"),
        Text("mem ")
        .append(meter(share, bar, _load_style(share)))
        .append(f" {_known(used, lambda b: f'{b / _GIB:.1f}'):>6} of {memory / _GIB:.1f} GiB".ljust(24))
        .append(f"disk in {_rate(sample.get('readBytesS'))}  out {_rate(sample.get('writeBytesS'))}", "dim"),
    ]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _gpu(number: int, gpu: Answer, answer: Answer, width: int) -> Text:
    sample, holders = gpu["sample"], gpu["heldBy"]
    busy, memory, total = sample["busy"], sample["memoryBytes"], gpu["memoryMib"]
    name = plain(gpu["name"]).removeprefix("NVIDIA ").removeprefix("Tesla ")
    name_width = 16 if width < 120 else 24
    name = _fitted_name(name, name_width, simulated=gpu["simulated"])
    line = Text(f"GPU {number:<2} ").append(f"{name:<{name_width}} ")
    line.append(meter(busy, max(8, min(30, width - 88)), _use_style(busy, in_use=bool(holders))))
    line.append(f" {_percent(busy):>5}", style=_use_style(busy, in_use=bool(holders)))
    share = None if memory is None or not total else memory / (total * 2.0**20)
    words = f"{_known(memory, lambda b: f'{b / _GIB:.1f}')}/{_known(total, lambda m: f'{m / 1024:.0f}')} GiB"
    line.append(f" {words:>13}", style="red" if share is not None and share > NEARLY_FULL else "")
    line.append(f" {_known(sample['powerW'], lambda w: f'{w:.0f} W'):>6}")
    heat = sample["temperatureC"]
    line.append(
        f" {_known(heat, lambda c: f'{c:.0f} °C'):>6}",
        style="red" if heat is not None and heat >= HOT_C else "",
    )
    names = {job["jobId"]: plain(job["jobName"]) for job in answer["jobs"]}
    if gpu["fence"] is not None:
        line.append("  fenced: " + plain(gpu["fence"]), style="red")
    elif holders:
        line.append("  " + ", ".join(names.get(job_id, job_id[:8]) for job_id in holders))
    else:
        line.append("  free", style="dim")
    line.truncate(width, overflow="ellipsis")
    return line


def _fitted_name(name: str, width: int, *, simulated: bool) -> str:
    """A GPU's name in this much room; that it is simulated is never what gives way."""
    whole = gpu_name(name, simulated=simulated)
    return f"{name[: width - 7]} (sim.)" if simulated and len(whole) > width else whole[:width]


def _jobs(jobs: list[Answer], now: int, width: int) -> list[Text]:
    columns = [
        Column("JOB"),
        Column("NAME", shrinks=True),
        Column("RAN", right=True, optional=2),
        Column("GPU", right=True),
        Column("GPU MEM", right=True),
        Column("CPU", right=True),
        Column("MEM", right=True),
        Column("DISK", right=True, optional=3),
        Column("NET", right=True, optional=3),
        Column("STEPS/S", right=True, optional=1),
        Column("LIMITED BY", optional=1),
    ]
    ids = shown_ids([job["jobId"] for job in jobs], room=width >= 180)
    rows = [_row(job_id, job, now) for job_id, job in zip(ids, jobs, strict=True)]
    shown_columns = [
        n for n in range(len(columns)) if n < 9 or any(str(row[n]) not in ("", UNKNOWN) for row in rows)
    ]
    columns, rows = [columns[n] for n in shown_columns], [[row[n] for n in shown_columns] for row in rows]
    if any(job.get("machine") for job in jobs):
        columns.insert(2, Column("HOST", shrinks=True))
        for row, job in zip(rows, jobs, strict=True):
            row.insert(2, plain(job.get("machine") or "here"))
    return table_lines(columns, rows, width)


def _row(job_id: str, job: Answer, now: int) -> list[str | Text]:
    sample = job["sample"]
    started = job["startedAt"]
    # The larger unit is enough here: "2 min" of "2 min 33 s".
    ran = " ".join(duration(max(0, now - started)).split()[:2]) if started is not None else job["state"]
    if sample is None:
        words = job["doing"] if started is None and job["doing"] else ""
        return [job_id, job["jobName"], ran, *[UNKNOWN] * 7, words or ""]
    busy = [gpu["busy"] for gpu in sample["gpus"] if gpu["busy"] is not None]
    used = [gpu["memoryBytes"] for gpu in sample["gpus"] if gpu["memoryBytes"] is not None]
    use = sum(busy) / len(busy) if busy else None
    cores = sample["cpuCores"]
    limit = job["memoryMib"] * 2.0**20
    full = sample["memoryBytes"] is not None and limit > 0 and sample["memoryBytes"] / limit > NEARLY_FULL
    steps = None if sample["steps"] is None else sample["steps"] / sample["spanMs"] * 1000
    return [
        job_id,
        job["jobName"],
        ran,
        Text(_percent(use), style=_use_style(use, in_use=bool(job["gpuIds"]))),
        _bytes(sum(used) if used else None),
        f"{_known(cores, lambda c: f'{c:.1f}')}/{amount(job['vcpus'])}",
        Text(_bytes(sample["memoryBytes"]), style="red" if full else ""),
        _rate(_added(sample["readBytesS"], sample["writeBytesS"])),
        _rate(_added(sample["netRxBytesS"], sample["netTxBytesS"])),
        _known(steps, lambda s: f"{s:.3g}"),
        job["cause"] or "",
    ]


def _use_style(busy: float | None, *, in_use: bool) -> str:
    if busy is None or not in_use:
        return "dim"
    return "green" if busy >= WELL_USED else "yellow" if busy >= BADLY_USED else "red"


def _load_style(share: float | None) -> str:
    return "red" if share is not None and share > NEARLY_FULL else "blue"


def _added(*values: float | None) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) if measured else None


def _known(value: float | None, say: Any) -> str:
    return UNKNOWN if value is None else str(say(value))


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share * 100:.0f} %"


def _bytes(count: float | None) -> str:
    if count is None:
        return UNKNOWN
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / (1 << 20):.0f} MiB"


def _rate(count: float | None) -> str:
    if count is None:
        return UNKNOWN
    number, unit = size(round(count)).split()
    return f"{number.partition('.')[0] if len(number) > 4 else number} {unit}/s"
