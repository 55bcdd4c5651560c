"""Real boto3 clients and the real AWS command line against a real server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.unit.aws_api.logs.log_world import GROUP, T, World, served


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A server over one finished attempt, and one that runs."""
    world = World(tmp_path_factory.mktemp("live"))
    log = world.log("job/default/one")
    for n in range(50):
        log.write(f"step {n} größe\n".encode(), at=T + n * 500)
    log.write(b"bye", at=T + 30_000).end(T + 30_000)
    world.log("job/default/two").write(b"running\nhal", at=T + 250)
    with served(world) as (url, key):
        yield url, key


@pytest.fixture
def client(live):
    url, key = live
    client = boto3.client(
        "logs",
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id=key.access_key_id,
        aws_secret_access_key=key.secret_access_key,
        config=Config(retries={"total_max_attempts": 1}),
    )
    yield client
    client.close()


EXPECTED = [*(f"step {n} größe" for n in range(50)), "bye"]


def test_the_loop_that_users_write_ends_with_every_line(client):
    stream = {"logGroupName": GROUP, "logStreamName": "job/default/one", "startFromHead": True, "limit": 7}
    answer = client.get_log_events(**stream)
    lines, token = [event["message"] for event in answer["events"]], None
    while answer["nextForwardToken"] != token:
        token = answer["nextForwardToken"]
        answer = client.get_log_events(**stream, nextToken=token)
        lines += [event["message"] for event in answer["events"]]
    assert lines == EXPECTED


def test_paginators(client):
    pages = client.get_paginator("filter_log_events").paginate(
        logGroupName=GROUP,
        filterPattern="?9 ?bye ?running",
        interleaved=True,
        PaginationConfig={"PageSize": 2},
    )
    found = [event["message"] for page in pages for event in page["events"]]
    assert found == ["running", *(f"step {n} größe" for n in (9, 19, 29, 39, 49)), "bye"]
    streams = client.get_paginator("describe_log_streams").paginate(
        logGroupName=GROUP, PaginationConfig={"PageSize": 1}
    )
    assert [s["logStreamName"] for page in streams for s in page["logStreams"]] == [
        "job/default/one",
        "job/default/two",
    ]
    groups = client.get_paginator("describe_log_groups").paginate(logGroupNamePrefix="/aws")
    assert [g["logGroupName"] for page in groups for g in page["logGroups"]] == [GROUP]


def test_errors_are_the_clients_own_exceptions(client):
    with pytest.raises(client.exceptions.ResourceNotFoundException, match="log stream does not exist"):
        client.get_log_events(logGroupName=GROUP, logStreamName="nope")
    with pytest.raises(client.exceptions.InvalidParameterException, match="nextToken"):
        client.get_log_events(logGroupName=GROUP, logStreamName="job/default/one", nextToken="f/1/s")
    with pytest.raises(ClientError, match="does not support StartQuery"):
        client.start_query(logGroupName=GROUP, startTime=0, endTime=1, queryString="fields @message")


def aws(live, *arguments: str) -> str:
    url, key = live
    command = shutil.which("aws", path=str(Path(sys.executable).parent)) or "aws"
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": key.access_key_id,
        "AWS_SECRET_ACCESS_KEY": key.secret_access_key,
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": url,
        "PYTHONIOENCODING": "utf-8",
    }
    done = subprocess.run(
        [command, "logs", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line_reads_a_log(live):
    stream = ("--log-group-name", GROUP, "--log-stream-name", "job/default/one")
    answer = json.loads(aws(live, "get-log-events", *stream, "--start-from-head", "--output", "json"))
    assert [event["message"] for event in answer["events"]] == EXPECTED


def test_the_command_line_pages_through_a_group(live):
    query = ("--query", "events[].message", "--page-size", "10", "--output", "json")
    lines = json.loads(aws(live, "filter-log-events", "--log-group-name", GROUP, *query))
    assert sorted(lines) == sorted([*EXPECTED, "running"])
