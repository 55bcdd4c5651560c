"""The secrets of the embedded S3 server, made once for a data directory and kept in one file of mode 0600.

They are: keys for the daemon and for its agents, the keys that encrypt objects and sign sessions and inner requests,
and the certificate of the inner ports. Without the file, encrypted objects cannot be read.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from windfall.daemon.errors import DaemonError
from windfall.daemon.self_signed import self_signed

#: Names of identities that are not keys of the API.
ROOT_NAME, AGENTS_NAME = "windfall", "windfall-agents"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class S3Secrets:
    """All secrets. Never log or print this."""

    #: The daemon's own key: it makes buckets.
    root_key_id: str
    root_secret: str
    #: The agents' key: it moves objects, and creates jobs' sessions.
    agents_key_id: str
    agents_secret: str
    #: Encrypts objects with server-side encryption AES256.
    encryption: str
    #: Wraps the keys of objects with aws:kms.
    wrapping: str
    #: The token that the wrapping service accepts.
    wrapping_token: str
    #: Signs jobs' temporary credentials.
    sessions: str
    #: Signs the requests between SeaweedFS's own processes.
    inner: str
    certificate: str
    certificate_key: str

    def __repr__(self) -> str:
        return "S3Secrets()"


def ensure_secrets(path: Path) -> S3Secrets:
    """The secrets in a file, which is made if it is missing; not safe for concurrent callers."""
    try:
        content = json.loads(path.read_text())
        return S3Secrets(**{field.name: str(content[field.name]) for field in fields(S3Secrets)})
    except FileNotFoundError:
        made = _new()
        _save(path, made)
        return made
    except (ValueError, KeyError, TypeError):
        raise DaemonError(
            f"{path} is damaged. Restore it from a backup; without it, encrypted objects cannot be read."
            " To give those up, remove it and start again"
        ) from None


def _new() -> S3Secrets:
    certificate, key = self_signed("windfall")
    return S3Secrets(
        root_key_id="WNDFS3ROOT" + secrets.token_hex(5).upper(),
        root_secret=secrets.token_urlsafe(30),
        agents_key_id="WNDFS3AGNT" + secrets.token_hex(5).upper(),
        agents_secret=secrets.token_urlsafe(30),
        encryption=secrets.token_hex(32),
        wrapping=secrets.token_hex(32),
        wrapping_token=secrets.token_urlsafe(30),
        sessions=secrets.token_hex(32),
        inner=secrets.token_hex(32),
        certificate=certificate,
        certificate_key=key,
    )


def _save(path: Path, made: S3Secrets) -> None:
    beside = path.with_name(f".{path.name}")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps(asdict(made), indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
