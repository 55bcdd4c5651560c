"""The usher as clients see it: boto3's sagemaker-runtime against a real usher with real model servers."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError

from tests.usher_process import RunningUsher, a_variant, running_usher
from tests.waiting import wait_until
from windfall.aws_api.protocol.keys import Role, create_key, revoke_key
from windfall.hosting.routes import ReplicaRoute


@pytest.fixture
def usher(tmp_path: Path) -> Iterator[RunningUsher]:
    with running_usher(tmp_path) as running:
        yield running


def invoke(client: Any, body: bytes, **more: Any) -> bytes:
    content: bytes = client.invoke_endpoint(EndpointName="echo", Body=body, **more)["Body"].read()
    return content


def refusal(client: Any, body: bytes = b"x", **more: Any) -> dict[str, Any]:
    with pytest.raises(ClientError) as refused:
        invoke(client, body, **more)
    answer: dict[str, Any] = refused.value.response
    return answer


def test_an_invocation_goes_to_the_model_and_back(usher: RunningUsher) -> None:
    usher.route(a_variant(usher.model("m1")))
    answer = usher.client().invoke_endpoint(
        EndpointName="echo",
        Body=b"headers",
        ContentType="text/csv",
        Accept="text/plain",
        CustomAttributes="a=b",
    )
    assert (answer["ContentType"], answer["InvokedProductionVariant"]) == ("text/plain", "AllTraffic")
    assert answer["CustomAttributes"] == "seen"
    assert "x-secret-of-the-model" not in answer["ResponseMetadata"]["HTTPHeaders"]
    seen = dict(eval(answer["Body"].read()))
    assert seen == {
        "host": "model",
        "content-type": "text/csv",
        "accept": "text/plain",
        "content-length": "7",
        "x-amzn-sagemaker-custom-attributes": "a=b",
    }
    assert invoke(usher.client(), b"a" * 3_000_000) == b"m1:" + b"a" * 3_000_000


def test_a_models_error_is_wrapped(usher: RunningUsher) -> None:
    usher.route(a_variant(usher.model("m1")))
    for status in (400, 404, 500, 503):
        answer = refusal(usher.client(), b"status %d" % status)
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 424
        assert answer["Error"]["Code"] == "ModelError"
        assert answer["OriginalStatusCode"] == status
        assert answer["OriginalMessage"] == "the model says no"
        assert answer["LogStreamArn"].endswith(":/aws/sagemaker/Endpoints/echo:log-stream:AllTraffic/m1")
    (replica,) = usher.stats().endpoints[0].variants[0].replicas
    assert (replica.invocations, replica.status_4xx, replica.status_5xx) == (4, 2, 2)
    assert replica.last_request_at > 0
    assert set(replica.stages) == {"received", "verified", "waited", "container", "sent"}
    assert all(sum(times.histogram) == 4 for times in replica.stages.values())


def test_a_stream_comes_part_by_part(usher: RunningUsher, tmp_path: Path) -> None:
    usher.route(a_variant(usher.model("m1")))
    answer = usher.client().invoke_endpoint_with_response_stream(
        EndpointName="echo", Body=f"stream 3 {tmp_path}/go".encode()
    )
    assert answer["ContentType"] == "text/plain"
    parts = []
    for number, event in enumerate(answer["Body"]):
        # The model waits for this file before it goes on: so the part came before the answer was whole.
        parts.append(event["PayloadPart"]["Bytes"])
        (tmp_path / f"go.{number}").touch()
    assert parts == [b"part 0\n", b"part 1\n", b"part 2\n"]


def test_a_stream_that_breaks_off_ends_with_an_error(usher: RunningUsher, tmp_path: Path) -> None:
    usher.route(a_variant(usher.model("m1")))
    (tmp_path / "go.0").touch()
    with usher.connected() as connection:
        body = f"stream 1 {tmp_path}/go die".encode()
        connection.sendall(usher.signed(body, action="invocations-response-stream"))
        connection.shutdown(socket.SHUT_WR)
        content = b"".join(iter(lambda: connection.recv(65536), b""))
    parts = content.partition(b"\r\n\r\n")[2].split(b"\r\n", 1)[1]
    assert b"part 0\n" in parts
    assert parts.index(b"ModelStreamError") > parts.index(b"part 0")
    assert b'"ErrorCode":"StreamBroken"' in parts
    assert content.endswith(b"0\r\n\r\n")


def test_a_client_that_leaves_a_stream_ends_it_at_the_model(usher: RunningUsher) -> None:
    usher.route(a_variant(usher.model("m1")))
    with usher.connected() as connection:
        connection.sendall(usher.signed(b"stream 1000000000", action="invocations-response-stream"))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")

    def in_flight() -> int:
        return usher.stats().endpoints[0].variants[0].replicas[0].in_flight

    wait_until(lambda: in_flight() == 0, "the request ends with its client")


def test_weights_and_target_variant(usher: RunningUsher) -> None:
    one, two = usher.model("m1"), usher.model("m2")
    usher.route(a_variant(one, name="a", weight=3.0), a_variant(two, name="b", weight=1.0))
    client = usher.client()
    answers = [invoke(client, b"x").partition(b":")[0] for _ in range(40)]
    assert (answers.count(b"m1"), answers.count(b"m2")) == (30, 10)
    assert invoke(client, b"x", TargetVariant="b") == b"m2:x"
    answer = refusal(client, TargetVariant="none")
    assert (answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]) == ("ValidationError", 400)


def test_a_shadow_gets_copies_and_its_answers_are_dropped(usher: RunningUsher) -> None:
    one, two = usher.model("m1"), usher.model("m2")
    usher.route(a_variant(one), a_variant(two, name="shadow", shadow=True))
    client = usher.client()
    for number in range(10):
        assert invoke(client, b"%d" % number) == b"m1:%d" % number
    wait_until(lambda: sorted(two.begun) == sorted(one.begun), "the shadow has a copy of each")
    assert refusal(client, TargetVariant="shadow")["Error"]["Code"] == "ValidationError"


def test_others_see_no_endpoint_and_a_revoked_key_is_refused_at_once(usher: RunningUsher) -> None:
    usher.route(a_variant(usher.model("m1")))
    keys = usher.data / "keys.json"
    other = create_key(keys, role=Role.ADMIN, tenant="other", now=1)
    reader = create_key(keys, role=Role.READ, now=1)
    submitter = create_key(keys, role=Role.SUBMIT, now=1, with_session_token=True)
    assert invoke(usher.client(submitter), b"x") == b"m1:x"
    theirs = refusal(usher.client(other))
    with pytest.raises(ClientError) as nobodys:
        usher.client(other).invoke_endpoint(EndpointName="echoo", Body=b"x")
    assert theirs["Error"]["Message"] == nobodys.value.response["Error"]["Message"].replace("echoo", "echo")
    assert refusal(usher.client(reader))["Error"]["Code"] == "AccessDeniedException"
    client = usher.client(submitter)
    assert invoke(client, b"x") == b"m1:x"
    revoke_key(keys, submitter.access_key_id, now=2)
    assert refusal(client)["Error"]["Code"] == "UnrecognizedClientException"


def test_a_full_queue_refuses_with_a_reason_and_those_that_wait_are_served(
    usher: RunningUsher, tmp_path: Path
) -> None:
    usher.route(a_variant(usher.model("m1"), concurrency_per_replica=1, queue_limit=2))
    client, go = usher.client(), tmp_path / "go"
    with ThreadPoolExecutor(3) as pool:
        held = [pool.submit(invoke, client, f"wait {go} {number}".encode()) for number in range(3)]
        wait_until(lambda: usher.stats().endpoints[0].variants[0].waiting == 2, "two requests wait")
        answer = refusal(client)
        go.touch()
        assert sorted(one.result() for one in held) == [f"m1:wait {go} {n}".encode() for n in range(3)]
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 429
    assert answer["Error"]["Code"] == "ThrottlingException"
    assert "2 requests wait for variant AllTraffic" in answer["Error"]["Message"]


def test_times_are_limited(usher: RunningUsher, tmp_path: Path) -> None:
    usher.route(a_variant(usher.model("m1"), concurrency_per_replica=1, timeout_s=0.5))
    client = usher.client()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(refusal, client, f"wait {tmp_path}/never".encode())
        wait_until(lambda: usher.models[0].begun, "the model has begun")
        assert refusal(client)["ResponseMetadata"]["HTTPStatusCode"] in (424, 429)
        answer = first.result()
    assert (answer["Error"]["Code"], answer["OriginalStatusCode"]) == ("ModelError", 0)
    assert "longer than 0.5 seconds" in answer["OriginalMessage"]


def test_a_request_that_was_not_begun_goes_to_another_replica(usher: RunningUsher) -> None:
    one = usher.model("m1")
    dead = ReplicaRoute("dead", "127.0.0.1", 1)
    variant = a_variant(one)
    usher.route(type(variant)(name="v", weight=1.0, replicas=(dead, one.route)))
    client = usher.client()
    assert [invoke(client, b"%d" % n) for n in range(20)] == [b"m1:%d" % n for n in range(20)]
    assert one.begun == [str(n) for n in range(20)]


def test_without_a_replica_the_answer_says_so_or_the_request_is_held(usher: RunningUsher) -> None:
    usher.route(a_variant())
    answer = refusal(usher.client())
    assert (answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]) == (
        "ServiceUnavailable",
        503,
    )
    usher.route(a_variant(holds=True))
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(invoke, usher.client(), b"x")
        wait_until(lambda: usher.stats().endpoints[0].variants[0].waiting == 1, "the request is held")
        usher.route(a_variant(usher.model("m1"), holds=True))
        assert held.result() == b"m1:x"


def test_a_request_that_comes_a_moment_before_its_replica_gets_all_its_time(usher: RunningUsher) -> None:
    usher.route(a_variant())
    model = usher.model("m1")
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(invoke, usher.client(), b"sleep 1.5")
        wait_until(lambda: usher.stats().endpoints[0].variants[0].waiting == 1, "the request waits")
        usher.route(a_variant(model))
        assert early.result() == b"m1:sleep 1.5"


def test_a_draining_replica_finishes_and_gets_nothing_new(usher: RunningUsher, tmp_path: Path) -> None:
    one, go = usher.model("m1"), tmp_path / "go"
    usher.route(a_variant(one))
    client = usher.client()
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(invoke, client, f"wait {go}".encode())
        wait_until(lambda: one.begun, "the model has begun")
        two = usher.model("m2")
        usher.route(a_variant(two))
        assert invoke(client, b"x") == b"m2:x"
        leaving = {r.id: r.in_flight for r in usher.stats().endpoints[0].variants[0].replicas}
        assert leaving == {"m2": 0, "m1": 1}
        go.touch()
        assert held.result().startswith(b"m1:")
    wait_until(
        lambda: [r.id for r in usher.stats().endpoints[0].variants[0].replicas] == ["m2"], "m1 is forgotten"
    )


def test_a_model_that_talks_nonsense_dies_or_says_too_much_is_an_error(usher: RunningUsher) -> None:
    usher.route(a_variant(usher.model("m1")))
    client = usher.client()
    assert "not valid HTTP" in refusal(client, b"garbage")["OriginalMessage"]
    wait_until(lambda: refusal_or_answer(client, b"x") == b"m1:x", "it is tried again")
    assert "more than" in refusal(client, b"large 7000000")["OriginalMessage"]
    assert len(invoke(client, b"large 6000000")) == 6_000_000
    assert "closed the connection" in refusal(client, b"die")["OriginalMessage"]


def refusal_or_answer(client: Any, body: bytes) -> bytes | None:
    try:
        return invoke(client, body)
    except ClientError:
        return None


def test_a_killed_usher_is_back_at_its_address_with_its_table(usher: RunningUsher, tmp_path: Path) -> None:
    usher.route(a_variant(usher.model("m1")))
    client, before = usher.client(), usher.stats()
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(invoke, client, f"wait {tmp_path}/never".encode())
        wait_until(lambda: usher.models[0].begun, "the model has begun")
        os.kill(before.pid, signal.SIGKILL)
        with pytest.raises((ConnectionClosedError, EndpointConnectionError)):
            held.result()

    def answered() -> bool:
        try:
            return invoke(client, b"x") == b"m1:x"
        except (EndpointConnectionError, ConnectionClosedError):
            return False

    wait_until(answered, "the warden has started another usher")
    after = usher.stats()
    assert (after.pid != before.pid, after.table) == (True, before.table)


def test_of_a_replica_killed_under_load_every_answer_is_accounted_for(usher: RunningUsher) -> None:
    models = [usher.model(f"m{number}") for number in range(3)]
    usher.route(a_variant(*models))
    client = usher.client()
    outcomes: dict[str, str] = {}
    killed = threading.Event()

    def ask(number: int) -> None:
        body = f"request {number}"
        if number == 100:
            models[0].process.kill()
            killed.set()
        try:
            outcomes[body] = invoke(client, body.encode()).decode().partition(":")[0]
        except ClientError as error:
            outcomes[body] = error.response["Error"]["Code"]

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, range(400)))
    assert killed.is_set()
    begun = {model.name: model.begun for model in models}
    every = [body for bodies in begun.values() for body in bodies]
    assert len(every) == len(set(every)), "a request was begun twice"
    for body, outcome in outcomes.items():
        # Answered by the model that began it; or begun, perhaps, by the one that died, and nowhere else.
        assert outcome == "ModelError" or body in begun[outcome]
        if outcome == "ModelError":
            assert body not in begun["m1"] + begun["m2"]
    assert len(outcomes) == 400
    assert sum(outcome == "ModelError" for outcome in outcomes.values()) <= 16
    traffic = usher.stats().endpoints[0].variants[0].replicas
    assert sum(replica.invocations for replica in traffic) == 400
    assert sum(replica.status_5xx for replica in traffic) == list(outcomes.values()).count("ModelError")


def test_an_usher_that_is_told_to_end_finishes_what_it_has(usher: RunningUsher, tmp_path: Path) -> None:
    usher.route(a_variant(usher.model("m1")))
    client, go = usher.client(), tmp_path / "go"
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(invoke, client, f"wait {go}".encode())
        wait_until(lambda: usher.models[0].begun, "the model has begun")
        os.kill(usher.warden.pid, signal.SIGTERM)

        def refused() -> bool:
            # A connection that waits to be accepted while the listener closes is reset: refused as well.
            try:
                invoke(usher.client(), b"x")
            except (EndpointConnectionError, ConnectionClosedError):
                return True
            return False

        wait_until(refused, "it accepts nothing new")
        go.touch()
        assert held.result().startswith(b"m1:")
    assert usher.warden.wait(60) == 0


def test_stats_is_all_that_its_socket_answers(usher: RunningUsher) -> None:
    assert ((usher.directory / "usher.sock").stat().st_mode & 0o777) == 0o600
    assert json.loads(json.dumps(usher.stats().connections)) == 0
