"""`windfall backup` and `windfall restore`: works on the data directory itself, so that only its owner can."""

from __future__ import annotations

import time
from pathlib import Path

import click

from windfall.cli.attempts import size
from windfall.cli.endpoint import data_directory
from windfall.cli.errors import CliError
from windfall.cli.notes import note
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.wording import ago, counted
from windfall.daemon.errors import DaemonError

file_argument = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.command()
@file_argument
@click.option("--no-store", is_flag=True, help="Leave the store out, which is a PostgreSQL database.")
@data_option
@json_option
def backup(file: Path, no_store: bool, data: Path | None, as_json: bool) -> None:
    """Write the store, keys, settings and secrets to FILE, also while the daemon runs.

    FILE holds secrets and has mode 0600. Checkpoints and logs are not in it.
    """
    from windfall.daemon.backups import make_backup

    directory = data_directory(data)
    try:
        made = make_backup(
            directory, file.absolute(), with_store=not no_store, now=time.time_ns() // 1_000_000
        )
    except DaemonError as error:
        raise CliError(str(error)) from None
    length = file.stat().st_size
    if as_json:
        print_json(
            {"file": str(file.absolute()), "bytes": length, "files": made.files, "hasStore": made.has_store}
        )
        return
    click.echo(f"wrote {file}: {counted(len(made.files), 'file')} of {directory.root}, {size(length)}")
    note("it holds keys and secrets: keep it where only you can read it; checkpoints and logs are not in it")


@click.command()
@file_argument
@click.option("--force", is_flag=True, help="Put aside what is in the data directory already.")
@data_option
@json_option
def restore(file: Path, force: bool, data: Path | None, as_json: bool) -> None:
    """Put back what `windfall backup` wrote, into an empty data directory.

    Jobs that ran when the backup was made are retried by their rules.
    """
    from windfall.daemon.backups import read_backup, restore_backup

    directory = data_directory(data)
    try:
        backup = read_backup(file)
        aside = restore_backup(directory, file, replace=force)
    except DaemonError as error:
        raise CliError(str(error)) from None
    if as_json:
        print_json(
            {
                "data": str(directory.root),
                "createdAt": backup.created_at,
                "files": backup.files,
                "aside": aside,
            }
        )
        return
    now = time.time_ns() // 1_000_000
    made = f"made {ago(backup.created_at, now)} by Windfall {backup.version} from {backup.data}"
    click.echo(f"restored {counted(len(backup.files), 'file')} into {directory.root}; the backup was {made}")
    for path in aside:
        note(f"put aside {path}")
    if not backup.has_store:
        note("the backup has no store: restore the PostgreSQL database with pg_restore before `windfall up`")
    click.echo(f"start it: windfall up --data {directory.root}")
