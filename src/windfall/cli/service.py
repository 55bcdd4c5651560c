"""`windfall service`: keeps the daemon running under systemd, for root as a system service and else as a user's own."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from windfall.cli.endpoint import data_directory
from windfall.cli.errors import BadUsage, CliError
from windfall.cli.notes import note
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.service_unit import Unit, program
from windfall.daemon.errors import DaemonError
from windfall.daemon.settings import ENVIRONMENT_PREFIX, read_settings

_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]*@")
_SHOWN = ("LoadState", "UnitFileState", "ActiveState", "SubState", "MainPID")

name_option = click.option("--name", default="windfall", show_default=True, help="Name of the service.")


@click.group()
def service() -> None:
    """Run the daemon as a systemd service.

    For root it is a service of the system, for other users their own. Jobs survive a restart of the service.
    """


@service.command(context_settings={"ignore_unknown_options": True})
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS OF UP]")
@name_option
@click.option("--print", "only_print", is_flag=True, help="Print the unit and change nothing.")
@data_option
@json_option
def install(options: tuple[str, ...], name: str, only_print: bool, data: Path | None, as_json: bool) -> None:
    """Write a systemd unit, enable it and start it.

    Settings come from windfall.toml in the data directory, and from options of `windfall up` after `--`.
    """
    unit = Unit.named(name)
    directory = data_directory(data)
    _check(options, directory.root)
    text = unit.text(directory.root, options)
    if only_print:
        click.echo(text, nl=False)
        return
    unit.check_ours()
    holder = directory.holder()
    if holder is not None and not _is_active(unit):
        raise CliError(
            f"a daemon (pid {holder}) already uses {directory.root}; stop it with `windfall down` (its jobs go on), "
            "then install the service"
        )
    _warn(unit, directory.root)
    unit.write(text)
    has_systemd = _has_systemd(unit)
    if as_json:
        print_json({"name": name, "path": str(unit.path), "started": has_systemd})
    else:
        click.echo(f"wrote {unit.path}")
    start = [["daemon-reload"], ["enable", f"{name}.service"], ["restart", f"{name}.service"]]
    if not has_systemd:
        typed = " && ".join(" ".join([*unit.systemctl, *words]) for words in start)
        note(f"systemd does not answer here, so nothing was started; where it runs: {typed}")
        return
    for words in start:
        _systemctl(unit, *words)
    if not as_json:
        click.echo(f"{name}.service is enabled and started; its log: {_journal(unit)}")


@service.command()
@name_option
@json_option
def uninstall(name: str, as_json: bool) -> None:
    """Stop the service and remove its unit.

    The data directory stays, and jobs that run go on.
    """
    unit = Unit.named(name)
    unit.check_ours()
    if unit.is_ours() is None:
        raise CliError(f"there is no service {name}: {unit.path} does not exist")
    has_systemd = _has_systemd(unit)
    if has_systemd:
        _systemctl(unit, "disable", "--now", f"{name}.service")
    unit.path.unlink()
    if has_systemd:
        _systemctl(unit, "daemon-reload")
    if as_json:
        print_json({"name": name, "path": str(unit.path), "removed": True})
    else:
        click.echo(f"removed {unit.path}; data and jobs that run are untouched")


@service.command()
@name_option
@json_option
def status(name: str, as_json: bool) -> int:
    """Show whether the service is installed and runs.

    The exit code is 1 where it does not run.
    """
    unit = Unit.named(name)
    installed = unit.is_ours()
    shown = _shown(unit) if installed is not None and _has_systemd(unit) else {}
    active = shown.get("ActiveState") == "active"
    if as_json:
        print_json({"name": name, "path": str(unit.path), "installed": installed is not None, **shown})
        return 0 if active else 1
    if installed is None:
        raise CliError(f"there is no service {name}; `windfall service install` makes one")
    click.echo(
        f"unit      {unit.path}" + ("" if installed else " (not written by `windfall service install`)")
    )
    if not shown:
        note("systemd does not answer here")
        return 1
    click.echo(f"at boot   {'starts' if shown['UnitFileState'] == 'enabled' else shown['UnitFileState']}")
    pid = f", pid {shown['MainPID']}" if shown["MainPID"] != "0" else ""
    click.echo(f"state     {shown['ActiveState']} ({shown['SubState']}){pid}")
    click.echo(f"log       {_journal(unit)}")
    return 0 if active else 1


def _check(options: Sequence[str], data: Path) -> None:
    """Refuse what `windfall up` would refuse, and what must not be in a file that everybody can read."""
    from windfall.cli.up import up

    if any(_PASSWORD.search(word) for word in options):
        raise BadUsage("a password in an option can be read by every user; put it into ~/.pgpass instead")
    given: dict[str, Any] = up.make_context("windfall up", list(options)).params
    if given["data"] is not None:
        raise BadUsage("--data stands before `--`: windfall service install --data DIR -- OPTIONS OF UP")
    given["data"] = data
    try:
        read_settings(given, {})
    except DaemonError as error:
        raise BadUsage(str(error)) from None


def _warn(unit: Unit, data: Path) -> None:
    """Say what will surprise."""
    ignored = [name for name in os.environ if name.startswith(ENVIRONMENT_PREFIX) and name != "WINDFALL_DATA"]
    if ignored:
        note(f"the service does not see {', '.join(sorted(ignored))}; set it in {data / 'windfall.toml'}")
    if unit.of_user and not Path("/var/lib/systemd/linger", _user()).exists():
        linger = f"sudo loginctl enable-linger {_user()}"
        note(f"the service and its jobs end when you log out, unless you run: {linger}")
    owner = Path(program()[0]).stat().st_uid
    if owner not in (0, os.geteuid()):
        note(f"{program()[0]} belongs to another user (uid {owner}), who can change what this service runs")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A number without an account, as containers have it.
        return str(os.geteuid())


def _has_systemd(unit: Unit) -> bool:
    if shutil.which("systemctl") is None:
        return False
    done = subprocess.run(
        [*unit.systemctl, "show", "--property=Version"], capture_output=True, check=False, timeout=30
    )
    return done.returncode == 0


def _systemctl(unit: Unit, *words: str) -> str:
    """Run systemctl; CliError has its own words."""
    done = subprocess.run(
        [*unit.systemctl, *words], capture_output=True, text=True, errors="replace", check=False, timeout=180
    )
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise CliError(f"`{' '.join([*unit.systemctl, *words])}` failed: {said}; look at {_journal(unit)}")
    return done.stdout


def _shown(unit: Unit) -> dict[str, str]:
    printed = _systemctl(unit, "show", f"--property={','.join(_SHOWN)}", f"{unit.name}.service")
    properties = dict(line.partition("=")[::2] for line in printed.splitlines() if "=" in line)
    return {name: properties.get(name, "") for name in _SHOWN}


def _is_active(unit: Unit) -> bool:
    return unit.is_ours() is True and _has_systemd(unit) and _shown(unit)["ActiveState"] == "active"


def _journal(unit: Unit) -> str:
    return f"journalctl {'--user ' if unit.of_user else ''}-u {unit.name} -f"
