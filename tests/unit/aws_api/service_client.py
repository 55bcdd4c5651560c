"""A boto3 client whose requests go straight to a service of this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config


def client_of(service: str, region: str, present: Callable[[], Any]) -> Any:
    """A client that tries once, and sends every request to the world that is present then."""
    client = boto3.client(
        service,
        region_name=region,
        endpoint_url=f"http://{service}.test",
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}),
    )
    client.meta.events.register(f"before-send.{service}", lambda request, **_: present().send(request))
    return client
