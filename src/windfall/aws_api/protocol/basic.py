"""HTTP's Basic authentication with a key's id and secret, for readers that cannot sign: Prometheus, a browser.

Decides who a request is from. The secret travels with each request, so it is for loopback or behind TLS. Must not know
what is shown.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable

from windfall.aws_api.protocol.keys import Key
from windfall.aws_api.protocol.request import HttpRequest, Response

_TEXT = b"text/plain; charset=utf-8"


def key_of(request: HttpRequest, find: Callable[[str], Key | None]) -> Key | None:
    """The valid key whose id and secret a request carries; None when it carries none."""
    scheme, _, encoded = request.headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        key_id, colon, secret = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        key = find(key_id.decode("ascii")) if colon else None
    except (binascii.Error, UnicodeDecodeError):
        return None
    # A key with a session token is complete with it alone, and there is no place for it here.
    if key is None or key.session_token is not None:
        return None
    return key if hmac.compare_digest(key.secret_access_key.encode(), secret) else None


def please_authenticate(what: str) -> Response:
    """The answer to a request without a valid key."""
    text = (
        f"{what} needs a Windfall key with HTTP Basic authentication: the access key id as user name, the secret as"
        " password. `windfall keys create --role read` makes one.\n"
    )
    return Response(401, _TEXT, text.encode(), ((b"www-authenticate", b'Basic realm="windfall"'),))
