"""AWS Signature Version 4, written out: canonical form, signing (for our command line) and verification.

Decides whether a request was made by the holder of a key, recently, and unaltered. Both forms are known:
the Authorization header and the presigned query. Must not know services, roles or where keys are kept.

The canonical form is computed from the bytes as sent. Paths are encoded once more, dot segments and double
slashes collapsed, as every AWS service except S3 does.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from urllib.parse import quote, urlsplit

from windfall.aws_api.protocol.errors import (
    SerializationError,
    incomplete_signature,
    invalid_signature,
    missing_authentication,
    unrecognized_client,
)
from windfall.aws_api.protocol.keys import Key
from windfall.aws_api.protocol.request import HttpRequest, query_pairs
from windfall.aws_api.protocol.sessions import is_session, session_key

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED_PAYLOAD = b"UNSIGNED-PAYLOAD"
CLOCK_SKEW_S = 300
LONGEST_EXPIRY_S = 7 * 24 * 3600

_TIMESTAMP = "%Y%m%dT%H%M%SZ"
_TIMESTAMP_FORM = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_SCOPE_PART = re.compile(r"[A-Za-z0-9-]{1,64}")
_SIGNATURE = re.compile(r"[0-9a-f]{64}")
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256[ ]+Credential=([^ ,]+)[ ]*,[ ]*SignedHeaders=([^ ,]+)[ ]*,[ ]*Signature=([^ ,]+)"
)
# Every header of these must be signed where it is sent, or somebody on the way could add it.
_MUST_BE_SIGNED = b"x-amz-"


@dataclass(frozen=True, slots=True)
class Signer:
    """Who proved to have signed a request, and for which region and service."""

    key: Key
    region: str
    service: str
    #: The key that a session was made from, and when the session ends, in milliseconds; None for a key itself.
    parent: Key | None = None
    ends_at: int | None = None


@dataclass(frozen=True, slots=True)
class _Claim:
    """What a request says about its own signature, not yet believed."""

    access_key_id: str
    date: str
    region: str
    service: str
    timestamp: str
    signed_headers: str
    signature: str
    session_token: str | None
    #: Seconds from the timestamp for which a presigned request is valid; None for the header form.
    expires_s: int | None
    canonical_query: str

    @property
    def scope(self) -> str:
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


def verify(request: HttpRequest, find_key: Callable[[str], Key | None], now: float) -> Signer:
    """Return who signed the request; raise AuthenticationError where that is not beyond doubt."""
    authorization = request.headers.get(b"authorization")
    if authorization is not None:
        claim = _claim_of_header(request, authorization.decode("latin-1"))
    elif "X-Amz-Signature=" in request.query or "X-Amz-Algorithm=" in request.query:
        claim = _claim_of_query(request)
    else:
        raise missing_authentication()
    key = find_key(claim.access_key_id)
    parent, ends_at = None, None
    if key is not None and claim.session_token is not None and is_session(claim.session_token):
        derived = session_key(key, claim.session_token, now)
        parent = key
        key, ends_at = (None, None) if derived is None else derived
    if key is None:
        raise unrecognized_client()
    _check_time(claim, now)
    names = _check_signed_headers(request.headers, claim.signed_headers)
    canonical = _canonical_request(
        request.method,
        request.path,
        claim.canonical_query,
        ((name, request.headers[name]) for name in names),
        claim.signed_headers,
        _payload_hash(request),
    )
    expected = signature_of(
        key.secret_access_key,
        claim.date,
        claim.region,
        claim.service,
        claim.timestamp,
        canonical,
    )
    if not hmac.compare_digest(expected, claim.signature):
        raise invalid_signature(
            "The signature does not match the request. Check the secret access key of your client, "
            "and that nothing between it and Windfall changes requests."
        )
    _check_session_token(key, claim.session_token)
    return Signer(key, claim.region, claim.service, parent, ends_at)


def sign(
    *,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    access_key_id: str,
    secret_access_key: str,
    session_token: str | None = None,
    region: str,
    service: str,
    now: float,
) -> dict[str, str]:
    """Return the headers to send: those given plus host, date, token and Authorization."""
    parts = urlsplit(url)
    timestamp = datetime.fromtimestamp(now, UTC).strftime(_TIMESTAMP)
    signed = {name.lower(): value for name, value in headers.items()}
    signed["host"] = parts.netloc.rpartition("@")[2]
    signed["x-amz-date"] = timestamp
    if session_token is not None:
        signed["x-amz-security-token"] = session_token
    names = sorted(signed)
    signed_headers = ";".join(names)
    canonical = _canonical_request(
        method,
        parts.path,
        _canonical_query(query_pairs(parts.query)),
        ((name.encode("latin-1"), signed[name].encode("latin-1")) for name in names),
        signed_headers,
        sha256(body).hexdigest().encode(),
    )
    date = timestamp[:8]
    scope = f"{date}/{region}/{service}/aws4_request"
    signature = signature_of(secret_access_key, date, region, service, timestamp, canonical)
    signed["authorization"] = (
        f"{ALGORITHM} Credential={access_key_id}/{scope}, "
        f"SignedHeaders={signed_headers}, Signature={signature}"
    )
    return signed


def _claim_of_header(request: HttpRequest, authorization: str) -> _Claim:
    match = _AUTHORIZATION.fullmatch(authorization.strip())
    if match is None:
        raise incomplete_signature(
            f"the Authorization header reads '{ALGORITHM} Credential=..., SignedHeaders=..., Signature=...'"
        )
    credential, signed_headers, signature = match.groups()
    token = request.headers.get(b"x-amz-security-token")
    return _claim(
        credential,
        timestamp=_header_timestamp(request.headers),
        signed_headers=signed_headers,
        signature=signature,
        session_token=None if token is None else token.decode("latin-1"),
        expires_s=None,
        canonical_query=_canonical_query(query_pairs(request.query)),
    )


def _claim_of_query(request: HttpRequest) -> _Claim:
    pairs = query_pairs(request.query)
    fields: dict[str, str] = {}
    for name, value in pairs:
        if name.startswith("X-Amz-"):
            if name in fields:
                raise incomplete_signature(f"{name} is given twice")
            fields[name] = value
    try:
        if fields["X-Amz-Algorithm"] != ALGORITHM:
            raise incomplete_signature(f"X-Amz-Algorithm must be {ALGORITHM}")
        expires = fields["X-Amz-Expires"]
        if (
            not (expires.isascii() and expires.isdigit() and len(expires) <= 6)
            or int(expires) > LONGEST_EXPIRY_S
        ):
            raise incomplete_signature(f"X-Amz-Expires must be a number of seconds up to {LONGEST_EXPIRY_S}")
        return _claim(
            fields["X-Amz-Credential"],
            timestamp=fields["X-Amz-Date"],
            signed_headers=fields["X-Amz-SignedHeaders"],
            signature=fields["X-Amz-Signature"],
            session_token=fields.get("X-Amz-Security-Token"),
            expires_s=int(expires),
            canonical_query=_canonical_query(pair for pair in pairs if pair[0] != "X-Amz-Signature"),
        )
    except KeyError as error:
        raise incomplete_signature(f"the query lacks {error.args[0]}") from None


def _claim(
    credential: str,
    *,
    timestamp: str,
    signed_headers: str,
    signature: str,
    session_token: str | None,
    expires_s: int | None,
    canonical_query: str,
) -> _Claim:
    parts = credential.split("/")
    if len(parts) != 5 or parts[4] != "aws4_request":
        raise incomplete_signature("the Credential must read KEY/DATE/REGION/SERVICE/aws4_request")
    access_key_id, date, region, service, _ = parts
    if not (_SCOPE_PART.fullmatch(region) and _SCOPE_PART.fullmatch(service)):
        raise incomplete_signature("region and service of the Credential are letters, digits and hyphens")
    if not _TIMESTAMP_FORM.fullmatch(timestamp) or date != timestamp[:8]:
        raise incomplete_signature(
            "the date must read YYYYMMDDTHHMMSSZ and be the day that the Credential names"
        )
    if not _SIGNATURE.fullmatch(signature):
        raise incomplete_signature("the Signature must be 64 hexadecimal digits in lower case")
    return _Claim(
        access_key_id,
        date,
        region,
        service,
        timestamp,
        signed_headers,
        signature,
        session_token,
        expires_s,
        canonical_query,
    )


def _header_timestamp(headers: Mapping[bytes, bytes]) -> str:
    timestamp = headers.get(b"x-amz-date")
    if timestamp is not None:
        return timestamp.decode("latin-1")
    date = headers.get(b"date")
    if date is None:
        raise incomplete_signature("an X-Amz-Date or Date header is needed")
    # Imported here: hardly any client sends Date, and the command line signs without waiting for this module.
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(date.decode("latin-1")).astimezone(UTC).strftime(_TIMESTAMP)
    except (ValueError, OverflowError):
        raise incomplete_signature("the Date header is not a date") from None


def _check_time(claim: _Claim, now: float) -> None:
    try:
        signed_at = _epoch_seconds(claim.timestamp)
    except ValueError:
        raise incomplete_signature("the date does not exist in the calendar") from None
    at = datetime.fromtimestamp(now, UTC).strftime
    if signed_at > now + CLOCK_SKEW_S:
        raise invalid_signature(
            f"Signature not yet current: {claim.timestamp} is more than {CLOCK_SKEW_S // 60} minutes after "
            f"{at(_TIMESTAMP)}, the time here. Set the clocks of client and server right."
        )
    lifetime_s = CLOCK_SKEW_S if claim.expires_s is None else claim.expires_s
    if now > signed_at + lifetime_s:
        raise invalid_signature(
            f"Signature expired: {claim.timestamp} was valid for {lifetime_s} seconds and it is "
            f"{at(_TIMESTAMP)} here. Sign the request again; if it was just signed, set the clocks right."
        )


@lru_cache(maxsize=16)
def _epoch_seconds(timestamp: str) -> float:
    return datetime.strptime(timestamp, _TIMESTAMP).replace(tzinfo=UTC).timestamp()


def _check_signed_headers(headers: Mapping[bytes, bytes], signed_headers: str) -> list[bytes]:
    names = signed_headers.encode("latin-1").split(b";")
    if names != sorted(set(names)):
        raise incomplete_signature("SignedHeaders must be sorted names, each once")
    if b"host" not in names:
        raise incomplete_signature("the Host header must be signed")
    for name in names:
        if name not in headers:
            raise incomplete_signature(f"the signed header {name.decode('latin-1')!r} was not sent")
    for name in headers:
        if name.startswith(_MUST_BE_SIGNED) and name not in names:
            raise incomplete_signature(f"the header {name.decode('latin-1')!r} must be signed")
    if b"authorization" in headers and b"x-amz-date" not in headers and b"date" not in names:
        raise incomplete_signature("the header 'date' must be signed")
    return names


def _check_session_token(key: Key, token: str | None) -> None:
    if key.session_token is None and token is None:
        return
    # A token that the key does not have is refused too: the caller means other credentials than these.
    if not hmac.compare_digest((key.session_token or "").encode(), (token or "").encode()):
        raise unrecognized_client()


def _payload_hash(request: HttpRequest) -> bytes:
    claimed = request.headers.get(b"x-amz-content-sha256")
    if claimed == UNSIGNED_PAYLOAD:
        # Only S3's clients leave a body out of the signature, and S3 is served elsewhere.
        raise invalid_signature(
            "The body must be part of the signature: X-Amz-Content-Sha256 is UNSIGNED-PAYLOAD."
        )
    actual = sha256(request.body).hexdigest().encode()
    if claimed is not None and not hmac.compare_digest(claimed, actual):
        raise invalid_signature("X-Amz-Content-Sha256 is not the SHA-256 of the body that arrived.")
    return actual


def _canonical_request(
    method: str,
    path: str,
    canonical_query: str,
    headers: Iterable[tuple[bytes, bytes]],
    signed_headers: str,
    payload_hash: bytes,
) -> bytes:
    lines = [method.upper().encode("latin-1"), _canonical_path(path), canonical_query.encode("ascii")]
    lines += [name + b":" + b" ".join(value.split()) for name, value in headers]
    lines += [b"", signed_headers.encode("latin-1"), payload_hash]
    return b"\n".join(lines)


@lru_cache(maxsize=256)
def _canonical_path(path: str) -> bytes:
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment and segment != ".":
            segments.append(segment)
    trailing = "/" if segments and path.endswith("/") else ""
    return quote("/" + "/".join(segments) + trailing, safe="/~", encoding="latin-1").encode("ascii")


def _canonical_query(pairs: Iterable[tuple[str, str]]) -> str:
    try:
        encoded = sorted((quote(name, safe="~"), quote(value, safe="~")) for name, value in pairs)
    except UnicodeEncodeError:
        raise SerializationError("The query is not valid text.") from None
    return "&".join(f"{name}={value}" for name, value in encoded)


def signature_of(secret: str, date: str, region: str, service: str, timestamp: str, canonical: bytes) -> str:
    """Sign a canonical request."""
    text = (
        f"{ALGORITHM}\n{timestamp}\n{date}/{region}/{service}/aws4_request\n{sha256(canonical).hexdigest()}"
    )
    return hmac.digest(_signing_key(secret, date, region, service), text.encode("utf-8"), "sha256").hex()


@lru_cache(maxsize=256)
def _signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    """Derive the key of a day, region and service; it stays the same all day, so it is kept."""
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode("utf-8"), "sha256")
    return key
