"""`windfall keys`: works on the keys file itself, so that only the owner of the data directory can.

A secret is shown once, when its key is made. The daemon reads the file again when it changes.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any

import click

from windfall.aws_api.protocol.errors import KeyFileError
from windfall.aws_api.protocol.keys import Key, Role, create_key, list_keys, revoke_key
from windfall.cli.endpoint import data_directory
from windfall.cli.errors import CliError
from windfall.cli.notes import note
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.wording import ago, moment


@click.group()
def keys() -> None:
    """Create, list and revoke access keys.

    A key has a role: `read` may look, `submit` may also run and stop jobs, `admin` may do everything.
    """


@keys.command()
@click.option("--role", type=click.Choice(["admin", "submit", "read"]), default="submit", show_default=True)
@click.option("--tenant", default="default", show_default=True, help="The tenant that the key belongs to.")
@click.option("--user", metavar="NAME", help="Unix account that its jobs run as (the daemon must be root).")
@click.option("--name", help="Who holds the key, as `windfall jobs` and `windfall cost` call the owner.")
@data_option
@json_option
def create(
    role: str, tenant: str, user: str | None, name: str | None, data: Path | None, as_json: bool
) -> None:
    """Make a key and show its secret, once."""
    path = _file(data)
    try:
        key = create_key(path, role=Role[role.upper()], tenant=tenant, now=_now(), user=user, name=name)
    except KeyFileError as error:
        raise _refusal(error) from None
    if as_json:
        print_json(_described(key) | {"secretAccessKey": key.secret_access_key})
        return
    click.echo(f"AWS_ACCESS_KEY_ID={key.access_key_id}\nAWS_SECRET_ACCESS_KEY={key.secret_access_key}")
    where = "" if data is None else f" --data {shlex.quote(str(data))}"
    note(
        "the secret is shown this once; what its holder sets in a shell, with the address:"
        f" windfall env{where} --key {key.access_key_id}"
    )


@keys.command(name="list")
@data_option
@json_option
def list_(data: Path | None, as_json: bool) -> None:
    """List keys without their secrets."""
    all_keys = _loaded(_file(data))
    if as_json:
        print_json({"keys": [_described(key) for key in all_keys]})
        return
    from windfall.cli.tables import Column, print_table

    now = _now()
    has_names = any(key.name is not None for key in all_keys)
    has_users = any(key.user is not None for key in all_keys)
    print_table(
        [
            Column("KEY"),
            *([Column("NAME", shrinks=True)] if has_names else []),
            Column("ROLE"),
            Column("TENANT", shrinks=True),
            *([Column("USER", shrinks=True)] if has_users else []),
            Column("CREATED", optional=True),
            Column("REVOKED"),
        ],
        [
            [
                key.access_key_id,
                *([key.name or "-"] if has_names else []),
                key.role.name.lower(),
                key.tenant,
                *([key.user or "-"] if has_users else []),
                ago(key.created_at, now),
                moment(key.revoked_at),
            ]
            for key in all_keys
        ],
    )


@keys.command()
@click.argument("key_id", metavar="ID")
@data_option
@json_option
def revoke(key_id: str, data: Path | None, as_json: bool) -> None:
    """Revoke a key; requests that it signed are refused from now on."""
    path = _file(data)
    last_admin = [k for k in _loaded(path) if k.role is Role.ADMIN and k.revoked_at is None]
    if [k.access_key_id for k in last_admin] == [key_id]:
        raise CliError(
            f"{key_id} is the last admin key; make another first with `windfall keys create --role admin`"
        )
    try:
        key = revoke_key(path, key_id, now=_now())
    except KeyFileError as error:
        raise _refusal(error) from None
    if as_json:
        print_json(_described(key))
    else:
        click.echo(f"{key.access_key_id} is revoked")


def _file(data: Path | None) -> Path:
    directory = data_directory(data)
    if not directory.keys.exists():
        raise CliError(
            f"there are no keys in {directory.root}; start the daemon with `windfall up`, "
            "or name its directory with --data DIR"
        )
    return directory.keys


def _loaded(path: Path) -> list[Key]:
    try:
        return list_keys(path)
    except KeyFileError as error:
        raise _refusal(error) from None


def _refusal(error: KeyFileError) -> CliError:
    return CliError(str(error).removesuffix("."))


def _described(key: Key) -> dict[str, Any]:
    return {
        "accessKeyId": key.access_key_id,
        "role": key.role.name.lower(),
        "tenant": key.tenant,
        "user": key.user,
        "name": key.name,
        "createdAt": key.created_at,
        "revokedAt": key.revoked_at,
    }


def _now() -> int:
    return time.time_ns() // 1_000_000
