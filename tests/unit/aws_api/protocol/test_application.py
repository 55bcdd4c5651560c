"""The application without a server: bodies, order of checks, and what it does when clients leave."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.unit.aws_api.protocol.live_server import Recorder, build_services
from windfall.aws_api.protocol.application import BODY_LIMIT_BYTES, Application
from windfall.aws_api.protocol.errors import ServiceDefinitionError
from windfall.aws_api.protocol.keys import KeyRing, Role, ensure_keys_file
from windfall.aws_api.protocol.service import ModelledService, PlainService
from windfall.aws_api.protocol.sigv4 import sign

NOW = 1_700_000_000.0
JOB = b'{"jobName":"train","jobQueue":"q","jobDefinition":"d:1"}'


@pytest.fixture(scope="module")
def services():
    return build_services(Recorder())


@pytest.fixture
def ask(tmp_path, services):
    """Return a function that sends one request, its body in pieces, and returns status, headers, body."""
    key = ensure_keys_file(tmp_path / "keys.json", now=1)[0]
    ring = KeyRing(tmp_path / "keys.json")
    application = Application(services, ring, lambda: NOW, lambda: "request-1", body_timeout_s=0.05)

    def call(
        method="POST", path="/v1/submitjob", pieces=(JOB,), service="batch", then=None, extra=(), target=None
    ):
        body = b"".join(pieces)
        headers = sign(
            method=method,
            url="http://h" + path,
            headers={} if target is None else {"x-amz-target": target},
            body=body,
            access_key_id=key.access_key_id,
            secret_access_key=key.secret_access_key,
            region="us-east-1",
            service=service,
            now=NOW,
        )
        wire = [(name.encode(), value.encode()) for name, value in headers.items()]
        wire += [(b"content-length", b"%d" % len(body)), *extra]
        messages = [
            {"type": "http.request", "body": piece, "more_body": then is not None or number < len(pieces)}
            for number, piece in enumerate(pieces, 1)
        ]
        sent = []

        async def receive():
            if messages:
                return messages.pop(0)
            if then == "disconnect":
                return {"type": "http.disconnect"}
            return await asyncio.get_running_loop().create_future()  # a client that stays silent

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
        }
        asyncio.run(application({**scope, "headers": wire}, receive, send))
        if not sent:
            return None
        return sent[0]["status"], dict(sent[0]["headers"]), json.loads(sent[1]["body"])

    return call


def test_a_body_may_come_in_pieces(ask):
    status, headers, body = ask(pieces=(JOB[:5], JOB[5:20], JOB[20:]))
    assert (status, body["jobName"]) == (200, "train")
    assert headers[b"x-amzn-requestid"] == b"request-1"
    assert headers[b"content-type"] == b"application/json"


def test_a_body_over_the_limit_is_refused_however_it_comes(ask):
    big = b" " * BODY_LIMIT_BYTES + JOB
    for pieces in ((big,), (big[:1000], big[1000:])):
        status, headers, body = ask(pieces=pieces)
        assert (status, body["__type"]) == (413, "RequestEntityTooLargeException")
        assert headers[b"x-amzn-errortype"] == b"RequestEntityTooLargeException"
    status, _, body = ask(pieces=(big[:1000], big[1000:]), extra=[(b"content-length", b"x")])
    assert status == 413


def test_a_body_at_the_limit_is_served(ask):
    assert ask(pieces=(b" " * (BODY_LIMIT_BYTES - len(JOB)) + JOB,))[0] == 200


def test_a_client_that_leaves_gets_no_answer_and_one_that_stalls_gets_408(ask):
    assert ask(then="disconnect") is None
    status, _, body = ask(then="silence")
    assert (status, body["__type"]) == (408, "RequestTimeoutException")


def test_doubled_headers_spoil_the_signature(ask):
    for name in (b"authorization", b"x-amz-date", b"host"):
        status, _, body = ask(extra=[(name, b"again")])
        assert status in (400, 403)
        assert "Signature" in body["__type"]


def test_json_services_answer_in_their_content_type(ask):
    status, headers, body = ask(
        path="/", service="logs", pieces=(b"nonsense",), target="Logs_20140328.GetLogEvents"
    )
    assert (status, body["__type"]) == (400, "SerializationException")
    assert headers[b"content-type"] == b"application/x-amz-json-1.1"
    status, _, body = ask(path="/", service="logs", pieces=(b"{}",), target="Logs_20140328.Dance")
    assert (status, body["__type"]) == (400, "UnknownOperationException")
    assert "Dance" in body["message"]


def test_wrong_method_and_path_are_named(ask):
    status, _, body = ask(method="PUT")
    assert (status, body["__type"]) == (404, "UnknownOperationException")
    assert "PUT /v1/submitjob" in body["message"]


def test_an_error_text_that_is_no_valid_text_is_still_said(ask):
    status, _, body = ask(path="/v1/canceljob", pieces=(b'{"jobId":"broken","reason":"r"}',))
    assert (status, body["__type"]) == (400, "ClientException")
    assert "log ? line" in body["message"]


def test_lifespan_and_websockets(tmp_path, services):
    ensure_keys_file(tmp_path / "keys.json", now=1)
    application = Application(services, KeyRing(tmp_path / "keys.json"), lambda: NOW, lambda: "r")
    incoming = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent = []

    async def receive():
        return incoming.pop(0)

    async def send(message):
        sent.append(message["type"])

    asyncio.run(application({"type": "lifespan"}, receive, send))
    asyncio.run(application({"type": "websocket"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]


async def nothing(_call):
    return {}


def test_a_service_put_together_wrongly_is_refused_at_start(tmp_path, services):
    with pytest.raises(ServiceDefinitionError, match="minimal role"):
        PlainService("windfall", {"why": nothing}, {})
    with pytest.raises(ServiceDefinitionError, match="SubmitJop"):
        ModelledService("batch", {"SubmitJop": nothing}, {"SubmitJop": Role.READ})
    ensure_keys_file(tmp_path / "keys.json", now=1)
    with pytest.raises(ServiceDefinitionError, match="signing name"):
        Application([*services, services[0]], KeyRing(tmp_path / "keys.json"), lambda: NOW, lambda: "r")
