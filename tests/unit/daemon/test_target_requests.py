"""What a tick asks of its target: AWS's PascalCase in the service's own spelling, context attributes, tags, names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from windfall.daemon.errors import BadTarget
from windfall.daemon.target_requests import request_of, run_id
from windfall.schedules.schedule import Schedule, Target

ARN = "arn:aws:scheduler:us-east-1:123456789012:schedule/default/nightly"
SUBMIT = "arn:aws:scheduler:::aws-sdk:batch:submitJob"
TRAIN = "arn:aws:scheduler:::aws-sdk:sagemaker:createTrainingJob"
QUEUE = "arn:aws:batch:us-east-1:123456789012:job-queue/gpus"
#: 2026-11-16 02:00 UTC.
DUE = 1_794_794_400_000


def a_schedule(input_: str | None = "{}", arn: str = SUBMIT, name: str = "nightly", **more: Any) -> Schedule:
    return Schedule("default", name, "rate(1 day)", Target(arn, "role", input_), **more)


def asked(input_: Any, arn: str = SUBMIT, attempt: int = 1) -> dict[str, Any]:
    text = input_ if isinstance(input_, str) else json.dumps(input_)
    return request_of(a_schedule(text, arn), DUE, attempt, ARN).params


def test_names_are_respelled_down_to_nested_lists_and_keys_of_maps_stay():
    sent = {
        "JobName": "n",
        "JobQueue": "q",
        "JobDefinition": "d",
        "Parameters": {"Epochs": "3", "learningRate": "0.1"},
        "ContainerOverrides": {
            "Environment": [{"Name": "A", "Value": "1"}],
            "ResourceRequirements": [{"Type": "GPU", "Value": "1"}],
        },
        "RetryStrategy": {"Attempts": 2, "EvaluateOnExit": [{"OnExitCode": "1", "Action": "RETRY"}]},
        "DependsOn": [{"JobId": "x"}],
        "Tags": {"Team": "vision"},
    }
    assert asked(sent) == {
        "jobName": "n",
        "jobQueue": "q",
        "jobDefinition": "d",
        "parameters": {"Epochs": "3", "learningRate": "0.1"},
        "containerOverrides": {
            "environment": [{"name": "A", "value": "1"}],
            "resourceRequirements": [{"type": "GPU", "value": "1"}],
        },
        "retryStrategy": {"attempts": 2, "evaluateOnExit": [{"onExitCode": "1", "action": "RETRY"}]},
        "dependsOn": [{"jobId": "x"}],
        "tags": {
            "Team": "vision",
            "windfall:schedule": "default/nightly",
            "windfall:due-at": "2026-11-16T02:00:00Z",
        },
    }


def test_a_member_that_nobody_knows_stays_for_the_service_to_judge():
    assert asked({"JobName": "n", "Unheard": {"Of": 1}})["Unheard"] == {"Of": 1}


def test_context_attributes_are_filled_in():
    sent = {
        "JobName": "run-<aws.scheduler.attempt-number>",
        "Parameters": {
            "arn": "<aws.scheduler.schedule-arn>",
            "at": "<aws.scheduler.scheduled-time>",
            "id": "<aws.scheduler.execution-id>",
        },
    }
    params = asked(sent, attempt=3)
    assert params["jobName"] == "run-3"
    assert params["parameters"] == {
        "arn": ARN,
        "at": "2026-11-16T02:00:00Z",
        "id": run_id(a_schedule(), DUE),
    }


def test_the_arn_of_a_queue_is_a_target_that_names_its_queue():
    assert asked({"JobName": "n", "JobDefinition": "d"}, QUEUE)["jobQueue"] == QUEUE
    assert asked({"JobName": "n", "JobQueue": "other"}, QUEUE)["jobQueue"] == "other"


def test_a_training_job_keeps_its_spelling_and_its_own_tags():
    sent = {"TrainingJobName": "t", "HyperParameters": {"epochs": "3"}, "Tags": [{"Key": "a", "Value": "b"}]}
    params = asked(sent, TRAIN)
    assert params["HyperParameters"] == {"epochs": "3"}
    assert [tag["Key"] for tag in params["Tags"]] == ["a", "windfall:schedule", "windfall:due-at"]


def test_a_name_that_is_taken_gets_the_due_time_and_stays_a_name():
    for name in ("weekly", "x" * 63, "ends-with-" + "-" * 40 + "y"):
        schedule = a_schedule(json.dumps({"TrainingJobName": name}), TRAIN)
        renamed = request_of(schedule, DUE, 1, ARN).renamed(DUE).params["TrainingJobName"]
        assert renamed.endswith("-20261116-020000")
        assert len(renamed) <= 63
        assert "--2026" not in renamed


def test_one_due_time_has_one_id_for_ever_and_a_schedule_that_is_made_anew_others():
    assert run_id(a_schedule("{}"), DUE) == run_id(a_schedule('{"JobName": "n"}'), DUE)
    schedules = [a_schedule(), a_schedule(name="other"), a_schedule(created_at=1)]
    assert len({run_id(one, due_at) for one in schedules for due_at in (DUE, DUE + 1)}) == 6


@pytest.mark.parametrize(
    ("input_", "arn", "told"),
    [
        ("{", SUBMIT, "not valid JSON"),
        ("[]", SUBMIT, "not a JSON object"),
        ("{}", "arn:aws:scheduler:::aws-sdk:sqs:sendMessage", "does not support the target"),
    ],
)
def test_what_can_never_be_asked_says_what_to_do(input_, arn, told):
    with pytest.raises(BadTarget, match=told) as refused:
        asked(input_, arn)
    assert "update-schedule" in str(refused.value)


def test_an_input_that_is_missing_asks_for_nothing():
    assert set(request_of(a_schedule(None), DUE, 1, ARN).params) == {"tags"}
