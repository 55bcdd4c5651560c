"""`windfall env`: what points AWS clients here, as a profile beside the user's own or as variables of one shell.

Only the services that Windfall serves get an endpoint. Variables replace the user's own key while they are set; a
profile replaces nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from windfall.aws_api.protocol.keys import Key
from windfall.cli.aws_profile import AwsFiles, AwsProfile, check_name, remove_profile, write_profile
from windfall.cli.client import Client
from windfall.cli.endpoint import (
    ENDPOINT_VARIABLES,
    S3_VARIABLE,
    Endpoint,
    data_directory,
    find_endpoint,
    is_address,
    is_one_word,
    no_address,
    pick_key,
    readable_keys,
)
from windfall.cli.errors import BadUsage, CliError
from windfall.cli.notes import note
from windfall.cli.options import data_option, json_option, print_json
from windfall.cli.shell_forms import SHELLS, calling_shell, how_to_use, setting, unsetting
from windfall.daemon.directory import DataDirectory
from windfall.daemon.errors import DaemonError
from windfall.daemon.settings import read_settings
from windfall.objects.credentials import API_KEY_START, is_api_key

_PREFIX = "AWS_ENDPOINT_URL_"
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
@click.option(
    "--profile", metavar="NAME", help="Write a profile for AWS clients instead of printing variables."
)
@click.option("--remove", is_flag=True, help="With --profile: take that profile away again.")
@click.option("--unset", is_flag=True, help="Print lines that bring back what the variables were before.")
@click.option(
    "--shell", type=click.Choice(SHELLS), help="Form of the lines (default: that of the calling shell)."
)
@json_option
def env(
    data: Path | None,
    key_id: str | None,
    profile: str | None,
    remove: bool,
    unset: bool,
    shell: str | None,
    as_json: bool,
) -> None:
    """Point AWS clients here: by a profile, or by variables of a shell.

    `windfall env --profile windfall` writes a profile into ~/.aws; then `aws --profile windfall batch ...` asks
    Windfall, and everything else of your AWS access stays as it was.

    `eval "$(windfall env)"` sets variables in one shell. While they are set, that shell's own AWS key is replaced.
    """
    _check_options(profile, remove, unset, shell)
    if profile is not None and remove:
        _remove(profile, as_json)
        return
    names = [*ENDPOINT_VARIABLES.values(), S3_VARIABLE, *_OTHERS]
    form = shell or calling_shell()
    if unset:
        line = unsetting(form, names, "AWS_ACCESS_KEY_ID", API_KEY_START)
        print_json({"unset": names}) if as_json else click.echo(line)
        return
    by_shell = _variables_of_this_shell() if profile is not None and data is None and key_id is None else None
    values = by_shell or _values(data, key_id)
    if profile is not None:
        _write(profile, values, as_json)
        return
    if as_json:
        print_json(values)
        return
    # A token left from other credentials would be sent along with this key, and refused.
    absent = [] if "AWS_SESSION_TOKEN" in values else ["AWS_SESSION_TOKEN"]
    restore = how_to_use(form, "windfall env --unset")
    click.echo("\n".join(setting(form, names, values, absent)))
    # Last, because a shell that joins the lines to one must not take them for a comment.
    click.echo(
        f"# These replace the AWS key and region of this shell for all AWS services. To bring yours back: {restore}"
    )
    _warn_of_own_access(restore)


def _check_options(profile: str | None, remove: bool, unset: bool, shell: str | None) -> None:
    if profile is not None:
        check_name(profile)
        if unset or shell is not None:
            raise BadUsage(
                "--profile excludes --unset and --shell; a profile is a file, and --remove removes it"
            )
    elif remove:
        raise BadUsage("--remove needs --profile NAME; --unset takes variables away")


def _values(data: Path | None, key_id: str | None) -> dict[str, str]:
    """All variables, by name."""
    directory = data_directory(data)
    url = directory.read_address()
    if url is None:
        raise no_address(directory)
    key = _key(directory, key_id)
    endpoint = Endpoint(url, key.access_key_id, key.secret_access_key, key.session_token)
    variables = _variables(endpoint, *_told_by_daemon(directory, endpoint))
    return {**variables, "WINDFALL_DATA": str(directory.root)}


def _variables_of_this_shell() -> dict[str, str] | None:
    """The same for a daemon whose directory this user cannot read: of another user, or on another host."""
    if readable_keys(data_directory(None)) is not None or ENDPOINT_VARIABLES["batch"] not in os.environ:
        return None
    endpoint = find_endpoint(None)
    return _variables(endpoint, *_told_by_daemon(data_directory(None), endpoint))


def _variables(endpoint: Endpoint, region: str, s3_url: str | None, usher_url: str | None) -> dict[str, str]:
    values = {
        **dict.fromkeys(ENDPOINT_VARIABLES.values(), endpoint.url),
        "AWS_ACCESS_KEY_ID": endpoint.access_key_id,
        "AWS_SECRET_ACCESS_KEY": endpoint.secret_access_key,
        "AWS_DEFAULT_REGION": region,
        "AWS_REGION": region,
    }
    if s3_url is not None:
        values[S3_VARIABLE] = s3_url
    if usher_url is not None:
        # Before the first endpoint there is no usher. The daemon's address does then: it hands requests on.
        values[ENDPOINT_VARIABLES["sagemaker-runtime"]] = usher_url
    if endpoint.session_token is not None:
        values["AWS_SESSION_TOKEN"] = endpoint.session_token
    return values


def _write(name: str, values: Mapping[str, str], as_json: bool) -> None:
    files = AwsFiles.of(os.environ)
    services = {
        variable.removeprefix(_PREFIX).lower(): url
        for variable, url in values.items()
        if variable.startswith(_PREFIX)
    }
    key = (values["AWS_ACCESS_KEY_ID"], values["AWS_SECRET_ACCESS_KEY"], values.get("AWS_SESSION_TOKEN"))
    write_profile(files, AwsProfile(name, values["AWS_REGION"], services, *key))
    if as_json:
        print_json({"profile": name, "config": str(files.config), "credentials": str(files.credentials)})
        return
    click.echo(f"wrote the profile {name} into {files.config} and {files.credentials}")
    click.echo(f"try: aws --profile {name} batch describe-job-queues")
    if "AWS_ACCESS_KEY_ID" in os.environ:
        note(
            "AWS_ACCESS_KEY_ID is set in this shell and wins over AWS_PROFILE; "
            f"`aws --profile {name}` and boto3.Session(profile_name={name!r}) work"
        )


def _remove(name: str, as_json: bool) -> None:
    removed = remove_profile(AwsFiles.of(os.environ), name)
    if as_json:
        print_json({"profile": name, "removed": removed})
    elif removed:
        click.echo(f"removed the profile {name}")
    else:
        note(f"there is no profile {name} that `windfall env --profile {name}` wrote")


def _warn_of_own_access(restore: str) -> None:
    own = os.environ.get("AWS_ACCESS_KEY_ID", "")
    if own and not is_api_key(own):
        note(
            f"your own AWS key ({own[:4]}...) is replaced in this shell until {restore}; "
            "to keep it: windfall env --profile windfall"
        )


def _key(directory: DataDirectory, key_id: str | None) -> Key:
    keys = readable_keys(directory)
    if keys is None:
        raise CliError(
            f"you may not read the keys in {directory.root}; ask its owner for a key (`windfall keys create`)"
        )
    key = pick_key(keys, key_id, directory)
    if key_id is not None and key.access_key_id != key_id:
        raise CliError(f"{key_id} is not a valid key; `windfall keys list` shows those that are")
    return key


def _told_by_daemon(directory: DataDirectory, endpoint: Endpoint) -> tuple[str, str | None, str | None]:
    """The daemon's region (from its settings when it does not answer), its S3 server, and its usher."""
    client, status = Client(endpoint, timeout_s=2), {}
    try:
        status = client.own("Status")
    except CliError as error:
        note(str(error))
    finally:
        client.close()
    if "region" in status:
        return _checked(endpoint, status["region"], status.get("s3Url"), status.get("usherUrl"))
    try:
        return read_settings({"data": directory.root}).region, None, None
    except DaemonError as error:
        raise CliError(str(error)) from None


def _checked(
    endpoint: Endpoint, region: Any, s3_url: Any, usher_url: Any
) -> tuple[str, str | None, str | None]:
    """What a daemon said, which may be somebody else's: a line break in it would add lines to ~/.aws/config."""
    if not is_one_word(region) or not all(url is None or is_address(url) for url in (s3_url, usher_url)):
        raise CliError(
            f"the daemon at {endpoint.url} names the region {region!r}, the S3 server {s3_url!r} and the usher"
            f" {usher_url!r}, which is not usable; nothing is written"
        )
    return region, s3_url, usher_url
