"""Completes requests that ask for aws:kms without naming a key, as AWS does: SeaweedFS refuses them.

A header cannot be added to a signed request, so the signature is checked and the request signed again with the same
key. Decides for which requests. Works on the bytes of a request's head; must not know sockets.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable

from windfall.aws_api.protocol.sigv4 import signature_of

_ALGORITHM = b"x-amz-server-side-encryption"
_KEY_ID = b"x-amz-server-side-encryption-aws-kms-key-id"
_AUTHORIZATION = re.compile(
    rb"AWS4-HMAC-SHA256 +Credential=([^ ,/]+)/([0-9]{8})/([^ ,/]+)/([^ ,/]+)/aws4_request *, *"
    rb"SignedHeaders=([^ ,]+) *, *Signature=([0-9a-f]{64})"
)
#: Bodies whose chunks are signed one after the other, beginning with the signature of the head.
_SIGNED_CHUNKS = b"STREAMING-AWS4-HMAC-SHA256"
_REFUSAL = (
    "aws:kms needs the name of a key here: set SSEKMSKeyId (any name works; a key is made for it),"
    " or use AES256"
)

#: Finds the secret of an access key; the second argument is the session's token, empty for a long-term key.
FindSecret = Callable[[str, str], str | None]


class CannotComplete(Exception):
    """SeaweedFS would refuse the request without a reason; the text tells the client what to do."""


def lacks_key(head: bytes) -> bool:
    """Whether a request asks for aws:kms without naming a key."""
    if b"aws:kms" not in head:
        return False
    headers = _headers(head)
    return headers.get(_ALGORITHM, b"").startswith(b"aws:kms") and not headers.get(_KEY_ID)


def completed(head: bytes, key_id: str, find_secret: FindSecret) -> bytes:
    """The head with a key, signed again with the same credentials; unchanged if its signature is wrong.

    SeaweedFS refuses the latter with the reason. CannotComplete for a form that cannot be signed again.
    """
    headers = _headers(head)
    claim = _AUTHORIZATION.fullmatch(headers.get(b"authorization", b"").strip())
    if claim is None or headers.get(b"x-amz-content-sha256", b"").startswith(_SIGNED_CHUNKS):
        raise CannotComplete(_REFUSAL)
    access_key_id, date, region, service, names, signature = claim.groups()
    token = headers.get(b"x-amz-security-token", b"").decode("latin-1")
    secret = find_secret(access_key_id.decode("latin-1"), token)
    if secret is None:
        if token:
            raise CannotComplete(_REFUSAL)
        return head

    def signed(values: dict[bytes, bytes], listed: bytes) -> str:
        return signature_of(
            secret,
            date.decode("latin-1"),
            region.decode("latin-1"),
            service.decode("latin-1"),
            values.get(b"x-amz-date", b"").decode("latin-1"),
            _canonical(head, values, listed),
        )

    listed = names.split(b";")
    if any(name not in headers for name in listed) or not hmac.compare_digest(
        signed(headers, names), signature.decode()
    ):
        if token:
            # It may be a session whose secret is derived in another way.
            raise CannotComplete(_REFUSAL)
        return head
    headers[_KEY_ID] = key_id.encode()
    now_listed = b";".join(sorted({*listed, _KEY_ID}))
    authorization = (
        b"AWS4-HMAC-SHA256 Credential="
        + b"/".join((access_key_id, date, region, service, b"aws4_request"))
        + b", SignedHeaders="
        + now_listed
        + b", Signature="
        + signed(headers, now_listed).encode()
    )
    first, *rest = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    unchanged = [
        line for line in rest if line.partition(b":")[0].strip().lower() not in (b"authorization", _KEY_ID)
    ]
    added = [_KEY_ID + b": " + key_id.encode(), b"authorization: " + authorization]
    return b"\r\n".join([first, *unchanged, *added]) + b"\r\n\r\n"


def _headers(head: bytes) -> dict[bytes, bytes]:
    """The headers by lower-case name; repeated ones are joined, as they are signed."""
    headers: dict[bytes, bytes] = {}
    for line in head.removesuffix(b"\r\n\r\n").split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        name, value = name.strip().lower(), value.strip()
        headers[name] = headers[name] + b"," + value if name in headers else value
    return headers


def _canonical(head: bytes, headers: dict[bytes, bytes], listed: bytes) -> bytes:
    """S3's canonical request: the path as it was sent, the query sorted."""
    method, target, *_ = head.split(b"\r\n", 1)[0].split(b" ")
    path, _, query = target.partition(b"?")
    pairs = sorted(tuple(pair.partition(b"=")[::2]) for pair in query.split(b"&") if pair)
    lines = [method, path, b"&".join(b"=".join(pair) for pair in pairs)]
    lines += [name + b":" + b" ".join(headers[name].split()) for name in listed.split(b";")]
    lines += [b"", listed, headers.get(b"x-amz-content-sha256", b"UNSIGNED-PAYLOAD")]
    return b"\n".join(lines)
