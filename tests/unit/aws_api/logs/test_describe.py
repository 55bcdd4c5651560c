"""DescribeLogGroups and DescribeLogStreams."""

from __future__ import annotations

import pytest

from tests.unit.aws_api.logs.log_world import ACCOUNT, GROUP, T
from windfall.aws_api.logs.errors import InvalidParameter, ResourceNotFound


def all_pages(world, operation, member, **params):
    found = []
    while True:
        page = world.ask(operation, **params)
        found += page[member]
        if "nextToken" not in page:
            return found
        params["nextToken"] = page["nextToken"]


def names(world, **params):
    params = {"logGroupName": GROUP, **params}
    return [
        stream["logStreamName"] for stream in all_pages(world, "DescribeLogStreams", "logStreams", **params)
    ]


def groups(world, **params):
    return [group["logGroupName"] for group in all_pages(world, "DescribeLogGroups", "logGroups", **params)]


def test_the_group_of_batch_is_there_before_its_first_stream(world):
    assert groups(world) == [GROUP]
    assert names(world) == []


def test_a_group_is_described(world):
    world.log("b", created_at=T + 5)
    world.log("a", created_at=T + 9)
    (group,) = world.ask("DescribeLogGroups")["logGroups"]
    assert group == {
        "logGroupName": GROUP,
        "creationTime": T + 5,
        "metricFilterCount": 0,
        "arn": f"arn:aws:logs:eu-west-1:{ACCOUNT}:log-group:{GROUP}:*",
        "logGroupArn": f"arn:aws:logs:eu-west-1:{ACCOUNT}:log-group:{GROUP}",
        "storedBytes": 0,
        "logGroupClass": "STANDARD",
    }


def test_groups_are_chosen_and_paged(world):
    for name in ("/x/one", "/x/two", "train"):
        world.log("s", group=name)
    everything = [GROUP, "/x/one", "/x/two", "train"]
    assert groups(world) == groups(world, limit=1) == groups(world, limit=3) == everything
    assert groups(world, logGroupNamePrefix="/x", limit=1) == ["/x/one", "/x/two"]
    assert groups(world, logGroupNamePattern="t") == [GROUP, "/x/two", "train"]
    assert groups(world, logGroupNamePattern="T") == []
    arn = f"arn:aws:logs:eu-west-1:{ACCOUNT}:log-group:train"
    assert groups(world, logGroupIdentifiers=["/x/one", arn]) == ["/x/one", "train"]
    assert groups(world, logGroupClass="INFREQUENT_ACCESS") == []
    with pytest.raises(InvalidParameter, match="only one of"):
        groups(world, logGroupNamePrefix="a", logGroupNamePattern="a")


def test_a_stream_is_described(world):
    world.log("job/default/1", created_at=T - 9).write(b"first\n", at=T).write(b"last\n", at=T + 500)
    world.log("job/default/2", created_at=T - 8)
    first, second = world.ask("DescribeLogStreams", logGroupName=GROUP)["logStreams"]
    assert len(first.pop("uploadSequenceToken")) == len(second.pop("uploadSequenceToken")) == 56
    assert first == {
        "logStreamName": "job/default/1",
        "creationTime": T - 9,
        "firstEventTimestamp": T,
        "lastEventTimestamp": T + 500,
        "lastIngestionTime": T + 500,
        "arn": f"arn:aws:logs:eu-west-1:{ACCOUNT}:log-group:{GROUP}:log-stream:job/default/1",
        "storedBytes": 0,
    }
    assert "lastEventTimestamp" not in second


def test_streams_by_name_both_ways_and_paged(world):
    wanted = [f"s{n:03d}" for n in range(120)]
    for name in wanted:
        world.log(name)
    world.log("other")
    assert len(world.ask("DescribeLogStreams", logGroupName=GROUP)["logStreams"]) == 50
    assert names(world) == ["other", *wanted]
    assert names(world, logStreamNamePrefix="s", limit=7) == wanted
    assert names(world, logStreamNamePrefix="s", limit=7, descending=True) == wanted[::-1]


def test_streams_by_their_last_event(world):
    for n, name in enumerate(("b", "a", "d", "c")):
        world.log(name).write(b"x\n", at=T + n)
    world.log("new", created_at=T + 99)
    for limit in (1, 2, 50):
        newest = names(world, orderBy="LastEventTime", descending=True, limit=limit)
        assert newest == ["new", "c", "d", "a", "b"]
        assert names(world, orderBy="LastEventTime", limit=limit) == newest[::-1]


def test_what_cannot_be_answered_is_refused(world):
    world.log("s")
    world.log("t")
    with pytest.raises(InvalidParameter, match="Cannot order by LastEventTime with a logStreamNamePrefix"):
        names(world, orderBy="LastEventTime", logStreamNamePrefix="s")
    with pytest.raises(ResourceNotFound, match="log group does not exist"):
        names(world, logGroupName="nope")
    token = world.ask("DescribeLogStreams", logGroupName=GROUP, limit=1)["nextToken"]
    with pytest.raises(InvalidParameter, match="nextToken is invalid"):
        names(world, nextToken=token, descending=True)
    with pytest.raises(InvalidParameter, match="nextToken is invalid"):
        groups(world, nextToken=token)
