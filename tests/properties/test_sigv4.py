"""Signatures, with botocore's own signers as the oracle."""

from __future__ import annotations

import string
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import assume, given
from hypothesis import strategies as st

from windfall.aws_api.protocol.errors import ApiError, AuthenticationError
from windfall.aws_api.protocol.keys import Key, Role
from windfall.aws_api.protocol.request import HttpRequest
from windfall.aws_api.protocol.sigv4 import sign, verify

HOST = "127.0.0.1:8080"
SECRET = "aB3/+secret"

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
segments = st.one_of(texts, st.sampled_from([".", "..", "", "%2F", "a:b", "~", "job-queue"]))
paths = st.lists(segments, max_size=5).map(
    lambda parts: "/" + "/".join(quote(part, safe=":~%.") for part in parts)
)
queries = st.lists(st.tuples(texts.filter(bool), texts), max_size=4)
header_values = st.text(string.ascii_letters + string.digits + " ,;=/-\t", max_size=20)
header_names = st.text(string.ascii_lowercase + "-", min_size=1, max_size=10).map(
    lambda name: "x-own-" + name
)
headers_ = st.dictionaries(header_names, header_values, max_size=4)
bodies = st.binary(max_size=200)
methods = st.sampled_from(["GET", "POST", "PUT", "DELETE"])
regions = st.sampled_from(["us-east-1", "eu-central-2", "local"])
services = st.sampled_from(["batch", "logs", "windfall"])
tokens = st.one_of(st.none(), st.text(string.ascii_letters + "/+=", min_size=1, max_size=30))


def a_key(token: str | None = None) -> Key:
    return Key("WNDFKEY", SECRET, Role.ADMIN, "default", token, 1)


def finder(key: Key):
    return lambda access_key_id: key if access_key_id == key.access_key_id else None


def encode_query(pairs: list[tuple[str, str]]) -> str:
    return "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in pairs)


def as_received(request: AWSRequest) -> HttpRequest:
    """Return what a server would see of a request that botocore has signed."""
    parts = urlsplit(request.url)
    headers = {name.lower().encode(): value.strip().encode() for name, value in request.headers.items()}
    headers.setdefault(b"host", HOST.encode())
    return HttpRequest(request.method, parts.path or "/", parts.query, headers, request.data or b"")


def signed_by_botocore(
    method, path, pairs, headers, body, region, service, token, *, expires=None
) -> HttpRequest:
    query = encode_query(pairs)
    url = f"http://{HOST}{path}" + (f"?{query}" if query else "")
    request = AWSRequest(method=method, url=url, headers=dict(headers), data=body)
    credentials = Credentials("WNDFKEY", SECRET, token)
    if expires is None:
        SigV4Auth(credentials, service, region).add_auth(request)
    else:
        SigV4QueryAuth(credentials, service, region, expires=expires).add_auth(request)
    return as_received(request)


def now() -> float:
    return datetime.now(UTC).timestamp()


def received_path_is_its_own(path: str) -> bool:
    """urlsplit reads a path that begins with two slashes, or has a fragment mark, as something else."""
    return not path.startswith("//")


@given(methods, paths, queries, headers_, bodies, regions, services, tokens)
def test_what_botocore_signs_is_accepted(method, path, pairs, headers, body, region, service, token):
    assume(received_path_is_its_own(path))
    request = signed_by_botocore(method, path, pairs, headers, body, region, service, token)
    signer = verify(request, finder(a_key(token)), now())
    assert (signer.key.access_key_id, signer.region, signer.service) == ("WNDFKEY", region, service)


@given(paths, st.dictionaries(texts.filter(bool), texts, max_size=4), headers_, regions, services, tokens)
def test_what_botocore_presigns_is_accepted(path, query, headers, region, service, token):
    assume(received_path_is_its_own(path))
    pairs = list(query.items())
    request = signed_by_botocore("GET", path, pairs, headers, b"", region, service, token, expires=60)
    assert verify(request, finder(a_key(token)), now()).service == service
    with pytest.raises(AuthenticationError, match="expired"):
        verify(request, finder(a_key(token)), now() + 62)


@given(methods, paths, queries, headers_, bodies, regions, services, tokens)
def test_our_signature_is_botocore_s(method, path, pairs, headers, body, region, service, token):
    assume(received_path_is_its_own(path))
    oracle = signed_by_botocore(method, path, pairs, headers, body, region, service, token)
    at = datetime.strptime(oracle.headers[b"x-amz-date"].decode(), "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    query = encode_query(pairs)
    ours = sign(
        method=method,
        url=f"http://{HOST}{path}" + (f"?{query}" if query else ""),
        headers=headers,
        body=body,
        access_key_id="WNDFKEY",
        secret_access_key=SECRET,
        session_token=token,
        region=region,
        service=service,
        now=at.timestamp(),
    )
    assert ours["authorization"].encode() == oracle.headers[b"authorization"]


def flip(content: bytes, position: int) -> bytes:
    """Change one byte into another printable one."""
    position %= len(content)
    other = b"a" if content[position : position + 1] != b"a" else b"b"
    return content[:position] + other + content[position + 1 :]


PLACES = ["method", "path", "query", "body", "authorization", "x-amz-date", "host", "x-own-a"]


@given(st.sampled_from(PLACES), st.integers(0, 10_000), st.binary(min_size=1, max_size=50), tokens)
def test_one_changed_byte_is_refused(place, position, body, token):
    request = signed_by_botocore(
        "POST", "/v1/submitjob", [("a", "1"), ("b", "2")], {"x-own-a": "value"}, body, "r", "batch", token
    )
    verify(request, finder(a_key(token)), now())
    if place == "method":
        tampered = replace(request, method="PUT")
    elif place in ("path", "query"):
        old = getattr(request, place)
        tampered = replace(request, **{place: flip(old.encode(), position).decode()})
    elif place == "body":
        tampered = replace(request, body=flip(body, position))
    else:
        name = place.encode()
        headers = {**request.headers, name: flip(request.headers[name], position)}
        tampered = replace(request, headers=headers)
    with pytest.raises(AuthenticationError):
        verify(tampered, finder(a_key(token)), now())


@given(st.integers(0, 10_000), st.sampled_from(["query", "path", "body", "host"]))
def test_one_changed_byte_of_a_presigned_request_is_refused(position, place):
    request = signed_by_botocore(
        "GET", "/v1/tags/x", [("a", "1")], {}, b"", "us-east-1", "batch", "token", expires=60
    )
    if place == "body":
        tampered = replace(request, body=b"more")
    elif place == "host":
        tampered = replace(request, headers={b"host": flip(HOST.encode(), position)})
    else:
        tampered = replace(request, **{place: flip(getattr(request, place).encode(), position).decode()})
    # Changed enough, a presigned query may also stop being one: unsigned, or not even decodable.
    with pytest.raises(ApiError) as caught:
        verify(tampered, finder(a_key("token")), now())
    assert 400 <= caught.value.status < 500


@given(
    st.dictionaries(
        st.sampled_from([b"authorization", b"x-amz-date", b"host", b"date"]), st.binary(max_size=60)
    )
)
def test_arbitrary_headers_are_refused_and_never_crash(headers):
    with pytest.raises(AuthenticationError):
        verify(HttpRequest("POST", "/", "", headers, b""), finder(a_key()), now())


@given(st.text(string.printable, max_size=60))
def test_arbitrary_presigned_queries_are_refused_and_never_crash(text):
    with pytest.raises(ApiError):
        verify(
            HttpRequest("GET", "/", "X-Amz-Signature=" + text, {b"host": b"h"}, b""), finder(a_key()), now()
        )
