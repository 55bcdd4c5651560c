"""`windfall gpus`: which GPUs there are, how each is and who has it; fencing one by hand; recording a machine's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from windfall.cli.client import Client, connect
from windfall.cli.errors import CliError
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.wording import counted, gpu_name, memory

Answer = dict[str, Any]

host_option = click.option(
    "--host", metavar="HOST", help="The machine that has it, where several have such a GPU."
)
_STYLES = {"well": "green", "noted": "yellow", "fenced": "red", "lost": "red"}


@click.group(invoke_without_command=True)
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write this machine's own GPUs, as they are now, to FILE, for `windfall up --gpus recorded:FILE`.",
)
@data_option
@json_option
@click.pass_context
def gpus(context: click.Context, record: Path | None, data: Path | None, as_json: bool) -> None:
    """List GPUs with their health and who has them; fence one by hand."""
    if context.invoked_subcommand is not None:
        return
    if record is not None:
        _record(record)
        return
    all_gpus = connect(data).own("Gpus")["gpus"]
    if as_json:
        print_json({"gpus": all_gpus})
        return
    if not all_gpus:
        click.echo("no GPUs; `windfall doctor` says whether a driver is there")
        return
    _print(all_gpus)


@gpus.command()
@click.argument("gpu", metavar="GPU")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for those who ask.")
@host_option
@data_option
@json_option
def fence(gpu: str, reason: str, host: str | None, data: Path | None, as_json: bool) -> None:
    """Keep new jobs from a GPU; what runs on it goes on.

    GPU is its id, or as much of it as tells it from the others. The fence stays until `windfall gpus unfence`.
    """
    client = connect(data)
    chosen = _find(client, gpu, host)
    answer = client.own("FenceGpu", gpuId=chosen["id"], reason=reason, machineId=chosen["machine"])
    if as_json:
        print_json(answer)
        return
    held_by = f"; {counted(answer['heldBy'], 'job')} on it will end as ever" if answer["heldBy"] else ""
    click.echo(f"{answer['gpuId']} gets no new job{held_by}")


@gpus.command()
@click.argument("gpu", metavar="GPU")
@host_option
@data_option
@json_option
def unfence(gpu: str, host: str | None, data: Path | None, as_json: bool) -> None:
    """Allow new jobs on a GPU again, whatever fenced it.

    Windfall's own fence comes back when the device falls ill anew.
    """
    client = connect(data)
    chosen = _find(client, gpu, host)
    answer = client.own("FenceGpu", gpuId=chosen["id"], reason=None, machineId=chosen["machine"])
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{answer['gpuId']} gets new jobs again")


def _find(client: Client, text: str, host: str | None) -> Answer:
    """The one GPU whose id begins so, with or without the kind in front, of one machine or of all."""
    all_gpus = [gpu for gpu in client.own("Gpus")["gpus"] if host is None or gpu["machineName"] == host]
    exact = [gpu for gpu in all_gpus if gpu["id"] == text]
    begins = exact or [
        gpu for gpu in all_gpus if gpu["id"].startswith(text) or _short(gpu["id"]).startswith(text)
    ]
    if len(begins) != 1:
        problem = "no GPU has an id that begins with" if not begins else "more than one GPU begins with"
        choose = ", and --host chooses a machine" if len({gpu["machine"] for gpu in begins}) > 1 else ""
        raise CliError(f"{problem} {text!r}; `windfall gpus` lists them{choose}")
    answer: Answer = begins[0]
    return answer


def _short(gpu_id: str) -> str:
    return gpu_id.removeprefix("GPU-").removeprefix("MIG-")


def _print(all_gpus: list[Answer]) -> None:
    from rich.text import Text

    from windfall.cli.tables import Column, console, has_room, plain, print_table, shown_ids, table_lines

    room = has_room()
    jobs = iter(shown_ids([holder["jobId"] for gpu in all_gpus for holder in gpu["holders"]], room=room))
    holders = [[_holder(next(jobs), holder["share"]) for holder in gpu["holders"]] for gpu in all_gpus]
    ids = _shown_gpus([gpu["id"] for gpu in all_gpus], room=room)
    has_hosts = len({gpu["machine"] for gpu in all_gpus}) > 1
    columns = [
        *([Column("HOST", shrinks=True)] if has_hosts else []),
        Column("GPU"),
        Column("NAME", shrinks=True),
        Column("MEMORY", right=True, optional=True),
        Column("DRIVER", optional=True),
        Column("HEALTH"),
        Column("SHARED BY", optional=True),
        Column("HELD BY"),
    ]
    rows: list[list[str | Text]] = []
    for shown, gpu, holder_texts in zip(ids, all_gpus, holders, strict=True):
        health = Text(gpu["health"], style=_STYLES.get(gpu["health"], ""))
        rows.append(
            [
                *([plain(gpu["machineName"])] if has_hosts else []),
                shown,
                gpu_name(gpu["name"], simulated=gpu["simulated"]),
                memory(gpu["memoryMib"]),
                gpu["driver"] or "",
                health,
                gpu["sharing"] or "no",
                ", ".join(holder_texts) or "free",
            ]
        )
    # Where not all of them have room in the table, they are counted there and named below it.
    fits = max(line.cell_len for line in table_lines(columns, rows, 10**6)) <= console().width
    for row, holder_texts in zip(rows, holders, strict=True):
        if len(holder_texts) > 1 and not fits:
            row[-1] = counted(len(holder_texts), "job")
    print_table(columns, rows)
    for shown, gpu, holder_texts in zip(ids, all_gpus, holders, strict=True):
        if len(holder_texts) > 1 and not fits:
            click.echo(plain(f"{shown}: held by {', '.join(holder_texts)}"))
        for line in _remarks(shown, gpu):
            click.echo(plain(line))


def _holder(job_id: str, share: float | None) -> str:
    return job_id if share is None else f"{job_id} ({share:.0%})"


def _remarks(shown: str, gpu: Answer) -> list[str]:
    lines = []
    if gpu["fence"] is not None:
        whose = "fenced by hand" if gpu["fencedByHand"] else "fenced"
        lines.append(f"{shown}: {whose}: {gpu['fence']}; `windfall gpus unfence {gpu['id']}` overrules it")
    if gpu["pardoned"] is not None:
        lines.append(f"{shown}: used although: {gpu['pardoned']}")
    lines += [f"{shown}: {note}" for note in gpu["notes"]]
    if gpu["sharingNote"] is not None:
        lines.append(f"{shown}: cannot be shared: {gpu['sharingNote']}")
    return lines


def _shown_gpus(ids: list[str], *, room: bool) -> list[str]:
    """Ids whole if there is room, else as much of each as tells them apart, with the kind in front."""
    length = 12
    while not room and len({gpu_id[:length] for gpu_id in ids}) < len(set(ids)):
        length += 1
    return list(ids) if room else [gpu_id[:length] for gpu_id in ids]


def _record(path: Path) -> None:
    """Without the daemon: what the driver of this very machine says."""
    from windfall.agent.devices.readings import write_set
    from windfall.agent.devices.sources import CannotRead, find_driver, record
    from windfall.agent.errors import AgentError

    try:
        source = find_driver()
        if source is None:
            raise CliError("no NVIDIA driver answers on this machine; `windfall doctor` says more")
        recorded = record(source)
        write_set(str(path), recorded)
    except (AgentError, CannotRead) as error:
        raise CliError(str(error)) from None
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from None
    click.echo(f"{counted(len(recorded.gpus), 'GPU')} recorded in {path}")
