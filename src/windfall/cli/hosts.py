"""`windfall hosts`: other machines that jobs run on, reached by ssh.

The daemon does the work, as its own user and with that user's ssh configuration; this shows it. Several hosts are added
at once, and one that fails stops none of the others.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import click

from windfall.cli.client import Client, connect
from windfall.cli.errors import BadUsage, CliError
from windfall.cli.notes import note
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.wording import counted

_STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red", "skip": "dim"}
#: An installation over a slow line takes its time.
_ADD_WITHIN_S = 1200.0
_LOOK_EVERY_S = 0.5


@click.group()
def hosts() -> None:
    """Run jobs on other machines, reached by ssh.

    The daemon's user must reach each host by ssh without a password. A host needs Python 3.11 or later and nothing
    else; nothing listens there but sshd.
    """


@hosts.command()
@click.argument("destinations", metavar="[USER@]HOST[:PORT]...", nargs=-1, required=True)
@click.option("--labels", metavar="K=V,...", help="Labels, by which compute environments choose hosts.")
@click.option("--name", help="Name of the host here (only with one host; default: the host's name).")
@click.option(
    "--address", metavar="ADDRESS", help="Address by which other hosts reach it (only with one host)."
)
@click.option(
    "--python", metavar="PYTHON", help="Python to use there (default: the first that is new enough)."
)
@click.option("--directory", metavar="DIR", help="Where Windfall keeps everything there.")
@click.option("--gpus", metavar="WHICH", help="auto, none or simulated:N.", default="auto", show_default=True)
@data_option
@json_option
def add(
    destinations: tuple[str, ...],
    labels: str | None,
    name: str | None,
    address: str | None,
    python: str | None,
    directory: str | None,
    gpus: str,
    data: Path | None,
    as_json: bool,
) -> int:
    """Install Windfall on hosts, check them, and use them for jobs."""
    if len(destinations) > 1 and (name or address):
        raise BadUsage("--name and --address are for one host; add hosts that need them one by one")
    options = {
        "labels": _labels(labels),
        "name": name,
        "address": address,
        "python": python,
        "directory": directory,
        "gpus": gpus,
    }
    added, failed = _add_all(data, list(dict.fromkeys(destinations)), options, quiet=as_json)
    if as_json:
        print_json({"hosts": added, "failed": failed})
    else:
        for host in added:
            _print_added(host)
        for destination, problem in failed.items():
            click.echo(problem if destination in problem else f"{destination}: {problem}", err=True)
    return int(bool(failed))


def _add_all(
    data: Path | None, destinations: list[str], options: dict[str, Any], *, quiet: bool
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    added: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    client, shown = connect(data), dict[str, str]()
    with ThreadPoolExecutor(max_workers=16) as pool:
        calls = {
            pool.submit(connect(data, timeout_s=_ADD_WITHIN_S).own, "AddHost", destination=to, **options): to
            for to in destinations
        }
        pending = set(calls)
        while pending:
            _, pending = wait(pending, timeout=_LOOK_EVERY_S)
            if pending and not quiet:
                _show_progress(client.own("ListHosts")["adding"], shown)
    for call, destination in calls.items():
        try:
            added.append(call.result())
        except CliError as error:
            failed[destination] = str(error)
    return added, failed


def _show_progress(adding: dict[str, str], shown: dict[str, str]) -> None:
    for name, text in adding.items():
        if shown.get(name) != text:
            shown[name] = text
            note(f"{name}: {text}")


def _print_added(host: dict[str, Any]) -> None:
    from windfall.cli.tables import plain

    machine = host["machine"] or {}
    gpus = [plain(str(gpu["name"])) for gpu in host["gpus"]]
    models = ", ".join(f"{gpus.count(model)} x {model}" for model in dict.fromkeys(gpus))
    parts = [
        models or "no GPU",
        f"{machine['vcpus']:g} vCPUs" if machine else "",
        f"{machine['memoryMib'] / 1024:.0f} GiB memory" if machine else "",
        f"{host['networkMbits'] / 1000:g} Gbit/s" if host["networkMbits"] else "",
    ]
    click.echo(f"{host['name']}: {', '.join(part for part in parts if part)}")
    for check in host["checks"]:
        if check["state"] in ("bad", "warn"):
            remedy = plain(check["mend"])
            click.echo(
                f"  {check['state']}: {check['subject']}: {plain(check['seen'])}"
                + (f" ({remedy})" if remedy else "")
            )
    if host["trouble"]:
        click.echo(f"  {plain(host['trouble'])}")


@hosts.command(name="list")
@data_option
@json_option
def list_(data: Path | None, as_json: bool) -> None:
    """List hosts, how they stand and what runs there."""
    answer = connect(data).own("ListHosts")
    if as_json:
        print_json(answer)
        return
    if not answer["hosts"]:
        note("there are no hosts; `windfall hosts add HOST` adds one")
        return
    from windfall.cli.tables import Column, plain, print_table

    columns = [
        Column("HOST"),
        Column("DESTINATION", shrinks=True, optional=True),
        Column("STANDING"),
        Column("GPUS"),
        Column("VCPUS"),
        Column("JOBS"),
        Column("LABELS", shrinks=True, optional=True),
    ]
    rows = []
    for host in answer["hosts"]:
        machine = host["machine"]
        rows.append(
            [
                host["name"],
                host["destination"],
                _standing(host),
                "-" if machine is None else str(len(machine["gpus"])),
                "-" if machine is None else f"{machine['vcpus']:g}",
                str(host["running"]),
                ",".join(f"{key}={value}" for key, value in sorted(host["labels"].items())) or "-",
            ]
        )
    print_table(columns, rows)
    for host in answer["hosts"]:
        if host["trouble"] and _standing(host) != "draining":
            note(f"{host['name']}: {plain(host['trouble'])}")


def _standing(host: dict[str, Any]) -> str:
    if host["draining"] and host["standing"] in ("ready", "noticed"):
        return "draining"
    return str(host["standing"])


@hosts.command()
@click.argument("name", metavar="HOST")
@click.option("--resume", is_flag=True, help="Place jobs there again.")
@data_option
@json_option
def drain(name: str, resume: bool, data: Path | None, as_json: bool) -> None:
    """Place no new jobs on a host; those that run there go on."""
    host = connect(data).own("DrainHost", name=name, resume=resume)
    if as_json:
        print_json(host)
    elif resume:
        click.echo(f"{name} takes jobs again")
    else:
        click.echo(f"{name} takes no new jobs; {counted(host['running'], 'job')} there")


@hosts.command()
@click.argument("names", metavar="HOST...", nargs=-1, required=True)
@click.option("--drain", "drains", is_flag=True, help="Wait until the jobs there have ended.")
@click.option("--force", is_flag=True, help="Stop the jobs there; also for a host that does not answer.")
@data_option
@json_option
def remove(names: tuple[str, ...], drains: bool, force: bool, data: Path | None, as_json: bool) -> int:
    """End the agents of hosts, remove what they left there, and forget the hosts.

    A host that cannot be removed does not stop the others.
    """
    client = connect(data, timeout_s=120)
    if drains and not force:
        _drained(client, names)
    removed, failed = [], {}
    for name in dict.fromkeys(names):
        try:
            removed.append(client.own("RemoveHost", name=name, force=force))
        except CliError as error:
            if len(names) == 1:
                raise
            failed[name] = str(error)
            continue
        if not as_json:
            click.echo(f"{name} is removed")
            if left := removed[-1]["left"]:
                note(f"something is left on {name}: {left}")
    if as_json:
        print_json(removed[0] if len(names) == 1 else {"removed": removed, "failed": failed})
    for name, problem in failed.items() if not as_json else ():
        note(f"{name} was not removed: {problem}")
    return int(bool(failed))


def _drained(client: Client, names: tuple[str, ...]) -> None:
    """Drain all of them, and wait until no job runs there."""
    running = {name: int(client.own("DrainHost", name=name)["running"]) for name in names}
    if sum(running.values()):
        busy = ", ".join(name for name, jobs in running.items() if jobs)
        note(f"waits for {counted(sum(running.values()), 'job')} on {busy} (Ctrl-C leaves them drained)")
    while sum(running.values()):
        time.sleep(1)
        running = {
            host["name"]: host["running"]
            for host in client.own("ListHosts")["hosts"]
            if host["name"] in names
        }


@hosts.command()
@click.argument("name", metavar="HOST")
@data_option
@json_option
def doctor(name: str, data: Path | None, as_json: bool) -> int:
    """Check a host for jobs, and say how to fix problems; exits with 1 if something is bad."""
    answer = connect(data, timeout_s=120).own("CheckHost", name=name)
    if as_json:
        print_json(answer)
    else:
        from rich.table import Table
        from rich.text import Text

        from windfall.cli.tables import plain, print_grid

        grid = Table.grid(padding=(0, 2, 0, 0))
        for check in answer["checks"]:
            text = Text(plain(check["seen"]))
            if check["mend"]:
                text.append(f"\n{plain(check['mend'])}", style="cyan")
            state = Text(check["state"], style=_STYLES.get(check["state"], ""))
            grid.add_row(state, Text(plain(check["subject"]), style="bold"), text)
        print_grid(grid)
    return int(not answer["healthy"])


def _labels(text: str | None) -> dict[str, str]:
    pairs = [part for part in (text or "").split(",") if part]
    if any("=" not in part for part in pairs):
        raise BadUsage(f"--labels {text!r} must be K=V pairs with commas between them, as gpu=a100,zone=b")
    return {part.partition("=")[0]: part.partition("=")[2] for part in pairs}
