"""The key service for aws:kms: the same key and context unwrap what was wrapped, and nothing else does."""

from __future__ import annotations

import base64
import json

import pytest

from windfall.daemon.s3_key_wrapping import KeyWrapping

TOKEN = "the token"
DATA_KEY = base64.b64encode(bytes(range(32))).decode()


def asked(service, path, token=TOKEN, **body):
    return service.answer(f"/v1/transit/{path}", token, json.dumps(body).encode())


@pytest.fixture
def service():
    return KeyWrapping("a master", TOKEN)


@pytest.mark.parametrize("key_id", ["mine", "alias/aws/s3", "arn:aws:kms:us-east-1:1:key/1-2", "a%20b"])
def test_a_key_comes_back(service, key_id):
    status, answer = asked(service, f"encrypt/{key_id}", plaintext=DATA_KEY, context="Y29udGV4dA==")
    assert status == 200
    wrapped = answer["data"]["ciphertext"]
    assert DATA_KEY not in wrapped
    again = KeyWrapping("a master", TOKEN)
    assert asked(again, f"decrypt/{key_id}", ciphertext=wrapped, context="Y29udGV4dA==") == (
        200,
        {"data": {"plaintext": DATA_KEY}},
    )
    assert asked(service, f"encrypt/{key_id}", plaintext=DATA_KEY)[1]["data"]["ciphertext"] != wrapped


def test_another_key_context_or_master_opens_nothing(service):
    wrapped = asked(service, "encrypt/mine", plaintext=DATA_KEY, context="one")[1]["data"]["ciphertext"]
    spoilt = wrapped[:-4] + ("AAA=" if wrapped[-4:] != "AAA=" else "BBB=")
    assert asked(service, "decrypt/yours", ciphertext=wrapped, context="one")[0] == 400
    assert asked(service, "decrypt/mine", ciphertext=wrapped, context="two")[0] == 400
    assert asked(service, "decrypt/mine", ciphertext=spoilt, context="one")[0] == 400
    assert asked(KeyWrapping("other", TOKEN), "decrypt/mine", ciphertext=wrapped, context="one")[0] == 400


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/transit/encrypt/mine", b"nonsense", 400),
        ("/v1/transit/encrypt/mine", b"{}", 400),
        ("/v1/transit/encrypt/mine", b"[]", 400),
        ("/v1/transit/encrypt/", b"{}", 404),
        ("/v1/transit/rotate/mine", b"{}", 404),
        ("/other", b"{}", 404),
        ("/v1/transit/keys/any", b"", 200),
    ],
)
def test_what_makes_no_sense_is_refused(service, path, body, status):
    assert service.answer(path, TOKEN, body)[0] == status


def test_without_the_token_nothing_is_answered(service):
    for token in ("", "another", "the tokeñ"):
        assert asked(service, "encrypt/mine", token, plaintext=DATA_KEY)[0] == 403
