"""Schedules over the wire: the round trip, tokens, pages, and every refusal in its own words."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError

from tests.unit.aws_api.scheduler.world import (
    ARN,
    CREATE_TRAINING,
    INPUT,
    NOW,
    QUEUE,
    ROLE,
    SUBMIT_JOB,
    TARGET,
    a_request,
)
from windfall.aws_api.protocol.service import Role
from windfall.capacity.environments import Switch
from windfall.schedules.schedule import Retry, Target

WHOLE = {
    "Description": "every working day · ünïcode",
    "GroupName": "default",
    "ScheduleExpressionTimezone": "Europe/Berlin",
    "StartDate": datetime(2027, 1, 1, tzinfo=UTC),
    "EndDate": datetime(2028, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
    "State": "DISABLED",
    "ActionAfterCompletion": "DELETE",
    "KmsKeyArn": "arn:aws:kms:eu-west-1:123456789012:key/a-b",
    "FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 15},
    "Target": {
        **TARGET,
        "RetryPolicy": {"MaximumEventAgeInSeconds": 3600, "MaximumRetryAttempts": 0},
        "DeadLetterConfig": {"Arn": "arn:aws:sqs:eu-west-1:123456789012:letters"},
    },
}


def without_metadata(answer):
    return {name: value for name, value in answer.items() if name != "ResponseMetadata"}


def test_what_was_sent_comes_back(client):
    request = a_request(**WHOLE)
    assert client.create_schedule(**request)["ScheduleArn"] == f"{ARN}:schedule/default/nightly"
    now = datetime.fromtimestamp(NOW / 1000, UTC)
    assert without_metadata(client.get_schedule(Name="nightly")) == {
        **request,
        "Arn": f"{ARN}:schedule/default/nightly",
        "CreationDate": now,
        "LastModificationDate": now,
    }


def test_the_core_has_what_the_request_means(client, world):
    client.create_schedule(**a_request(**WHOLE))
    schedule = world.gate.state.schedules["default/nightly"]
    assert schedule.expression == "cron(0 2 ? * MON-FRI *)"
    assert (schedule.timezone, schedule.window_minutes) == ("Europe/Berlin", 15)
    assert (schedule.start_at, schedule.end_at) == (1_798_761_600_000, 1_830_297_601_500)
    assert (schedule.switch, schedule.delete_when_done, schedule.submitter.tenant) == (
        Switch.DISABLED,
        True,
        "default",
    )
    assert schedule.target == Target(
        SUBMIT_JOB, ROLE, TARGET["Input"], Retry(3600, 0), "arn:aws:sqs:eu-west-1:123456789012:letters"
    )


def test_defaults_are_those_of_aws(client):
    client.create_schedule(**a_request())
    shown = client.get_schedule(Name="nightly")
    assert (shown["GroupName"], shown["State"], shown["ScheduleExpressionTimezone"]) == (
        "default",
        "ENABLED",
        "UTC",
    )
    assert shown["ActionAfterCompletion"] == "NONE"
    assert shown["Target"]["RetryPolicy"] == {
        "MaximumEventAgeInSeconds": 86_400,
        "MaximumRetryAttempts": 185,
    }
    assert not {"StartDate", "EndDate", "Description", "KmsKeyArn", "ClientToken"} & shown.keys()


def test_an_update_replaces_everything(client, world):
    client.create_schedule(**a_request(**WHOLE))
    world.gate.now += 5000
    client.update_schedule(**a_request(ScheduleExpression="rate(1 hour)"))
    shown = client.get_schedule(Name="nightly")
    assert (shown["ScheduleExpression"], shown["State"]) == ("rate(1 hour)", "ENABLED")
    assert "Description" not in shown
    assert shown["CreationDate"] < shown["LastModificationDate"]


def test_the_same_request_again_is_answered_alike(client, world):
    request = a_request(ClientToken="once")
    first = client.create_schedule(**request)
    assert client.create_schedule(**request)["ScheduleArn"] == first["ScheduleArn"]
    for other in (a_request(), {**request, "ClientToken": "twice"}, {**request, "Description": "other"}):
        with pytest.raises(client.exceptions.ConflictException, match="Schedule nightly already exists"):
            client.create_schedule(**other)
    client.delete_schedule(Name="nightly", ClientToken="gone")
    client.delete_schedule(Name="nightly", ClientToken="gone")
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.delete_schedule(Name="nightly", ClientToken="other")
    assert world.gate.state.schedules == {}


def test_lists_are_by_group_and_name_in_pages(client):
    client.create_schedule_group(Name="team")
    for group, name in [("team", "b"), ("default", "c"), ("team", "a"), ("default", "a1"), ("default", "a2")]:
        state = "DISABLED" if name == "c" else "ENABLED"
        client.create_schedule(**a_request(name, GroupName=group, State=state))

    def names(**asked):
        pages = client.get_paginator("list_schedules").paginate(**asked, PaginationConfig={"PageSize": 2})
        return [f"{one['GroupName']}/{one['Name']}" for page in pages for one in page["Schedules"]]

    assert names() == ["default/a1", "default/a2", "default/c", "team/a", "team/b"]
    assert names(GroupName="team") == ["team/a", "team/b"]
    assert names(NamePrefix="a") == ["default/a1", "default/a2", "team/a"]
    assert names(State="DISABLED") == ["default/c"]
    assert names(GroupName="default", NamePrefix="x") == []
    (one,) = client.list_schedules(State="DISABLED")["Schedules"]
    assert (one["Arn"], one["Target"]) == (f"{ARN}:schedule/default/c", {"Arn": SUBMIT_JOB})
    with pytest.raises(
        client.exceptions.ResourceNotFoundException, match="Schedule group none does not exist"
    ):
        client.list_schedules(GroupName="none")
    with pytest.raises(client.exceptions.ValidationException, match="send the one of the previous answer"):
        client.list_schedules(NextToken="forged")


@pytest.mark.parametrize("operation", ["get_schedule", "delete_schedule"])
def test_what_is_not_there_is_not_found(client, operation):
    client.create_schedule(**a_request())
    for asked in ({"Name": "none"}, {"Name": "nightly", "GroupName": "none"}):
        with pytest.raises(client.exceptions.ResourceNotFoundException) as refused:
            getattr(client, operation)(**asked)
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404
        assert "does not exist" in refused.value.response["Message"]


def target(**changes):
    made = {**TARGET, **changes}
    return {"Target": {name: value for name, value in made.items() if value is not None}}


REFUSED = [
    ({"ScheduleExpression": "cron(0 2 * * MON)"}, "Invalid Schedule Expression cron.* needs six"),
    ({"ScheduleExpression": "at(2020-01-01T00:00:00)"}, "is never due from now on"),
    ({"ScheduleExpressionTimezone": "Berlin"}, "no such time zone; did you mean Europe/Berlin"),
    ({"StartDate": 2_000_000_000, "EndDate": 2_000_000_000}, "EndDate must be later than StartDate"),
    ({"EndDate": 1_000_000_000}, "never due from now on until its EndDate"),
    ({"FlexibleTimeWindow": {"Mode": "FLEXIBLE"}}, "needs MaximumWindowInMinutes, between 1 and 1440"),
    (
        {"FlexibleTimeWindow": {"Mode": "OFF", "MaximumWindowInMinutes": 5}},
        "leave MaximumWindowInMinutes out",
    ),
    (
        {"FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 1441}},
        "less than or equal to 1440",
    ),
    ({"FlexibleTimeWindow": {"Mode": "SOMETIMES"}}, "enum value set"),
    ({"State": "PAUSED"}, "enum value set"),
    (
        target(Arn="arn:aws:lambda:eu-west-1:123456789012:function:f"),
        "not support a target of lambda. Possible",
    ),
    (
        target(Arn="arn:aws:scheduler:::aws-sdk:sqs:sendMessage"),
        "not support the target sqs:sendMessage. Possible",
    ),
    (
        target(Arn="arn:aws:scheduler:::aws-sdk:batch:SubmitJob"),
        "batch:SubmitJob. Possible here are arn:.*submitJob",
    ),
    (target(Arn="queue"), "not support the target 'queue'"),
    (target(SqsParameters={"MessageGroupId": "a"}), "does not support Target.SqsParameters"),
    (target(Input=None), "Target.Input is missing: a JSON object with the parameters of SubmitJob"),
    (target(Input="{"), "Target.Input is not valid JSON"),
    (target(Input="[]"), "Target.Input must be a JSON object"),
    (target(Input="{}"), "Target.Input lacks JobName, JobQueue, JobDefinition, which SubmitJob requires"),
    (target(Input=json.dumps({"jobName": "a"})), "has jobName; .* written with a capital: JobName"),
    (target(Arn=QUEUE, Input="{}"), "Target.Input lacks JobName, JobDefinition, which SubmitJob requires"),
    (
        target(Arn=QUEUE, Input=json.dumps({"JobName": "a", "JobDefinition": "d", "JobQueue": "other"})),
        "names the job queue 'other', and Target.Arn another one; leave JobQueue out",
    ),
    (
        target(Input=INPUT[:-1] + ', "Paramters": {"until": "now"}}'),
        "Target.Input has no parameter 'Paramters'; did you mean Parameters\\?",
    ),
    (
        target(Input=INPUT[:-1] + ', "ContainerOverrides": {"Environment": [{"Key": "A", "Value": "1"}]}}'),
        r"Target.Input.ContainerOverrides.Environment\[\] has no parameter 'Key'; leave it out",
    ),
    (
        target(Arn=CREATE_TRAINING, Input="{}"),
        "Target.Input lacks TrainingJobName, .*CreateTrainingJob requires",
    ),
    (target(RetryPolicy={"MaximumRetryAttempts": 186}), "less than or equal to 185"),
    (target(RoleArn="me"), "regular expression pattern"),
]


@pytest.mark.parametrize(("changes", "text"), REFUSED)
@pytest.mark.parametrize("operation", ["create_schedule", "update_schedule"])
def test_what_cannot_be_is_refused_with_what_to_do(client, world, operation, changes, text):
    client.create_schedule(**a_request())
    before = dict(world.gate.state.schedules)
    name = "new" if operation == "create_schedule" else "nightly"
    with pytest.raises(client.exceptions.ValidationException, match=text) as refused:
        getattr(client, operation)(**a_request(name, **changes))
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert world.gate.state.schedules == before


@pytest.mark.parametrize(
    "changes",
    [
        target(Arn=QUEUE, Input=json.dumps({"JobName": "a", "JobDefinition": "d"})),
        target(
            Arn=CREATE_TRAINING,
            Input=json.dumps(
                {
                    "TrainingJobName": "weekly-<aws.scheduler.execution-id>",
                    "RoleArn": ROLE,
                    "OutputDataConfig": {},
                    "ResourceConfig": {},
                    "StoppingCondition": {},
                }
            ),
        ),
        target(Arn=SUBMIT_JOB.replace("arn:aws:", "arn:aws-us-gov:")),
    ],
)
def test_targets_that_can_be_served(client, changes):
    client.create_schedule(**a_request(**changes))
    assert client.get_schedule(Name="nightly")["Target"]["Arn"] == changes["Target"]["Arn"]


def test_a_group_must_be_there(client):
    with pytest.raises(
        client.exceptions.ResourceNotFoundException, match="Schedule group none does not exist"
    ):
        client.create_schedule(**a_request(GroupName="none"))


def test_an_update_of_nothing_is_not_found(client):
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.update_schedule(**a_request())


def test_a_reader_may_look_and_nothing_else(client, world):
    client.create_schedule(**a_request())
    world.role = Role.READ
    assert client.get_schedule(Name="nightly")["Name"] == "nightly"
    with pytest.raises(ClientError, match="needs submit"):
        client.delete_schedule(Name="nightly")
