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
from windfall.jobs.git_credentials import (
    DEFAULT_USERNAME,
    BadCredential,
    GitCredential,
    checked_host,
    credential_name,
    encode_credential,
)

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
    answer = connect(data).own("SetSecret", name=name, value=_value(file), **_of(tenant))
    if as_json:
        print_json(answer)
    else:
        click.echo(
            f"{name} is {'replaced' if answer['replaced'] else 'set'}; jobs that start from now on get it"
        )


@secret.command()
@click.argument("host", metavar="HOST")
@click.option(
    "--from-file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Read the token from this file; without it stdin is read.",
)
@click.option("--username", default=None, metavar="NAME", help="The user name that goes with the token.")
@click.option(
    "--ssh-key",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep the SSH private key in this file instead of a token; it must have no passphrase.",
)
@click.option(
    "--known-hosts",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Accept the host keys in this file alone; without it, the key that the host shows.",
)
@click.option("--remove", "gone", is_flag=True, help="Remove the credential.")
@tenant_option
@data_option
@json_option
def git(
    host: str,
    file: Path | None,
    username: str | None,
    ssh_key: Path | None,
    known_hosts: Path | None,
    gone: bool,
    tenant: str | None,
    data: Path | None,
    as_json: bool,
) -> None:
    """Keep a credential for the private repositories of HOST.

    A token is read from stdin or a file. Code from Git is fetched with it; jobs cannot ask for it.
    """
    if ssh_key is not None and (file is not None or username is not None):
        raise BadUsage("--ssh-key goes with neither --from-file nor --username: give a token or a key")
    if ssh_key is None and known_hosts is not None:
        raise BadUsage("--known-hosts goes with --ssh-key")
    try:
        name = credential_name(checked_host(host, "https" if ssh_key is None else "ssh"))
        if gone:
            connect(data).own("RemoveSecret", name=name, **_of(tenant))
        else:
            value = encode_credential(_credential(file, username, ssh_key, known_hosts))
            connect(data).own("SetSecret", name=name, value=value, **_of(tenant))
    except BadCredential as problem:
        raise BadUsage(str(problem)) from None
    if as_json:
        print_json({"name": name})
    else:
        click.echo(f"{name} is {'removed' if gone else 'set; code that is fetched from now on uses it'}")


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
        [Column("NAME"), Column("SET")],
        [[secret["name"], ago(secret["setAt"], now)] for secret in answer["secrets"]],
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


def _credential(
    file: Path | None, username: str | None, ssh_key: Path | None, known_hosts: Path | None
) -> GitCredential:
    if ssh_key is None:
        return GitCredential(username=username or DEFAULT_USERNAME, token=_value(file).strip())
    hosts = _value(known_hosts, "--known-hosts") if known_hosts is not None else ""
    return GitCredential(ssh_key=_value(ssh_key, "--ssh-key"), known_hosts=hosts)


def _of(tenant: str | None) -> dict[str, str]:
    return {} if tenant is None else {"tenant": tenant}


def _value(file: Path | None, option: str = "--from-file") -> str:
    try:
        if file is not None:
            return _text(file.read_bytes())
        if sys.stdin.isatty():
            # Not echoed, as passwords are not.
            return str(click.prompt("Value", hide_input=True, err=True))
        return _text(sys.stdin.buffer.read()).removesuffix("\n")
    except OSError as error:
        raise BadUsage(
            f"{file or 'stdin'} cannot be read: {error.strerror}; name another with {option}"
        ) from None


def _text(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise BadUsage("a secret must be text in UTF-8; encode other bytes first, as with base64") from None
    if not text.removesuffix("\n"):
        raise BadUsage("the value is empty; write it to stdin, or name a file with --from-file")
    return text
