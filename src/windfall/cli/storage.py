"""`windfall storage`: which object storage jobs of submit keys may name beyond their tenant's own."""

from __future__ import annotations

from pathlib import Path

import click

from windfall.cli.client import connect
from windfall.cli.options import data_option, json_option, print_json

tenant_option = click.option(
    "--tenant", metavar="T", help="For this tenant alone; without it, for every tenant."
)


@click.group()
def storage() -> None:
    """Register object storage for jobs.

    Jobs of an admin key may name any storage; jobs of other keys what their tenant owns, and what is registered here.
    """


@storage.command()
@click.argument("uri", metavar="URI")
@click.option("--write", is_flag=True, help="Jobs may write there too.")
@tenant_option
@data_option
@json_option
def add(uri: str, write: bool, tenant: str | None, data: Path | None, as_json: bool) -> None:
    """Let jobs use URI (file:///DIRECTORY or s3://BUCKET/PREFIX) and everything below it."""
    added = connect(data).own("AddStorage", uri=_as_uri(uri), write=write, tenant=tenant)
    if as_json:
        print_json(added)
        return
    doing = "read and write" if added["write"] else "read"
    click.echo(f"jobs of {_whose(added['tenant'])} may {doing} {added['uri']}")
    if added["note"]:
        click.echo(f"windfall: {added['note']}", err=True)


@storage.command(name="list")
@data_option
@json_option
def list_(data: Path | None, as_json: bool) -> None:
    """List what is registered, and what your tenant owns."""
    answer = connect(data).own("ListStorage")
    if as_json:
        print_json(answer)
        return
    from windfall.cli.tables import Column, print_table

    rows = [[uri, "read, write", answer["tenant"], "its own"] for uri in answer["own"]]
    rows += [
        [place["uri"], "read, write" if place["write"] else "read", place["tenant"] or "(all)", "registered"]
        for place in answer["places"]
    ]
    print_table([Column("URI", shrinks=True), Column("MAY"), Column("TENANT"), Column("HOW")], rows)


@storage.command()
@click.argument("uri", metavar="URI")
@tenant_option
@data_option
@json_option
def remove(uri: str, tenant: str | None, data: Path | None, as_json: bool) -> None:
    """Take a place back; attempts that run keep it, the next ones are refused."""
    connect(data).own("RemoveStorage", uri=_as_uri(uri), tenant=tenant)
    if as_json:
        print_json({"uri": uri, "tenant": tenant})
    else:
        click.echo(f"{uri} is no longer registered for {_whose(tenant)}")


def _as_uri(place: str) -> str:
    """A URI, or a directory of this host by its path."""
    return place if "://" in place else Path(place).expanduser().absolute().as_uri()


def _whose(tenant: str | None) -> str:
    return "every tenant" if tenant is None else f"tenant {tenant}"
