"""`windfall secret`: values that jobs are given by name, and that nobody can read back.

A value comes from stdin or a file, never from the command line, which every user of the machine can read.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from windfall.cli.client import connect
from windfall.cli.errors import BadUsage
from windfall.cli.options import data_option, json_option, print_json

tenant_option = click.option(
    "--tenant", default=None, help="Whose secret it is; without it, that of the key's own tenant."
)


@click.group()
def secret() -> None:
    """Keep secrets for jobs, by name.

    A job definition asks for them in `secrets`: [{"name": "HF_TOKEN", "valueFrom": "hf-token"}].
    """


@secret.command(name="set")
@click.argument("name", metavar="NAME")
@click.option(
    "--from-file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Read the value from this file, byte for byte; without it stdin is read.",
)
@tenant_option
@data_option
@json_option
def set_(name: str, file: Path | None, tenant: str | None, data: Path | None, as_json: bool) -> None:
    """Set NAME to what is on stdin or in a file.

    One newline at its end is left out.
    """
    kept = connect(data).own("SetSecret", name=name, value=_value(file), **_of(tenant))
    if as_json:
        print_json(kept)
    else:
        click.echo(
            f"{name} is {'replaced' if kept['replaced'] else 'set'}; jobs that start from now on get it"
        )


@secret.command(name="list")
@tenant_option
@data_option
@json_option
def list_(tenant: str | None, data: Path | None, as_json: bool) -> None:
    """List the names of secrets; their values stay where they are."""
    answer = connect(data).own("ListSecrets", **_of(tenant))
    if as_json:
        print_json(answer)
        return
    if not answer["secrets"]:
        click.echo("windfall: there is no secret; `windfall secret set NAME` keeps one", err=True)
        return
    import time

    from windfall.cli.tables import Column, print_table
    from windfall.cli.wording import ago

    now = time.time_ns() // 1_000_000
    print_table(
        [Column("NAME"), Column("SET")], [[one["name"], ago(one["setAt"], now)] for one in answer["secrets"]]
    )


@secret.command()
@click.argument("name", metavar="NAME")
@tenant_option
@data_option
@json_option
def remove(name: str, tenant: str | None, data: Path | None, as_json: bool) -> None:
    """Remove a secret; jobs that run keep it.

    Later ones that name it fail to start.
    """
    connect(data).own("RemoveSecret", name=name, **_of(tenant))
    if as_json:
        print_json({"name": name})
    else:
        click.echo(f"{name} is removed")


def _of(tenant: str | None) -> dict[str, str]:
    return {} if tenant is None else {"tenant": tenant}


def _value(file: Path | None) -> str:
    try:
        if file is not None:
            return _text(file.read_bytes())
        if sys.stdin.isatty():
            # Not echoed, as passwords are not.
            return str(click.prompt("Value", hide_input=True, err=True))
        return _text(sys.stdin.buffer.read()).removesuffix("\n")
    except OSError as error:
        raise BadUsage(
            f"{file or 'stdin'} cannot be read: {error.strerror}; name another with --from-file"
        ) from None


def _text(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise BadUsage("a secret must be text in UTF-8; encode other bytes first, as with base64") from None
    if not text.removesuffix("\n"):
        raise BadUsage("the value is empty; write it to stdin, or name a file with --from-file")
    return text
