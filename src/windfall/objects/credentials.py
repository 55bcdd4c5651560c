"""Where the keys of an S3 store come from, and where it is.

Decides the order of the usual places: what the caller gives, then the environment, then the shared credentials and
config files (static keys alone), then what the machine itself has (container or instance role, asked by obstore). The
service models' library knows more places but is kept out of this layer. Must not know what is stored.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from windfall.objects.errors import BadUri, Refused

DEFAULT_REGION = "us-east-1"
#: The id of a key, its secret and the token of a session.
KEY_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
#: What every access key of Windfall begins with.
API_KEY_START = "WNDF"
#: `windfall env` keeps what a variable of the shell had before under its name with this in front.
KEPT = "_WINDFALL_KEPT_"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ROLES_OF_THE_MACHINE = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


@dataclass(frozen=True, slots=True)
class ObjectOptions:
    """What a caller may fix for an S3 store; what is None comes from the usual places."""

    endpoint_url: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None
    region: str | None = None
    profile: str | None = None
    #: Unencrypted HTTP to other hosts than this one.
    allow_http: bool = False

    def __repr__(self) -> str:
        """Without secrets: options end up in logs."""
        return f"ObjectOptions(endpoint_url={self.endpoint_url!r}, access_key_id={self.access_key_id!r})"


def is_api_key(access_key_id: str) -> bool:
    """Whether a key has the form of one of Windfall's API, which opens no storage but Windfall's own."""
    return access_key_id.startswith(API_KEY_START)


def resolved(options: ObjectOptions, environment: Mapping[str, str]) -> ObjectOptions:
    """The options with what the environment and the shared files add; Refused where there can be no keys at all."""
    profile = options.profile or environment.get("AWS_PROFILE") or "default"
    stored = stored_profile(profile, environment)
    endpoint = (
        options.endpoint_url
        or environment.get("AWS_ENDPOINT_URL_S3")
        or environment.get("AWS_ENDPOINT_URL")
        or stored.get("endpoint_url")
    )
    region = (
        options.region
        or environment.get("AWS_REGION")
        or environment.get("AWS_DEFAULT_REGION")
        or stored.get("region")
        or DEFAULT_REGION
    )
    allow_http = options.allow_http or environment.get("AWS_ALLOW_HTTP", "").lower() == "true"
    completed = replace(options, endpoint_url=endpoint, region=region, allow_http=allow_http, profile=profile)
    _check_endpoint(completed)
    return _with_keys(completed, stored, environment, by_name=options.profile is not None)


def _with_keys(
    options: ObjectOptions, stored: Mapping[str, str], environment: Mapping[str, str], *, by_name: bool
) -> ObjectOptions:
    if options.access_key_id and options.secret_access_key:
        return options
    # A profile that the caller asks for goes before keys in the environment; AWS_PROFILE goes after them.
    around = {name.lower(): value for name, value in environment.items() if name.startswith("AWS_")}
    for keys in (stored, around) if by_name else (around, stored):
        if keys.get("aws_access_key_id") and keys.get("aws_secret_access_key"):
            return replace(
                options,
                access_key_id=keys["aws_access_key_id"],
                secret_access_key=keys["aws_secret_access_key"],
                session_token=keys.get("aws_session_token"),
            )
    machine_disabled = environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
    if machine_disabled and not any(environment.get(name) for name in _ROLES_OF_THE_MACHINE):
        raise Refused(
            "no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or put them under "
            f"[{options.profile}] in ~/.aws/credentials, or start with `windfall up --s3`, which has its own"
        )
    return options


def _check_endpoint(options: ObjectOptions) -> None:
    if options.endpoint_url is None:
        return
    parts = urlsplit(options.endpoint_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadUri(
            f"{options.endpoint_url!r} is not the address of an S3 server: give http://host:port or https://host"
        )
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK and not options.allow_http:
        raise BadUri(
            f"{options.endpoint_url} is not encrypted and not on this machine: use https, "
            "or set AWS_ALLOW_HTTP=true if you trust the network between"
        )


def is_loopback(url: str) -> bool:
    """Whether an address is this machine's own."""
    return urlsplit(url).hostname in _LOOPBACK


def stored_profile(profile: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What the shared config and credentials files say under one profile; the latter wins."""
    home = Path(environment.get("HOME") or "~").expanduser() / ".aws"
    config = Path(environment.get("AWS_CONFIG_FILE") or home / "config")
    credentials = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials")
    section = profile if profile == "default" else f"profile {profile}"
    return {**_section(config, section), **_section(credentials, profile)}


def _section(path: Path, name: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"), source=str(path))
    except (OSError, UnicodeError):
        return {}  # no file, or none that we may read: the next place is asked
    except configparser.Error as error:
        raise BadUri(f"{path} cannot be read as a profile file: {error.message}") from error
    return dict(parser.items(name)) if parser.has_section(name) else {}
