"""GetCallerIdentity by a real boto3 client over a real server, and errors that such a client can read."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
import urllib.request
import uuid

import boto3
import pytest
import uvicorn
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.waiting import wait_until
from windfall.aws_api.protocol.application import Application
from windfall.aws_api.protocol.errors import ApiError, ServiceDefinitionError
from windfall.aws_api.protocol.keys import KeyRing, Role, create_key, ensure_keys_file
from windfall.aws_api.protocol.query import QueryService
from windfall.aws_api.protocol.refusals import xml_refusal
from windfall.aws_api.protocol.request import HttpRequest
from windfall.aws_api.protocol.service import Caller
from windfall.aws_api.sts.service import sts_service

ACCOUNT = "210987654321"
CALLER = Caller("AKIDEXAMPLE", Role.READ, "team-a")


@contextlib.contextmanager
def serving(application):
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, lifespan="off", log_config=None))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        wait_until(lambda: server.started, "the server listens")
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    ensure_keys_file(path, now=0)
    key = create_key(path, role=Role.READ, tenant="team-a.b", now=0)
    application = Application([sts_service(ACCOUNT)], KeyRing(path), time.time, lambda: str(uuid.uuid4()))
    with serving(application) as url:
        yield url, key


def client(url, key_id, secret):
    return boto3.client(
        "sts",
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
        config=Config(retries={"max_attempts": 0}),
    )


def test_boto3_learns_who_it_is(server):
    url, key = server
    identity = client(url, key.access_key_id, key.secret_access_key).get_caller_identity()
    assert identity["Account"] == ACCOUNT
    assert identity["UserId"] == key.access_key_id
    assert identity["Arn"] == f"arn:aws:iam::{ACCOUNT}:user/team-a.b/{key.access_key_id}"
    assert identity["ResponseMetadata"]["RequestId"]


def test_a_wrong_secret_is_refused_in_words_that_the_client_can_read(server):
    url, key = server
    with pytest.raises(ClientError) as caught:
        client(url, key.access_key_id, "wrong").get_caller_identity()
    assert caught.value.response["Error"]["Code"] == "SignatureDoesNotMatch"
    with pytest.raises(ClientError) as caught:
        client(url, "AKIDUNKNOWN", "wrong").get_caller_identity()
    assert caught.value.response["Error"]["Code"] == "InvalidClientTokenId"
    assert "windfall keys list" in caught.value.response["Error"]["Message"]


def test_an_operation_that_is_missing_is_named(server):
    url, key = server
    with pytest.raises(ClientError) as caught:
        client(url, key.access_key_id, key.secret_access_key).get_session_token()
    assert caught.value.response["Error"]["Code"] == "InvalidAction"
    assert "GetSessionToken" in caught.value.response["Error"]["Message"]


def test_a_presigned_url_works_too(server):
    url, key = server
    presigned = client(url, key.access_key_id, key.secret_access_key).generate_presigned_url(
        "get_caller_identity", ExpiresIn=60, HttpMethod="GET"
    )
    with urllib.request.urlopen(presigned) as answer:
        assert answer.headers["content-type"] == "text/xml"
        assert f"<Account>{ACCOUNT}</Account>" in answer.read().decode()


def ask(body: bytes):
    return asyncio.run(sts_service(ACCOUNT).answer(HttpRequest("POST", "/", "", {}, body), CALLER, "r", "id"))


@pytest.mark.parametrize(
    "body", [b"", b"Action=", b"Action=Nonsense%00", b"Action=%ff", b"\xff", b"&".join([b"a=b"] * 2000)]
)
def test_what_is_no_operation_is_refused_and_no_fault_of_ours(body):
    with pytest.raises(ApiError) as caught:
        ask(body)
    assert caught.value.status == 400


def test_texts_of_others_stay_texts_in_xml():
    answer = xml_refusal(ApiError("Code", "<b>&\x00\ud800 it is"), "id<")
    assert b"&lt;b&gt;&amp;?? it is" in answer.body
    assert b"<RequestId>id&lt;</RequestId>" in answer.body
    assert b"<Type>Receiver</Type>" in xml_refusal(ApiError("Code", "x", 500), "id").body


def test_an_operation_that_is_none_is_no_service():
    with pytest.raises(ServiceDefinitionError, match="no operations"):
        QueryService("sts", {"Nonsense": None}, {"Nonsense": Role.READ})
