"""Requests for aws:kms without a key: completed and signed anew, if their own signature is right."""

from __future__ import annotations

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from windfall.daemon.s3_resigning import CannotComplete, completed, lacks_key

KEY_ID, SECRET = "AKIAEXAMPLE", "the secret"
ADDED = "x-amz-server-side-encryption-aws-kms-key-id"


def head_of(url="http://127.0.0.1:9/bucket/a%20b%C3%A9?uploads&x=1", **headers):
    request = AWSRequest(
        "PUT", url, data=b"hello", headers={"x-amz-server-side-encryption": "aws:kms", **headers}
    )
    request.context["payload_signing_enabled"] = True
    S3SigV4Auth(Credentials(KEY_ID, SECRET), "s3", "us-east-1").add_auth(request)
    target = request.prepare().url.removeprefix("http://127.0.0.1:9")
    lines = [f"PUT {target} HTTP/1.1", "Host: 127.0.0.1:9"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def headers_in(head):
    return {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head.decode().strip().split("\r\n")[1:])
    }


def secret(key_id, _token):
    return SECRET if key_id == KEY_ID else None


def test_a_request_is_completed_and_its_new_signature_is_right():
    head = head_of()
    assert lacks_key(head)
    done = completed(head, "alias/aws/s3", secret)
    assert not lacks_key(done)
    assert headers_in(done)[ADDED] == "alias/aws/s3"
    assert done.split(b"\r\n")[0] == head.split(b"\r\n")[0]
    # Checked by doing it once more: only a right signature is ever replaced.
    assert headers_in(completed(done, "another", secret))[ADDED] == "another"
    spoilt = done.replace(b"alias/aws/s3", b"alias/aws/xx")
    assert completed(spoilt, "another", secret) == spoilt


def test_what_is_signed_wrongly_or_by_a_stranger_is_left_to_the_server_to_refuse():
    head = head_of()
    assert completed(head, "k", lambda *_: "another secret") == head
    assert completed(head, "k", lambda *_: None) == head
    tampered = head.replace(b"/bucket/", b"/others/")
    assert completed(tampered, "k", secret) == tampered


def test_a_session_is_signed_for_with_the_secret_of_its_token():
    head = head_of(**{"x-amz-security-token": "a token"})
    done = completed(head, "alias/aws/s3", lambda key_id, token: SECRET if token == "a token" else None)
    assert headers_in(done)[ADDED] == "alias/aws/s3"
    assert headers_in(done)["x-amz-security-token"] == "a token"


def test_what_cannot_be_signed_anew_is_told_what_to_do():
    plain = head_of()
    digest = headers_in(plain)["x-amz-content-sha256"].encode()
    streamed = plain.replace(digest, b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
    presigned = b"\r\n".join(line for line in plain.split(b"\r\n") if not line.startswith(b"Authorization"))
    temporary = head_of(**{"x-amz-security-token": "temporary"}).replace(KEY_ID.encode(), b"ASIASESSION")
    wrong = head_of(**{"x-amz-security-token": "temporary"}).replace(b"/bucket/", b"/others/")
    for head in (streamed, presigned, temporary, wrong):
        with pytest.raises(CannotComplete, match="SSEKMSKeyId"):
            completed(head, "k", secret)


def test_other_requests_are_none_of_its_business():
    assert not lacks_key(head_of(**{ADDED: "mine"}))
    assert not lacks_key(b"GET /aws:kms HTTP/1.1\r\nhost: x\r\n\r\n")
    assert not lacks_key(b"PUT / HTTP/1.1\r\nx-amz-server-side-encryption: AES256\r\n\r\n")
