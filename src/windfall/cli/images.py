"""`windfall image`: what image names stand for on this host.

With it, job definitions that were written for containers run as processes, unmodified.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from windfall.cli.client import connect
from windfall.cli.errors import BadUsage
from windfall.cli.options import data_option, json_option, print_json, read_variables


@click.group()
def image() -> None:
    """Map image names to directories of this host.

    A job whose image is mapped runs in that directory, or in one of its own, with the entrypoint before its command.
    """


@image.command()
@click.argument("pattern", metavar="IMAGE")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="Directory that all its jobs run in; must exist. Without it each job has an empty one of its own.",
)
@click.option("--entrypoint", metavar="COMMAND", help='Put before the job\'s command, as "python3 train.py".')
@click.option("--env", "variables", metavar="K=V", multiple=True, help="A variable; may be repeated.")
@data_option
@json_option
def add(
    pattern: str,
    directory: Path | None,
    entrypoint: str | None,
    variables: tuple[str, ...],
    data: Path | None,
    as_json: bool,
) -> None:
    """Map IMAGE (a name, or a glob such as 'team/*') to a directory, or to this host's programs alone."""
    added = connect(data).own(
        "AddImage",
        pattern=pattern,
        directory=None if directory is None else _absolute(directory),
        entrypoint=_split(entrypoint),
        environment=read_variables(variables),
    )
    if as_json:
        print_json(added)
    else:
        click.echo(f"{pattern} runs in {added['directory'] or 'a directory of its own for each job'}")


@image.command(name="list")
@data_option
@json_option
def list_(data: Path | None, as_json: bool) -> None:
    """List what images are mapped to."""
    answer = connect(data).own("ListImages")
    if as_json:
        print_json(answer)
        return
    if not answer["images"]:
        click.echo("windfall: no image is mapped; `windfall image add IMAGE --dir DIR` maps one", err=True)
        return
    from windfall.cli.tables import Column, print_table

    print_table(
        [
            Column("IMAGE"),
            Column("DIRECTORY", shrinks=True),
            Column("ENTRYPOINT", shrinks=True),
            Column("ENVIRONMENT", shrinks=True, optional=True),
        ],
        [
            [
                mapping["pattern"],
                mapping["directory"] or "(private)",
                shlex.join(mapping["entrypoint"]),
                # Names only: a value may be a secret, and --json shows it to who asks.
                ", ".join(mapping["environment"]),
            ]
            for mapping in answer["images"]
        ],
    )


@image.command()
@click.argument("pattern", metavar="IMAGE")
@data_option
@json_option
def remove(pattern: str, data: Path | None, as_json: bool) -> None:
    """Remove a mapping; jobs that run keep theirs."""
    connect(data).own("RemoveImage", pattern=pattern)
    if as_json:
        print_json({"pattern": pattern})
    else:
        click.echo(f"{pattern} is no longer mapped")


def _absolute(directory: Path) -> str:
    place = directory.expanduser().absolute()
    if not place.is_dir():
        raise BadUsage(f"{place} is not a directory; make it first, or name another with --dir")
    # Without `..`, but with its links: what a link leads to may be changed later, on purpose.
    return str(place if ".." not in place.parts else place.resolve())


def _split(entrypoint: str | None) -> list[str]:
    try:
        return shlex.split(entrypoint or "")
    except ValueError as error:
        raise BadUsage(f"--entrypoint {entrypoint!r} cannot be split: {error}; check its quotes") from None
