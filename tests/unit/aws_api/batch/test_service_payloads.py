"""What can be read from a payload before it is validated: nothing in it can fail."""

from __future__ import annotations

import json
import re

import pytest

from windfall.aws_api.batch.service_jobs import NAME_MAX, instances_of, name_prefix_of
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.service_jobs import UNKNOWN_TYPE, ServiceJob


def a_payload(**resources) -> str:
    return json.dumps({"TrainingJobName": "weekly", "ResourceConfig": resources})


def training_job_name(payload: str, job_id: JobId, number: int) -> str:
    job = ServiceJob(job_id, "job", QueueName("queue"), payload, name_prefix=name_prefix_of(payload))
    return job.training_name(number)


@pytest.mark.parametrize(
    ("payload", "instances"),
    [
        (a_payload(InstanceType="ml.g5.xlarge", InstanceCount=3), {"ml.g5.xlarge": 3}),
        (a_payload(InstanceType="ml.g5.xlarge"), {"ml.g5.xlarge": 1}),
        (
            a_payload(
                InstanceGroups=[
                    {"InstanceType": "ml.m5.large", "InstanceCount": 2, "InstanceGroupName": "a"},
                    {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "InstanceGroupName": "b"},
                    {"InstanceType": "ml.m5.large", "InstanceCount": 4, "InstanceGroupName": "c"},
                ]
            ),
            {"ml.m5.large": 6, "ml.g5.xlarge": 1},
        ),
        (a_payload(InstanceType=7, InstanceCount="many"), {UNKNOWN_TYPE: 1}),
        (a_payload(InstanceType="ml.m5.large", InstanceCount=-2), {"ml.m5.large": 1}),
        (a_payload(InstanceType="ml.m5.large", InstanceCount=True), {"ml.m5.large": 1}),
        (a_payload(InstanceGroups=["?"]), {UNKNOWN_TYPE: 1}),
        ("{}", {UNKNOWN_TYPE: 1}),
        ("[1]", {UNKNOWN_TYPE: 1}),
        ("no JSON", {UNKNOWN_TYPE: 1}),
        ("[" * 100_000, {UNKNOWN_TYPE: 1}),
    ],
)
def test_how_many_instances_a_payload_asks_for(payload, instances):
    assert instances_of(payload) == instances


def test_training_jobs_are_named_after_the_payload_the_job_and_the_try():
    payload = json.dumps({"TrainingJobName": "weekly"})
    name = training_job_name(payload, JobId("a"), 1)
    assert re.fullmatch("AWSBatchweekly[0-9a-f]{32}", name)
    assert training_job_name(payload, JobId("a"), 1) == name
    others = {training_job_name(payload, JobId(job), number) for job, number in (("a", 2), ("b", 1))}
    assert len(others | {name}) == 3


@pytest.mark.parametrize("wanted", ["x" * 63, "bad name!", "-", None, 3])
def test_every_name_is_one_that_sagemaker_takes(wanted):
    name = training_job_name(json.dumps({"TrainingJobName": wanted}), JobId("a"), 1)
    assert re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", name)
    assert len(name) <= NAME_MAX
