"""Schedule groups and tags over the wire."""

from __future__ import annotations

import pytest

from tests.unit.aws_api.scheduler.world import ARN, a_request
from windfall.control import calendar_declaring

GROUP, SCHEDULE = f"{ARN}:schedule-group/team", f"{ARN}:schedule/team/nightly"


def tags_of(client, arn):
    return {tag["Key"]: tag["Value"] for tag in client.list_tags_for_resource(ResourceArn=arn)["Tags"]}


def test_a_group_lives_and_takes_its_schedules_with_it(client, world):
    assert client.create_schedule_group(Name="team")["ScheduleGroupArn"] == GROUP
    shown = client.get_schedule_group(Name="team")
    assert (shown["Name"], shown["Arn"], shown["State"]) == ("team", GROUP, "ACTIVE")
    client.create_schedule(**a_request(GroupName="team"))
    client.create_schedule(**a_request())
    client.delete_schedule_group(Name="team", ClientToken="t")
    client.delete_schedule_group(Name="team", ClientToken="t")
    assert set(world.gate.state.schedules) == {"default/nightly"}
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.get_schedule_group(Name="team")


def test_the_default_group_is_always_there(client):
    assert client.get_schedule_group(Name="default")["State"] == "ACTIVE"
    assert [one["Name"] for one in client.list_schedule_groups()["ScheduleGroups"]] == ["default"]
    assert tags_of(client, f"{ARN}:schedule-group/default") == {}
    with pytest.raises(
        client.exceptions.ValidationException, match="default schedule group cannot be deleted"
    ):
        client.delete_schedule_group(Name="default")
    with pytest.raises(client.exceptions.ConflictException):
        client.create_schedule_group(Name="default")


def test_groups_are_listed_by_name_in_pages(client):
    for name in ("b", "a", "c-1", "c-2"):
        client.create_schedule_group(Name=name)

    def names(**asked):
        pages = client.get_paginator("list_schedule_groups").paginate(
            **asked, PaginationConfig={"PageSize": 2}
        )
        return [one["Name"] for page in pages for one in page["ScheduleGroups"]]

    assert names() == ["a", "b", "c-1", "c-2", "default"]
    assert names(NamePrefix="c-") == ["c-1", "c-2"]


def test_a_name_is_taken_once_and_the_same_request_answered_alike(client):
    asked = {"Name": "team", "ClientToken": "t", "Tags": [{"Key": "a", "Value": "b"}]}
    assert client.create_schedule_group(**asked)["ScheduleGroupArn"] == GROUP
    assert client.create_schedule_group(**asked)["ScheduleGroupArn"] == GROUP
    with pytest.raises(client.exceptions.ConflictException, match="Schedule group team already exists"):
        client.create_schedule_group(Name="team")


def test_too_many_are_refused_as_aws_does(client, monkeypatch):
    monkeypatch.setattr(calendar_declaring, "GROUPS_MAX", 1)
    client.create_schedule_group(Name="first")
    with pytest.raises(client.exceptions.ServiceQuotaExceededException, match="delete one first") as refused:
        client.create_schedule_group(Name="second")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 402


def test_a_group_and_a_schedule_have_tags_of_their_own(client):
    client.create_schedule_group(Name="team", Tags=[{"Key": "windfall:overlap", "Value": "skip"}])
    client.create_schedule(**a_request(GroupName="team"))
    assert tags_of(client, GROUP) == {"windfall:overlap": "skip"}
    assert tags_of(client, SCHEDULE) == {}
    client.tag_resource(
        ResourceArn=SCHEDULE,
        Tags=[{"Key": "windfall:overlap", "Value": "queue"}, {"Key": "team", "Value": "é/ü?&"}],
    )
    client.tag_resource(ResourceArn=GROUP, Tags=[{"Key": "a", "Value": "b"}, {"Key": "c d", "Value": "e"}])
    client.untag_resource(ResourceArn=GROUP, TagKeys=["a", "never", "windfall:overlap"])
    assert tags_of(client, SCHEDULE) == {"windfall:overlap": "queue", "team": "é/ü?&"}
    assert tags_of(client, GROUP) == {"c d": "e"}


def test_an_update_keeps_the_tags(client):
    client.create_schedule_group(Name="team")
    client.create_schedule(**a_request(GroupName="team"))
    client.tag_resource(ResourceArn=SCHEDULE, Tags=[{"Key": "a", "Value": "b"}])
    client.update_schedule(**a_request(GroupName="team", ScheduleExpression="rate(1 day)"))
    assert tags_of(client, SCHEDULE) == {"a": "b"}


@pytest.mark.parametrize(
    ("arn", "tags", "error", "text"),
    [
        (GROUP, {"aws:a": "b"}, "ValidationException", "begins with aws:, which is reserved"),
        (
            GROUP,
            {"windfall:overlap": "never"},
            "ValidationException",
            "write one of allow, skip, queue, replace",
        ),
        (GROUP, {"windfall:catch-up": "never"}, "ValidationException", "write one of once, all, skip"),
        (GROUP, {"windfall:summer-time": "never"}, "ValidationException", "write one of aws, shift"),
        (f"{ARN}:schedule-group/none", {"a": "b"}, "ResourceNotFoundException", "Schedule group none"),
        (
            f"{ARN}:schedule/team/none",
            {"a": "b"},
            "ResourceNotFoundException",
            "Schedule none does not exist",
        ),
        (
            "arn:aws:batch:eu-west-1:123456789012:job-queue/q",
            {"a": "b"},
            "ValidationException",
            "Invalid ResourceArn",
        ),
        (f"{ARN}:schedule/team", {"a": "b"}, "ValidationException", "schedule-group/<name>"),
    ],
)
def test_tags_that_cannot_be(client, arn, tags, error, text):
    client.create_schedule_group(Name="team")
    with pytest.raises(getattr(client.exceptions, error), match=text):
        client.tag_resource(
            ResourceArn=arn, Tags=[{"Key": key, "Value": value} for key, value in tags.items()]
        )
    assert tags_of(client, GROUP) == {}
