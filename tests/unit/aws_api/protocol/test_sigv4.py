"""The rules of a signature that random requests would not find."""

from __future__ import annotations

import time
from dataclasses import replace
from hashlib import sha256

import pytest

from windfall.aws_api.protocol.errors import AuthenticationError
from windfall.aws_api.protocol.keys import Key, Role
from windfall.aws_api.protocol.request import HttpRequest
from windfall.aws_api.protocol.sigv4 import sign, verify

NOW = 1_700_000_000.0
KEY = Key("WNDFKEY", "secret", Role.SUBMIT, "default", None, 1)


def signed(headers: dict[str, str] | None = None, body: bytes = b"{}", at: float = NOW) -> HttpRequest:
    sent = sign(
        method="POST",
        url="http://h:1/v1/submitjob",
        headers=headers or {},
        body=body,
        access_key_id=KEY.access_key_id,
        secret_access_key=KEY.secret_access_key,
        region="us-east-1",
        service="batch",
        now=at,
    )
    wire = {name.encode(): value.encode() for name, value in sent.items()}
    return HttpRequest("POST", "/v1/submitjob", "", wire, body)


def with_header(request: HttpRequest, name: bytes, value: bytes) -> HttpRequest:
    return replace(request, headers={**request.headers, name: value})


def refusal(request: HttpRequest, *, now: float = NOW, key: Key | None = KEY) -> AuthenticationError:
    with pytest.raises(AuthenticationError) as caught:
        verify(request, lambda _: key, now)
    return caught.value


def test_clocks_may_differ_by_five_minutes_and_no_more():
    for skew in (-300, 0, 300):
        assert verify(signed(at=NOW + skew), lambda _: KEY, NOW).service == "batch"
    assert refusal(signed(at=NOW + 301)).message.startswith("Signature not yet current")
    assert refusal(signed(at=NOW - 301)).message.startswith("Signature expired")


def test_an_unknown_key_is_told_apart_from_a_wrong_secret():
    assert refusal(signed(), key=None).code == "UnrecognizedClientException"
    assert refusal(signed(), key=replace(KEY, secret_access_key="x")).code == "InvalidSignatureException"


def test_an_amz_header_added_on_the_way_is_refused():
    error = refusal(with_header(signed(), b"x-amz-target", b"Logs_20140328.DeleteLogGroup"))
    assert error.code == "IncompleteSignatureException"
    assert "x-amz-target" in error.message


def test_the_content_hash_must_be_that_of_the_body():
    good = {"x-amz-content-sha256": sha256(b"{}").hexdigest()}
    assert verify(signed(good), lambda _: KEY, NOW)
    bad = refusal(replace(signed(good), body=b"[]"))
    assert "SHA-256" in bad.message


def test_a_body_that_is_not_part_of_the_signature_is_refused():
    # Our own signer always signs the body, so the signature over UNSIGNED-PAYLOAD comes from botocore.
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest("POST", "http://h:1/", headers={"Host": "h:1"}, data=b"one")
    request.context["payload_signing_enabled"] = False
    SigV4Auth(Credentials("WNDFKEY", "secret"), "batch", "r").add_auth(request)
    headers = {name.lower().encode(): value.encode() for name, value in request.headers.items()}
    assert headers[b"x-amz-content-sha256"] == b"UNSIGNED-PAYLOAD"
    unsigned = HttpRequest("POST", "/", "", headers, b"one")
    with pytest.raises(AuthenticationError, match="UNSIGNED-PAYLOAD"):
        verify(unsigned, lambda _: KEY, time.time())
    added = with_header(signed(), b"x-amz-content-sha256", b"UNSIGNED-PAYLOAD")
    assert refusal(added).code == "IncompleteSignatureException"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"authorization", b""),
        (b"authorization", b"Basic YWxhZGRpbg=="),
        (b"authorization", b"AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host, Signature=" + b"0" * 64),
        (
            b"authorization",
            b"AWS4-HMAC-SHA256 Credential=a/b/c/d/aws4_request, SignedHeaders=host, Signature=00",
        ),
        (b"x-amz-date", b"yesterday"),
        (b"x-amz-date", b"20231114T221320Z,20231114T221320Z"),
        (b"x-amz-date", b"20231399T999999Z"),
    ],
)
def test_what_cannot_be_read_is_incomplete(name, value):
    error = refusal(with_header(signed(), name, value))
    assert (error.code, error.status) == ("IncompleteSignatureException", 400)


@pytest.mark.parametrize(
    ("signed_headers", "complaint"),
    [
        ("x-amz-date", "Host"),
        ("x-amz-date;host", "sorted"),
        ("host;host;x-amz-date", "sorted"),
        ("host;x-amz-date;zebra", "zebra"),
        ("host", "x-amz-date"),
    ],
)
def test_the_list_of_signed_headers_is_checked(signed_headers, complaint):
    request = signed()
    authorization = request.headers[b"authorization"].decode().replace("host;x-amz-date", signed_headers)
    assert complaint in refusal(with_header(request, b"authorization", authorization.encode())).message


def test_a_date_header_in_place_of_x_amz_date_must_be_signed():
    request = signed()
    headers = {name: value for name, value in request.headers.items() if name != b"x-amz-date"}
    headers[b"authorization"] = headers[b"authorization"].replace(b"host;x-amz-date", b"host")
    headers[b"date"] = b"Tue, 14 Nov 2023 22:13:20 GMT"
    assert "'date' must be signed" in refusal(replace(request, headers=headers)).message


def test_a_region_cannot_smuggle_anything_into_arns():
    request = signed()
    authorization = request.headers[b"authorization"].replace(b"us-east-1", b"us:east:1")
    assert (
        refusal(with_header(request, b"authorization", authorization)).code == "IncompleteSignatureException"
    )
