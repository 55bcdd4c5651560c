"""The usher beside a daemon: who starts it, what `windfall env` says, and that requests outlive the daemon."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.acceptance.daemon import RunningWindfall
from tests.acceptance.serving import Serving, scaler
from tests.waiting import wait_until
from windfall.agent.reach import guard_of

VARIABLE = "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME"
OPTIONS = ("--vcpus", "8", "--memory-mib", "65536", "--usher-port", "0")


def an_endpoint(windfall: RunningWindfall) -> Serving:
    """The endpoint `twice`, in service."""
    serving = Serving(windfall)
    serving.model("twice", scaler(2))
    serving.config("twice", "twice")
    serving.create("twice", "twice")
    serving.reaches("twice", "InService")
    return serving


def asked(client: Any, numbers: list[int]) -> list[int]:
    answer = client.invoke_endpoint(
        EndpointName="twice", Body=json.dumps(numbers), ContentType="application/json"
    )
    scaled: list[int] = json.loads(answer["Body"].read())["scaled"]
    return scaled


@contextmanager
def runtime(windfall: RunningWindfall, url: str) -> Iterator[Any]:
    environment = windfall.environment
    client = boto3.client(
        "sagemaker-runtime",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        config=Config(retries={"total_max_attempts": 1}),
    )
    yield client
    client.close()


def test_clients_with_one_url_are_served_by_the_daemon_too(fresh: Callable[..., RunningWindfall]) -> None:
    windfall = fresh(*OPTIONS)
    with runtime(windfall, windfall.url) as client:
        assert windfall.environment[VARIABLE] == windfall.url
        with pytest.raises(ClientError, match="Endpoint twice not found"):
            asked(client, [1])
        an_endpoint(windfall)
        url = windfall.environment[VARIABLE]
        assert url != windfall.url
        assert windfall.windfall("env", "--json").stdout.count(url) == 1
        many = list(range(300_000))
        assert asked(client, many) == [2 * number for number in many]
        streamed = client.invoke_endpoint_with_response_stream(
            EndpointName="twice", Body=b"[3]", ContentType="application/json"
        )
        parts = b"".join(event["PayloadPart"]["Bytes"] for event in streamed["Body"])
        assert json.loads(parts)["scaled"] == [6]
        with pytest.raises(ClientError) as refused:
            client.invoke_endpoint(EndpointName="twice", Body=b"{", ContentType="application/json")
        assert refused.value.response["Error"]["Code"] == "ModelError"
        assert (
            ":log-group:/aws/sagemaker/Endpoints/twice:log-stream:" in refused.value.response["LogStreamArn"]
        )
        with pytest.raises(ClientError) as too_large:
            client.invoke_endpoint(EndpointName="twice", Body=b"a" * 7_000_000)
        assert too_large.value.response["ResponseMetadata"]["HTTPStatusCode"] == 413
    with runtime(windfall, url) as client:
        assert asked(client, [4]) == [8]


def test_killing_and_replacing_the_daemon_under_load_drops_no_request(
    fresh: Callable[..., RunningWindfall],
) -> None:
    windfall = fresh(*OPTIONS)
    an_endpoint(windfall)
    url = windfall.environment[VARIABLE]
    failures: list[str] = []
    answered, over = [0], threading.Event()

    def load(client: Any, number: int) -> None:
        count = 0
        while not over.is_set():
            try:
                if asked(client, [number, count]) != [2 * number, 2 * count]:
                    failures.append(f"{number}/{count} got another answer")
            except Exception as error:  # noqa: BLE001 (any failure at all is one too many)
                failures.append(repr(error))
            count += 1
            answered[0] += 1

    def serves_on() -> None:
        before = answered[0]
        wait_until(lambda: answered[0] > before + 50 or failures, "requests go on")

    with runtime(windfall, url) as client:
        clients = [threading.Thread(target=load, args=(client, number)) for number in range(4)]
        for thread in clients:
            thread.start()
        try:
            serves_on()
            windfall.kill_daemon()
            serves_on()
            windfall.up()
            serves_on()
            windfall.windfall("down")
            assert windfall.process is not None
            windfall.process.wait(90)
            serves_on()
            windfall.up()
            serves_on()
        finally:
            over.set()
            for thread in clients:
                thread.join()
    assert failures == []
    assert windfall.environment[VARIABLE] == url


def test_an_usher_whose_warden_was_killed_too_is_started_again_and_one_without_endpoints_ends(
    fresh: Callable[..., RunningWindfall],
) -> None:
    windfall = fresh(*OPTIONS)
    directory = str(windfall.data / "usher")
    serving = an_endpoint(windfall)
    url = windfall.environment[VARIABLE]
    warden = wait_until(lambda: guard_of(directory), "a warden guards the directory")
    (usher,) = (int(pid) for pid in Path(f"/proc/{warden}/task/{warden}/children").read_text().split())
    os.kill(warden, signal.SIGKILL)
    os.kill(usher, signal.SIGKILL)
    with runtime(windfall, url) as client:

        def answers() -> bool:
            try:
                return asked(client, [5]) == [10]
            except Exception:  # noqa: BLE001 (whatever fails while there is no usher)
                return False

        wait_until(answers, "the daemon has started another")
    assert guard_of(directory) not in (None, warden)
    serving.sagemaker.delete_endpoint(EndpointName="twice")
    wait_until(lambda: not serving.sagemaker.list_endpoints()["Endpoints"], "the endpoint is gone")
    windfall.windfall("down")
    wait_until(lambda: guard_of(directory) is None, "an usher without endpoints ends with its daemon")
