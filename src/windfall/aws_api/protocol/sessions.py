"""Sessions: short-lived credentials that are derived from a key, so that the key itself stays where it is.

Nothing is stored. A session's token says its role and its end; its secret is computed from the token and the secret of
its key. So every daemon that knows the key knows all its sessions, a revoked key has none, and nobody without the key's
secret can make one or change what a token says. Must not know signatures, HTTP or what a session is for.
"""

from __future__ import annotations

import base64
import hmac
import re
from dataclasses import replace

from windfall.aws_api.protocol.keys import Key, Role

LONGEST_S = 12 * 3600

_TOKEN = re.compile(r"wfs1\.(read|submit|admin)\.([0-9]{10,15})\.([0-9a-f]{32})", re.ASCII)
#: Keeps what is derived here apart from whatever else may once be derived from a key's secret.
_PURPOSE = b"windfall session\n"


def is_session(token: str | None) -> bool:
    """Whether a token names a session, and not a key that has a token of its own."""
    return token is not None and token.startswith("wfs1.")


def begin_session(key: Key, role: Role, ends_at: int, nonce: str) -> Key:
    """The credentials of a new session of a key; `ends_at` is in milliseconds, `nonce` has 32 hexadecimal digits."""
    return _derived(key, f"wfs1.{role.name.lower()}.{ends_at}.{nonce}", role)


def session_key(key: Key, token: str, now: float) -> tuple[Key, int] | None:
    """The credentials of the session that a token names, and its end; None when it is over or has more rights than its
    key. `now` is in seconds."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    role, ends_at = Role[match[1].upper()], int(match[2])
    if role > key.role or now * 1000 >= ends_at:
        return None
    return _derived(key, token, role), ends_at


def _derived(key: Key, token: str, role: Role) -> Key:
    digest = hmac.digest(key.secret_access_key.encode(), _PURPOSE + token.encode("ascii"), "sha256")
    secret = base64.urlsafe_b64encode(digest).decode("ascii").rstrip("=")
    return replace(key, secret_access_key=secret, role=role, session_token=token)
