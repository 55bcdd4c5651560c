"""Endpoints with an unmodified boto3 over a real daemon, a real usher and real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.acceptance.daemon import RunningWindfall
from tests.acceptance.serving import BROKEN, BUCKET, IMAGE, ROLE, SCALER, Serving, archive, process_at, scaler
from tests.waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "endpoints.md"
OPTIONS = ("--vcpus", "64", "--memory-mib", "262144", "--gpus", "none", "--usher-port", "0")


@pytest.fixture(scope="module")
def shared() -> Iterator[Serving]:
    """A daemon that tests share which kill nothing; their endpoints have names of their own."""
    running = RunningWindfall(*OPTIONS)
    try:
        yield Serving(running.up())
    finally:
        running.close()


@pytest.fixture
def alone(fresh: Any) -> Serving:
    return Serving(fresh(*OPTIONS))


def listed(windfall: RunningWindfall, name: str) -> dict[str, Any]:
    """An endpoint as `windfall endpoints` has it."""
    answer = json.loads(windfall.windfall("endpoints", name, "--json").stdout)
    found: dict[str, Any] = answer["endpoints"][0]
    return found


def ports(serving: Serving, name: str) -> set[str]:
    """The ports of the replicas that are ready."""
    replicas = listed(serving.windfall, name)["replicas"]
    return {str(replica["port"]) for replica in replicas if replica["state"] == "READY"}


class Asking:
    """Asks an endpoint again and again from several threads, and keeps every answer."""

    def __init__(self, serving: Serving, name: str, threads: int = 3) -> None:
        self.answers: list[Any] = []
        self.errors: list[str] = []
        self._over = threading.Event()
        self._name = name
        # One client for all: where the usher is has to be asked while there is a daemon.
        self._runtime = serving.runtime()
        self._threads = [threading.Thread(target=self._ask) for _ in range(threads)]

    def __enter__(self) -> Asking:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        while not self._over.is_set():
            try:
                answer = self._runtime.invoke_endpoint(
                    EndpointName=self._name, ContentType="application/json", Body=b"[10]"
                )
                self.answers.append(json.load(answer["Body"])["scaled"][0])
            except Exception as error:  # noqa: BLE001 - each is told at the end
                self.errors.append(str(error))

    def hears(self, answer: Any) -> None:
        """Wait for an answer."""
        wait_until(lambda: answer in self.answers, f"the answer {answer}", interval_s=0.02)


def test_the_example_of_the_page_works(shared: Serving, tmp_path: Path):
    inference, deploy = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "deploy.py").write_text(deploy)
    shared.upload("page.tar.gz", archive({"factor.json": "2", "code/inference.py": inference}))
    done = shared.windfall.shell(f"python {tmp_path}/deploy.py s3://{BUCKET}/page.tar.gz")
    assert (done.stdout, done.returncode) == ("[2, 4, 6]\n", 0), done.stderr
    printed = shared.windfall.windfall("endpoints").stdout
    assert re.search(r"^double +InService +1/1", printed, re.MULTILINE), printed
    lines = shared.windfall.windfall("endpoints", "double").stdout
    assert "inference.py runs with this host's Python" in lines
    wait_until(
        lambda: any("serving inference.py on 127.0.0.1:" in line for line in shared.log("double")), "its log"
    )
    shared.sagemaker.delete_endpoint(EndpointName="double")
    shared.sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="double", WaiterConfig={"Delay": 1})
    with pytest.raises(ClientError, match="Could not find endpoint"):
        shared.describe("double")


def test_a_model_that_cannot_be_loaded_fails_with_its_reason(shared: Serving):
    shared.model("broken", archive({"factor.json": "1", "code/inference.py": BROKEN}))
    shared.config("broken", "broken")
    shared.create("broken", "broken")
    failed = shared.reaches("broken", "Failed")
    assert "did not pass the ping health check" in failed["FailureReason"]
    assert "this model cannot be loaded" in failed["FailureReason"]
    assert "this model cannot be loaded" in listed(shared.windfall, "broken")["why"]
    shared.sagemaker.delete_endpoint(EndpointName="broken")


def test_a_model_may_be_a_prefix_of_plain_files(shared: Serving):
    shared.upload("plain/factor.json", b"7")
    shared.upload("plain/code/inference.py", SCALER.encode())
    source = {"S3Uri": f"s3://{BUCKET}/plain/", "S3DataType": "S3Prefix", "CompressionType": "None"}
    shared.sagemaker.create_model(
        ModelName="plain",
        ExecutionRoleArn=ROLE,
        PrimaryContainer={"Image": IMAGE, "ModelDataSource": {"S3DataSource": source}},
    )
    shared.config("plain", "plain")
    shared.create("plain", "plain")
    shared.reaches("plain", "InService")
    assert shared.invoke("plain", [3])["scaled"] == [21]
    shared.sagemaker.delete_endpoint(EndpointName="plain")


def test_variants_share_the_requests_by_their_weights(shared: Serving):
    shared.model("one", scaler(1))
    shared.model("ten", scaler(10))
    variants = [
        {"VariantName": name, "ModelName": name, "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}
        for name in ("one", "ten")
    ]
    shared.sagemaker.create_endpoint_config(EndpointConfigName="both", ProductionVariants=variants)
    shared.create("both", "both")
    shared.reaches("both", "InService")
    assert {shared.invoke("both", [1])["scaled"][0] for _ in range(4)} == {1, 10}
    assert shared.invoke("both", [1], TargetVariant="ten")["scaled"] == [10]
    shared.sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="both",
        DesiredWeightsAndCapacities=[
            {"VariantName": "one", "DesiredWeight": 0},
            {"VariantName": "ten", "DesiredWeight": 1, "DesiredInstanceCount": 2},
        ],
    )
    described = shared.reaches("both", "InService")
    by_name = {variant["VariantName"]: variant for variant in described["ProductionVariants"]}
    assert (by_name["one"]["CurrentWeight"], by_name["ten"]["CurrentInstanceCount"]) == (0, 2)
    assert {shared.invoke("both", [1])["scaled"][0] for _ in range(6)} == {10}
    shared.sagemaker.delete_endpoint(EndpointName="both")


def test_an_update_drops_no_request_though_the_daemon_is_killed(alone: Serving):
    for factor in (2, 3):
        alone.model(f"times-{factor}", scaler(factor))
        alone.config(f"times-{factor}", f"times-{factor}", count=2)
    alone.create("kept", "times-2")
    alone.reaches("kept", "InService")
    usher = alone.usher_url
    with Asking(alone, "kept") as asking:
        asking.hears(20)
        alone.sagemaker.update_endpoint(EndpointName="kept", EndpointConfigName="times-3")
        alone.windfall.kill_daemon()
        heard = len(asking.answers)
        wait_until(lambda: len(asking.answers) > heard + 20, "answers without a daemon")
        alone.again()
        asking.hears(30)
        described = alone.reaches("kept", "InService")
    assert asking.errors == []
    assert set(asking.answers) == {20, 30}
    assert described["EndpointConfigName"] == "times-3"
    assert alone.usher_url == usher
    assert [replica["state"] for replica in listed(alone.windfall, "kept")["replicas"]] == ["READY", "READY"]


def test_a_killed_replica_is_replaced_and_an_update_that_fails_is_taken_back(alone: Serving):
    alone.model("good", scaler(2))
    alone.config("good", "good", count=2)
    alone.create("e", "good")
    alone.reaches("e", "InService")
    killed, other = sorted(ports(alone, "e"))
    os.kill(process_at(killed), signal.SIGKILL)
    wait_until(
        lambda: killed not in ports(alone, "e") and alone.ready("e") == 2, "another one", interval_s=0.1
    )
    assert other in ports(alone, "e")
    assert {alone.invoke("e", [1])["port"] for _ in range(6)} == ports(alone, "e")
    alone.model("bad", archive({"factor.json": "1", "code/inference.py": BROKEN}))
    alone.config("bad", "bad", count=2)
    alone.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="bad")
    with Asking(alone, "e") as asking:
        described = alone.reaches("e", "InService")
    assert asking.errors == []
    assert described["EndpointConfigName"] == "good"
    assert "this model cannot be loaded" in described["FailureReason"]
