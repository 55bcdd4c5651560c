"""EventBridge Scheduler's API over a real daemon: boto3 and the aws command line, and a kill -9 between.

Nothing here is due while the tests run.
"""

from __future__ import annotations

import json

import pytest

ROLE = "arn:aws:iam::123456789012:role/anybody"
TARGET = {
    "Arn": "arn:aws:scheduler:::aws-sdk:batch:submitJob",
    "RoleArn": ROLE,
    "Input": json.dumps({"JobName": "train", "JobQueue": "q", "JobDefinition": "train"}),
}
REQUEST = {
    "ScheduleExpression": "cron(0 2 ? * MON-FRI 2040-2050)",
    "ScheduleExpressionTimezone": "Europe/Berlin",
    "FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 10},
    "Target": TARGET,
}


def arguments(**values) -> str:
    """Options of the aws command line, quoted for a shell."""
    words = []
    for name, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value)
        words.append(f"--{name.replace('_', '-')} '{text}'")
    return " ".join(words)


def test_schedules_are_kept_over_a_kill(windfall):
    client = windfall.client("scheduler")
    client.create_schedule_group(Name="team", Tags=[{"Key": "windfall:overlap", "Value": "skip"}])
    arn = client.create_schedule(Name="weekly", GroupName="team", **REQUEST)["ScheduleArn"]
    assert arn.endswith(":schedule/team/weekly")
    client.tag_resource(ResourceArn=arn, Tags=[{"Key": "windfall:summer-time", "Value": "shift"}])
    before = client.get_schedule(Name="weekly", GroupName="team")
    client.create_schedule(Name="short", GroupName="team", **REQUEST)
    client.delete_schedule(Name="short", GroupName="team", ClientToken="answer-got-lost")
    windfall.kill_daemon()
    windfall.up()
    client = windfall.client("scheduler")
    client.delete_schedule(Name="short", GroupName="team", ClientToken="answer-got-lost")
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.delete_schedule(Name="short", GroupName="team")
    after = client.get_schedule(Name="weekly", GroupName="team")
    assert {**after, "ResponseMetadata": 0} == {**before, "ResponseMetadata": 0}
    assert client.list_tags_for_resource(ResourceArn=arn)["Tags"] == [
        {"Key": "windfall:summer-time", "Value": "shift"}
    ]
    with pytest.raises(client.exceptions.ConflictException):
        client.create_schedule(Name="weekly", GroupName="team", **REQUEST)
    client.update_schedule(Name="weekly", GroupName="team", **{**REQUEST, "State": "DISABLED"})
    assert [one["Name"] for one in client.list_schedules(State="DISABLED")["Schedules"]] == ["weekly"]
    client.delete_schedule_group(Name="team")
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.get_schedule(Name="weekly", GroupName="team")


def test_the_aws_command_line_makes_changes_lists_and_removes(windfall, tmp_path):
    described = arguments(
        schedule_expression=REQUEST["ScheduleExpression"],
        flexible_time_window={"Mode": "OFF"},
        target=TARGET,
    )
    named = "--name nightly --group-name cli"
    zone = arguments(schedule_expression_timezone="America/New_York")
    wrong = arguments(
        schedule_expression="cron(0 2 * * MON)", flexible_time_window={"Mode": "OFF"}, target=TARGET
    )
    # In one shell: to start a command line takes longer than what it asks for.
    done = windfall.shell(
        f"""set -e
        aws scheduler create-schedule-group --name cli > group
        aws scheduler create-schedule {named} {described} > created
        aws scheduler update-schedule {named} {described} {zone} > updated
        arn=$(aws scheduler get-schedule {named} --query Arn --output text)
        aws scheduler tag-resource --resource-arn $arn --tags Key=windfall:catch-up,Value=all
        aws scheduler get-schedule {named} > shown
        aws scheduler list-tags-for-resource --resource-arn $arn > tags
        aws scheduler delete-schedule {named}
        aws scheduler list-schedules --group-name cli > listed
        aws scheduler create-schedule --name wrong {wrong} 2> refused && exit 1 || true
        """.replace("> ", f"> {tmp_path}/")
    )
    assert done.returncode == 0, done.stderr
    answers = {
        name: json.loads((tmp_path / name).read_text())
        for name in ("group", "created", "updated", "shown", "tags", "listed")
    }
    assert answers["group"]["ScheduleGroupArn"].endswith(":schedule-group/cli")
    assert answers["created"] == answers["updated"]
    shown = answers["shown"]
    assert (shown["Arn"], shown["GroupName"]) == (answers["created"]["ScheduleArn"], "cli")
    assert (shown["ScheduleExpressionTimezone"], shown["Target"]["Input"]) == (
        "America/New_York",
        TARGET["Input"],
    )
    assert answers["tags"]["Tags"] == [{"Key": "windfall:catch-up", "Value": "all"}]
    assert answers["listed"]["Schedules"] == []
    refused = (tmp_path / "refused").read_text()
    assert "ValidationException" in refused
    assert "needs six" in refused
