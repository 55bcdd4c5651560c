"""Endpoints for acceptance tests: models of a few lines, their archives, and waiting for where an endpoint stands."""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from tests.acceptance.daemon import RunningWindfall
from tests.waiting import wait_until

ROLE = "arn:aws:iam::123456789012:role/Serving"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/not-here:1"
BUCKET = "windfall"
#: Answers with its factor times the numbers that it got, and says which process it is.
SCALER = """
import json, os

def model_fn(model_dir):
    with open(os.path.join(model_dir, "factor.json")) as file:
        return json.load(file)

def predict_fn(data, model):
    return {"scaled": [model * number for number in data], "port": os.environ["SAGEMAKER_BIND_TO_PORT"]}
"""
BROKEN = "raise RuntimeError('this model cannot be loaded')\n"


def archive(files: dict[str, str]) -> bytes:
    """A model.tar.gz with these files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


def scaler(factor: float) -> bytes:
    """The archive of a model that multiplies."""
    return archive({"factor.json": json.dumps(factor), "code/inference.py": SCALER})


def process_at(port: str) -> int:
    """The process of the host that serves there: a sandbox has process ids of its own."""
    wanted = f"SAGEMAKER_BIND_TO_PORT={port}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                program = (entry / "cmdline").read_bytes().split(b"\0")
                is_server = len(program) > 1 and program[1].endswith(b"/model_server.py")
                if is_server and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    return int(entry.name)
    raise AssertionError(f"nothing serves at {port}")


class Serving:
    """A daemon with object storage, and the clients that an endpoint needs."""

    def __init__(self, windfall: RunningWindfall) -> None:
        self.windfall = windfall
        self.again_with_clients()

    def again_with_clients(self) -> None:
        self.sagemaker, self.logs = self.windfall.client("sagemaker"), self.windfall.client("logs")

    def again(self) -> None:
        """Start the daemon again; it listens elsewhere."""
        self.windfall.up()
        self.again_with_clients()

    @property
    def usher_url(self) -> str:
        """Where the usher listens."""
        return self.windfall.environment["AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME"]

    def runtime(self) -> Any:
        """A client of the usher that repeats nothing by itself."""
        environment = self.windfall.environment
        return boto3.client(
            "sagemaker-runtime",
            endpoint_url=environment["AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME"],
            region_name=environment["AWS_REGION"],
            aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"total_max_attempts": 1}),
        )

    def invoke(self, name: str, numbers: list[float], **more: Any) -> dict[str, Any]:
        """Ask an endpoint."""
        answer = self.runtime().invoke_endpoint(
            EndpointName=name, ContentType="application/json", Body=json.dumps(numbers), **more
        )
        found: dict[str, Any] = json.load(answer["Body"])
        return found

    def upload(self, key: str, content: bytes) -> None:
        """Put an object into the bucket."""
        path = self.windfall.data / "objects" / "buckets" / BUCKET / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def model(self, name: str, content: bytes, **container: Any) -> None:
        """Upload an archive and declare it."""
        self.upload(f"{name}.tar.gz", content)
        self.sagemaker.create_model(
            ModelName=name,
            ExecutionRoleArn=ROLE,
            PrimaryContainer={
                "Image": IMAGE,
                "ModelDataUrl": f"s3://{BUCKET}/{name}.tar.gz",
                "Environment": {"SAGEMAKER_PROGRAM": "inference.py"},
                **container,
            },
        )

    def config(self, name: str, model: str, count: int = 1, **variant: Any) -> None:
        """Declare a configuration with one variant."""
        self.sagemaker.create_endpoint_config(
            EndpointConfigName=name,
            ProductionVariants=[
                {
                    "VariantName": "AllTraffic",
                    "ModelName": model,
                    "InstanceType": "ml.m5.large",
                    "InitialInstanceCount": count,
                    **variant,
                }
            ],
        )

    def create(self, name: str, config: str) -> None:
        self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=config)

    def describe(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.sagemaker.describe_endpoint(EndpointName=name)
        return found

    def reaches(self, name: str, status: str) -> dict[str, Any]:
        """Wait until an endpoint has this status."""
        found: dict[str, Any] = {}

        def reached() -> bool:
            found.update(self.describe(name))
            return bool(found["EndpointStatus"] == status)

        wait_until(reached, f"{name} in {status}", interval_s=0.1)
        return found

    def ready(self, name: str) -> int:
        """How many replicas answer."""
        return sum(variant["CurrentInstanceCount"] for variant in self.describe(name)["ProductionVariants"])

    def log(self, name: str) -> list[str]:
        """All lines of all replicas."""
        pages = self.logs.get_paginator("filter_log_events").paginate(
            logGroupName=f"/aws/sagemaker/Endpoints/{name}"
        )
        return [event["message"] for page in pages for event in page["events"]]
