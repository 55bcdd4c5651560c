"""`windfall env`: the variables that point AWS clients here, and nothing else of theirs.

Only the services that Windfall serves get an endpoint, so that all other AWS services stay where they were.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from windfall.aws_api.protocol.keys import Key
from windfall.cli.client import Client
from windfall.cli.endpoint import (
    ENDPOINT_VARIABLES,
    S3_VARIABLE,
    Endpoint,
    data_directory,
    no_address,
    pick_key,
    readable_keys,
)
from windfall.cli.errors import CliError
from windfall.cli.notes import note
from windfall.cli.options import data_option, json_option, print_json
from windfall.daemon.directory import DataDirectory
from windfall.daemon.errors import DaemonError
from windfall.daemon.settings import read_settings

_OTHERS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "WINDFALL_DATA",
)


@click.command()
@data_option
@click.option("--key", "key_id", metavar="ID", help="Access key to use (default: the first admin key).")
@click.option("--unset", is_flag=True, help="Print lines that take the variables away again.")
@json_option
def env(data: Path | None, key_id: str | None, unset: bool, as_json: bool) -> None:
    """Print export lines for AWS clients.

    Use it as `eval "$(windfall env)"`. After that the aws command line, boto3, Terraform and the others
    talk to Windfall for the services that it serves, and to AWS for all others.
    """
    names = [*ENDPOINT_VARIABLES.values(), S3_VARIABLE, *_OTHERS]
    if unset:
        print_json({"unset": names}) if as_json else click.echo("\n".join(f"unset {name}" for name in names))
        return
    directory = data_directory(data)
    url = directory.read_address()
    if url is None:
        raise no_address(directory)
    key = _key(directory, key_id)
    region, s3_url = _told_by_daemon(directory, url, key)
    values = {
        **dict.fromkeys(ENDPOINT_VARIABLES.values(), url),
        "AWS_ACCESS_KEY_ID": key.access_key_id,
        "AWS_SECRET_ACCESS_KEY": key.secret_access_key,
        "AWS_DEFAULT_REGION": region,
        "AWS_REGION": region,
        "WINDFALL_DATA": str(directory.root),
    }
    if s3_url is not None:
        values[S3_VARIABLE] = s3_url
    if key.session_token is not None:
        values["AWS_SESSION_TOKEN"] = key.session_token
    if as_json:
        print_json(values)
        return
    click.echo("\n".join(f"export {name}={shlex.quote(value)}" for name, value in values.items()))
    if key.session_token is None:
        # A token left from other credentials would be sent along with this key, and refused.
        click.echo("unset AWS_SESSION_TOKEN")


def _key(directory: DataDirectory, key_id: str | None) -> Key:
    keys = readable_keys(directory)
    if keys is None:
        raise CliError(
            f"you may not read the keys in {directory.root}; ask its owner for a key (`windfall keys create`)"
        )
    key = pick_key(keys, key_id, directory)
    if key_id is not None and key.access_key_id != key_id:
        raise CliError(f"{key_id} is no valid key; `windfall keys list` shows those that are")
    return key


def _told_by_daemon(directory: DataDirectory, url: str, key: Key) -> tuple[str, str | None]:
    """The region that the daemon was started with (from its settings when it does not answer), and its S3 server."""
    endpoint = Endpoint(url, key.access_key_id, key.secret_access_key, key.session_token)
    client = Client(endpoint, timeout_s=2)
    try:
        status = client.own("Status")
        if isinstance(region := status.get("region"), str):
            return region, status.get("s3Url")
    except CliError as error:
        note(str(error))
    finally:
        client.close()
    try:
        return read_settings({"data": directory.root}).region, None
    except DaemonError as error:
        raise CliError(str(error)) from None
