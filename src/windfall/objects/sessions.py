"""Temporary credentials from the STS of an S3 store: for one holder, limited to what a policy allows.

Decides the request (AssumeRole, signed) and reads the answer. SeaweedFS, MinIO and AWS answer it alike. Must not know
who gets the credentials, nor for how long they are kept.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree as ET

from windfall.objects.credentials import ObjectOptions
from windfall.objects.errors import ObjectsError, Refused, Unreachable

#: AWS takes no longer policy; the others none much longer.
_POLICY_MAX = 2048
_NAME = re.compile(r"[^A-Za-z0-9_=,.@-]")
_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, repr=False)
class SessionCredentials:
    """Temporary credentials. Never log or print them."""

    access_key_id: str
    secret_access_key: str
    session_token: str
    #: In the form of ISO 8601, as it was answered.
    expiration: str


def assume_role(
    sts_url: str, role: str, name: str, policy: str, duration_s: int, options: ObjectOptions
) -> SessionCredentials:
    """Ask for a session; ObjectsError says why there is none."""
    if len(policy) > _POLICY_MAX:
        raise Refused(
            f"too many places are registered for temporary credentials to name them all ({len(policy)} characters"
            f" of {_POLICY_MAX}): register fewer, by longer prefixes in common"
        )
    form = {
        "Action": "AssumeRole",
        "Version": "2011-06-15",
        "RoleArn": role,
        "RoleSessionName": _NAME.sub("-", name)[:64],
        "Policy": policy,
        "DurationSeconds": str(duration_s),
    }
    body = urlencode(form).encode()
    request = urllib.request.Request(sts_url, body, _signed(sts_url, body, options))  # noqa: S310 (http or https, checked where it is set)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 (the same)
            return _session(answer.read(1 << 20))
    except urllib.error.HTTPError as error:
        with error:
            said = _error(error.read(1 << 16))
        raise Refused(f"{sts_url} gives no temporary credentials: {said or error.reason}") from None
    except OSError as error:
        raise Unreachable(f"{sts_url} does not answer: {error}") from None


def _session(content: bytes) -> SessionCredentials:
    values = {part.tag.rpartition("}")[2]: part.text or "" for part in _tree(content).iter()}
    try:
        return SessionCredentials(
            values["AccessKeyId"], values["SecretAccessKey"], values["SessionToken"], values["Expiration"]
        )
    except KeyError as error:
        raise Refused(f"the answer of AssumeRole lacks {error.args[0]}") from None


def _error(content: bytes) -> str:
    try:
        texts = {part.tag.rpartition("}")[2]: part.text or "" for part in _tree(content).iter()}
    except ObjectsError:
        return ""
    return texts.get("Message", "")


def _tree(content: bytes) -> Any:
    try:
        return ET.fromstring(content)  # noqa: S314 (the same server)
    except ET.ParseError:
        raise Refused("the answer of AssumeRole is not XML") from None


def _signed(url: str, body: bytes, options: ObjectOptions) -> dict[str, str]:
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    parts = urlsplit(url)
    region = options.region or "us-east-1"
    headers = {
        "content-type": "application/x-www-form-urlencoded; charset=utf-8",
        "host": parts.netloc,
        "x-amz-date": moment,
    }
    if options.session_token:
        headers["x-amz-security-token"] = options.session_token
    names = ";".join(sorted(headers))
    lines = ["POST", parts.path or "/", "", *(f"{name}:{headers[name]}" for name in sorted(headers))]
    canonical = "\n".join([*lines, "", names, hashlib.sha256(body).hexdigest()])
    scope = f"{moment[:8]}/{region}/sts/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{options.secret_access_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={options.access_key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers
