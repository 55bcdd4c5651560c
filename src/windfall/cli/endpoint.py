"""Where the daemon is and with which key to speak to it.

The data directory's own files come first, then the variables that `windfall env` exports, so that a user who
may not read the data directory can work too. Variables with the key of another daemon win over a directory that
nobody named. Must not open a connection.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from windfall.aws_api.protocol.errors import KeyFileError
from windfall.aws_api.protocol.keys import Key, Role, load_keys
from windfall.cli.errors import CliError, NoDaemon
from windfall.daemon.directory import DataDirectory
from windfall.daemon.settings import SYSTEM_DATA, default_data

#: The variable that tells AWS clients where a service is, for each service that is served.
ENDPOINT_VARIABLES = {
    "batch": "AWS_ENDPOINT_URL_BATCH",
    "cloudwatch": "AWS_ENDPOINT_URL_CLOUDWATCH",
    "iam": "AWS_ENDPOINT_URL_IAM",
    "logs": "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS",
    "sagemaker": "AWS_ENDPOINT_URL_SAGEMAKER",
    "sagemaker-runtime": "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME",
    "scheduler": "AWS_ENDPOINT_URL_SCHEDULER",
    "sts": "AWS_ENDPOINT_URL_STS",
}
#: Where the S3 server that `windfall up --s3` starts is; S3 stays at AWS without one.
S3_VARIABLE = "AWS_ENDPOINT_URL_S3"
#: Requests of any region are served; this one is signed for when the user has none.
DEFAULT_REGION = "us-east-1"
#: What a header, a shell and a line of a settings file keep as it is.
_ONE_WORD = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """All that a signed request needs."""

    url: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    region: str = DEFAULT_REGION
    #: Where else a daemon of the same store may answer.
    others: tuple[str, ...] = ()
    #: The data directory whose key it is; None for a key of the variables.
    directory: Path | None = None
    #: The user's own data directory, where variables lead to another daemon.
    instead_of: Path | None = None


def data_directory(data: Path | None) -> DataDirectory:
    """The data directory that is meant, whether it exists or not."""
    return DataDirectory((data or default_data()).absolute())


def find_endpoint(data: Path | None, environment: Mapping[str, str] | None = None) -> Endpoint:
    """Put the endpoint together, from files where they can be read and from AWS_* variables where not."""
    environ = os.environ if environment is None else environment
    directory = data_directory(data)
    region = _read(environ, "AWS_REGION") or _read(environ, "AWS_DEFAULT_REGION") or DEFAULT_REGION
    url = directory.read_address()
    named_url = environ.get(ENDPOINT_VARIABLES["batch"]) or None
    keys = readable_keys(directory)
    own: Path | None = None
    if url is not None and keys is not None:
        others = tuple(other for other in directory.other_addresses() if other != url)
        is_named = data is not None or "WINDFALL_DATA" in environ
        if is_named or named_url in {None, url, *others} or not _has_key_of_another_daemon(environ, keys):
            key = pick_key(keys, environ.get("AWS_ACCESS_KEY_ID"), directory)
            return Endpoint(
                url,
                key.access_key_id,
                key.secret_access_key,
                key.session_token,
                region,
                others,
                directory=directory.root,
            )
        own = directory.root
    if data is None:
        # A directory that was named means its daemon and no other.
        url = named_url or url
    if url is None:
        raise no_address(directory)
    if not is_address(url):
        raise not_an_address(url)
    key_id, secret = (_read(environ, name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
    if key_id is None or secret is None:
        raise CliError(
            f"you may not read the keys in {directory.root}; ask its owner for a key "
            "(`windfall keys create`) and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return Endpoint(url, key_id, secret, _read(environ, "AWS_SESSION_TOKEN"), region, instead_of=own)


def is_one_word(value: object) -> bool:
    """Whether a value is printable ASCII without a blank: others can add a line to a header or a settings file."""
    return isinstance(value, str) and _ONE_WORD.fullmatch(value) is not None


def is_address(url: object) -> bool:
    """Whether this is http://HOST:PORT, or the same with TLS."""
    try:
        parts = urlsplit(str(url))
        return (
            is_one_word(url)
            and parts.scheme in {"http", "https"}
            and bool(parts.hostname)
            and parts.port != 0
        )
    except ValueError:
        return False


def not_an_address(url: str) -> CliError:
    """The refusal of what cannot be asked."""
    return CliError(f"{url!r} is not an address; set {ENDPOINT_VARIABLES['batch']} to http://HOST:PORT")


def _read(environ: Mapping[str, str], name: str) -> str | None:
    """A variable; None where it is not set or empty. It is never shown: it may be a secret."""
    value = environ.get(name) or None
    if value is not None and not is_one_word(value):
        raise CliError(
            f"{name} holds a blank, a line break or a letter that is not ASCII; set it again without it"
        )
    return value


def _has_key_of_another_daemon(environ: Mapping[str, str], keys: Sequence[Key]) -> bool:
    """Whether the variables have a whole key of Windfall that is none of these."""
    from windfall.objects.credentials import is_api_key

    key_id = environ.get("AWS_ACCESS_KEY_ID", "")
    is_known = any(key.access_key_id == key_id for key in keys)
    return is_api_key(key_id) and "AWS_SECRET_ACCESS_KEY" in environ and not is_known


def no_address(directory: DataDirectory, system: Path = SYSTEM_DATA) -> NoDaemon:
    """The refusal when no daemon has ever listened for this directory."""
    is_own_place = "WINDFALL_DATA" not in os.environ and directory.root == default_data().absolute()
    shared = DataDirectory(system).read_address() if is_own_place and directory.root != system else None
    if shared is not None:
        return NoDaemon(
            f"you have no Windfall daemon of your own in {directory.root}; to use that of this machine at {shared}, ask"
            " its administrator for the lines of `windfall env --key ID`, with a key of `windfall keys create`; to"
            " start your own: `windfall up --port 0`"
        )
    return NoDaemon(
        f"no Windfall daemon is known in {directory.root}; start one with `windfall up`, or name its directory with"
        " --data DIR; for a daemon of another user, ask for the lines of `windfall env --key ID`"
    )


def readable_keys(directory: DataDirectory) -> list[Key] | None:
    """The keys; None where this user may not read them or there are none yet. A damaged file is an error."""
    if not os.access(directory.keys, os.R_OK):
        return None
    try:
        return load_keys(directory.keys)
    except KeyFileError as error:
        raise CliError(str(error)) from None


def pick_key(keys: Sequence[Key], preferred: str | None, directory: DataDirectory) -> Key:
    """The preferred key if it is a valid one of these, else the first admin key, else any that is valid."""
    valid = [key for key in keys if key.revoked_at is None]
    if not valid:
        raise CliError(f"every key in {directory.keys} is revoked; make one with `windfall keys create`")
    ranked = sorted(valid, key=lambda key: (key.access_key_id != preferred, key.role is not Role.ADMIN))
    return ranked[0]
