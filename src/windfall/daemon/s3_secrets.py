"""The secrets of the embedded S3 server, made once for a data directory and kept in one file of mode 0600.

They are: keys for the daemon and for its agents, the keys that encrypt objects and sign sessions and inner requests,
and the certificate of the inner ports. Without the file, encrypted objects cannot be read. SeaweedFS's inner ports
require a client certificate; both ends hold the same one, which signs itself and is made with the standard library
alone: the key (Ed25519, RFC 8032) and the few fields that a certificate needs. That is slow and not constant-time, and
runs once for a data directory, when no one can measure it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from windfall.daemon.errors import DaemonError

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


_PRIME = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _PRIME - 2, _PRIME) % _PRIME
_BASE_Y = 4 * pow(5, _PRIME - 2, _PRIME) % _PRIME
_ED25519 = bytes.fromhex("300506032b6570")
#: Wide enough for any clock.
_VALID = (b"20200101000000Z", b"99991231235959Z")

_Point = tuple[int, int, int, int]


def self_signed(name: str) -> tuple[str, str]:
    """A new certificate for a name and its private key, both in PEM form."""
    seed = secrets.token_bytes(32)
    public = public_key(seed)
    serial = _der(0x02, b"\x01" + secrets.token_bytes(15))
    issuer = _der(0x30, _der(0x31, _der(0x30, bytes.fromhex("0603550403") + _der(0x0C, name.encode()))))
    validity = _der(0x30, b"".join(_der(0x18, moment) for moment in _VALID))
    holder = _der(0x30, _ED25519 + _der(0x03, b"\0" + public))
    # Basic constraints, critical: it is its own authority.
    authority = _der(
        0x30,
        bytes.fromhex("0603551d13") + b"\x01\x01\xff" + _der(0x04, _der(0x30, b"\x01\x01\xff")),
    )
    version, extensions = _der(0xA0, _der(0x02, b"\x02")), _der(0xA3, _der(0x30, authority))
    body = _der(0x30, version + serial + _ED25519 + issuer + validity + issuer + holder + extensions)
    certificate = _der(0x30, body + _ED25519 + _der(0x03, b"\0" + sign(seed, body)))
    private = _der(0x30, _der(0x02, b"\0") + _ED25519 + _der(0x04, _der(0x04, seed)))
    return _pem("CERTIFICATE", certificate), _pem("PRIVATE KEY", private)


def public_key(seed: bytes) -> bytes:
    """The public key that belongs to a private one of 32 bytes."""
    scalar, _ = _expanded(seed)
    return _compressed(_times(scalar, _base()))


def sign(seed: bytes, message: bytes) -> bytes:
    """The signature of a message, 64 bytes."""
    scalar, prefix = _expanded(seed)
    nonce = _number(prefix + message)
    point = _compressed(_times(nonce, _base()))
    challenge = _number(point + public_key(seed) + message)
    return point + ((nonce + challenge * scalar) % _ORDER).to_bytes(32, "little")


def _expanded(seed: bytes) -> tuple[int, bytes]:
    digest = hashlib.sha512(seed).digest()
    scalar = int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | (1 << 254)
    return scalar, digest[32:]


def _number(content: bytes) -> int:
    return int.from_bytes(hashlib.sha512(content).digest(), "little") % _ORDER


def _base() -> _Point:
    square = (_BASE_Y * _BASE_Y - 1) * pow(_D * _BASE_Y * _BASE_Y + 1, _PRIME - 2, _PRIME) % _PRIME
    x = pow(square, (_PRIME + 3) // 8, _PRIME)
    if (x * x - square) % _PRIME:
        x = x * pow(2, (_PRIME - 1) // 4, _PRIME) % _PRIME
    if x % 2:
        x = _PRIME - x
    return x, _BASE_Y, 1, x * _BASE_Y % _PRIME


def _times(scalar: int, point: _Point) -> _Point:
    result: _Point = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = _plus(result, point)
        point = _plus(point, point)
        scalar >>= 1
    return result


def _plus(first: _Point, second: _Point) -> _Point:
    a = (first[1] - first[0]) * (second[1] - second[0]) % _PRIME
    b = (first[1] + first[0]) * (second[1] + second[0]) % _PRIME
    c = 2 * first[3] * second[3] * _D % _PRIME
    d = 2 * first[2] * second[2] % _PRIME
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _PRIME, g * h % _PRIME, f * g % _PRIME, e * h % _PRIME


def _compressed(point: _Point) -> bytes:
    inverse = pow(point[2], _PRIME - 2, _PRIME)
    x, y = point[0] * inverse % _PRIME, point[1] * inverse % _PRIME
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _der(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + length.to_bytes(size, "big") + content


def _pem(label: str, content: bytes) -> str:
    text = base64.b64encode(content).decode()
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])
