"""HTTP Basic with a key: who is let in, and who is not."""

from __future__ import annotations

import base64

import pytest

from windfall.aws_api.protocol.basic import key_of, please_authenticate
from windfall.aws_api.protocol.keys import Key, Role
from windfall.aws_api.protocol.request import HttpRequest

KEYS = {
    "WNDFREAD": Key("WNDFREAD", "s3:cr=t", Role.READ, "default", None, 0),
    "WNDFTEMP": Key("WNDFTEMP", "secret", Role.READ, "default", "token", 0),
}


def asked(header):
    headers = {} if header is None else {b"authorization": header}
    return key_of(HttpRequest("GET", "/metrics", "", headers, b""), KEYS.get)


def basic(text):
    return b"Basic " + base64.b64encode(text)


@pytest.mark.parametrize("scheme", [b"Basic ", b"basic ", b"BASIC  "])
def test_the_right_secret_is_the_key_whatever_signs_it_holds(scheme):
    assert asked(scheme + base64.b64encode(b"WNDFREAD:s3:cr=t")) is KEYS["WNDFREAD"]


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"Basic",
        b"Basic ???",
        b"Bearer WNDFREAD:s3:cr=t",
        basic(b"WNDFREAD"),
        basic(b"WNDFREAD:"),
        basic(b"WNDFREAD:s3:cr=t "),
        basic(b"WNDFNOBODY:s3:cr=t"),
        basic("é:x".encode()),
        basic(b"\xff\xfe:x"),
        # Half of a temporary key is none.
        basic(b"WNDFTEMP:secret"),
    ],
)
def test_anything_else_is_nobody(header):
    assert asked(header) is None


def test_a_stranger_is_told_how_to_get_a_key_and_no_secret():
    response = please_authenticate("/metrics")
    assert response.status == 401
    assert (b"www-authenticate", b'Basic realm="windfall"') in response.headers
    assert b"windfall keys create --role read" in response.body
