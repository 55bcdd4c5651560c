"""Schedules that really run jobs: by boto3 and the aws command line against a daemon that is killed and missed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.acceptance.daemon import RunningWindfall
from tests.acceptance.reader import typed
from tests.docs.pages import FENCE
from tests.tidy.tree import ROOT
from tests.waiting import wait_until

SUBMIT = "arn:aws:scheduler:::aws-sdk:batch:submitJob"
ROLE = "arn:aws:iam::123456789012:role/scheduler"
OFF = {"Mode": "OFF"}


def prepared(running: RunningWindfall) -> None:
    """A queue and a definition of a job that says what it was started with."""
    batch = running.client("batch")
    batch.create_compute_environment(
        computeEnvironmentName="env",
        type="MANAGED",
        computeResources={"type": "EC2", "minvCpus": 0, "maxvCpus": 64, "subnets": [], "instanceRole": "r"},
    )
    batch.create_job_queue(
        jobQueueName="queue", priority=1, computeEnvironmentOrder=[{"order": 1, "computeEnvironment": "env"}]
    )
    batch.register_job_definition(
        jobDefinitionName="say",
        type="container",
        containerProperties={
            "image": "busybox",
            "command": ["sh", "-c", "echo $0 $EXTRA", "Ref::what"],
            "resourceRequirements": [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}],
        },
    )


def submission(**more: Any) -> str:
    """The Input of a universal target, PascalCase as on AWS; the keys of maps stay as they are."""
    return json.dumps(
        {
            "JobName": "weekly",
            "JobQueue": "queue",
            "JobDefinition": "say",
            "Parameters": {"what": "<aws.scheduler.scheduled-time>"},
            "ContainerOverrides": {"Environment": [{"Name": "EXTRA", "Value": "spice"}]},
            "Tags": {"Team": "vision"},
            **more,
        }
    )


def at(seconds: float) -> str:
    """A one-time expression so many seconds from now."""
    return f"at({datetime.now(UTC) + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S})"


def history(running: RunningWindfall, name: str) -> list[dict[str, Any]]:
    done = running.windfall("schedules", name, "--json", check=False)
    return json.loads(done.stdout)["ticks"] if done.returncode == 0 else []


def first_tick(running: RunningWindfall, name: str, outcome: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def there() -> bool:
        found[:] = [tick for tick in history(running, name) if tick["outcome"] == outcome]
        return bool(found)

    wait_until(there, f"a tick of {name} that is {outcome}")
    return found[-1]


def test_schedules_run_jobs_and_training_jobs_and_tell_what_became_of_them(windfall):
    prepared(windfall)
    scheduler = windfall.client("scheduler")

    def create(name: str, target: dict[str, Any], expression: str, **more: Any) -> None:
        scheduler.create_schedule(
            Name=name,
            ScheduleExpression=expression,
            FlexibleTimeWindow=OFF,
            Target={"Arn": SUBMIT, "RoleArn": ROLE, **target},
            **more,
        )

    create("once", {"Input": submission()}, at(1), ActionAfterCompletion="DELETE")
    queue = "arn:aws:batch:us-east-1:123456789012:job-queue/queue"
    create("templated", {"Arn": queue, "Input": submission(JobName="by-queue")}, "rate(1 minute)")
    dead = {"Arn": "arn:aws:sqs:us-east-1:123456789012:failed"}
    create("broken", {"Input": submission(JobQueue="nowhere"), "DeadLetterConfig": dead}, at(1))
    training = {
        "TrainingJobName": "weekly-training",
        "RoleArn": ROLE,
        "AlgorithmSpecification": {
            "TrainingImage": "image",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["true"],
        },
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    }
    arn = "arn:aws:scheduler:::aws-sdk:sagemaker:createTrainingJob"
    for name in ("train", "train-again"):
        create(name, {"Arn": arn, "Input": json.dumps(training)}, at(1 if name == "train" else 3))

    tick = first_tick(windfall, "once", "started")
    (job,) = windfall.wait_for([tick["jobId"]])
    assert (job["jobName"], job["status"]) == ("weekly", "SUCCEEDED")
    due = datetime.fromtimestamp(tick["dueAt"] / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    tags = {key: value for key, value in job["tags"].items() if key != "windfall:isolation"}
    assert tags == {"Team": "vision", "windfall:schedule": "default/once", "windfall:due-at": due}
    assert f"{due} spice" in windfall.windfall("logs", tick["jobId"]).stdout
    assert scheduler.list_schedules(NamePrefix="once")["Schedules"] == []

    assert first_tick(windfall, "templated", "started")["jobId"]
    failed = first_tick(windfall, "broken", "failed")
    assert "nowhere" in failed["reason"]
    letters = windfall.data / "dead-letters" / "failed.jsonl"
    wait_until(letters.exists, "the dead letter")
    letter = json.loads(letters.read_text())
    assert letter["attributes"]["ERROR_CODE"] == "ClientException"
    assert letter["scheduleArn"].endswith(":schedule/default/broken")

    runs = {first_tick(windfall, name, "started")["jobId"] for name in ("train", "train-again")}
    bare, stamped = sorted(runs)
    assert bare == "training-weekly-training"
    assert stamped.startswith("training-weekly-training-20")
    listed = windfall.windfall("schedules").stdout
    assert "every minute" in listed
    assert "templated" in listed


def test_the_worked_example_of_the_page_can_be_typed_as_it_stands(windfall, tmp_path):
    page = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    example = page[page.index("## Worked example") :]
    blocks = [fence[3] for fence in FENCE.finditer(example) if fence[2] == "sh"]
    printed = typed(windfall, tmp_path, "\n".join(['eval "$(windfall env)"', *blocks]))
    assert "Monday to Friday at 02:00 Europe/Berlin" in printed
    assert "Monday at 02:00 Europe/Berlin" in printed
    ahead = json.loads(windfall.windfall("schedules", "retrain-weekdays", "--json").stdout)["schedule"]
    assert (ahead["overlap"], len(ahead["next"])) == ("skip", 5)
    assert {due["local"][:3] for due in ahead["next"]} == {"Mon", "Tue", "Wed", "Thu", "Fri"}
    # What it trains on is an argument of its own: elsewhere a reference to a parameter is not replaced.
    found = json.loads(windfall.windfall("lint", "retrain", "--json", check=False).stdout)["findings"]
    assert "WL015" not in {finding["code"] for finding in found}
    client = windfall.client("batch")
    sent = {"jobName": "retrain", "jobQueue": "retraining", "jobDefinition": "retrain"}
    job_id = client.submit_job(**sent, parameters={"until": "noon"})["jobId"]
    (job,) = client.describe_jobs(jobs=[job_id])["jobs"]
    assert job["container"]["command"][-1] == "noon"


def test_a_killed_daemon_loses_no_tick_repeats_none_and_makes_up_once_for_those_it_missed(fresh):
    running: RunningWindfall = fresh()
    prepared(running)
    scheduler = running.client("scheduler")
    soon = datetime.now(UTC) + timedelta(seconds=3)
    expressions = {
        "soon": f"at({soon:%Y-%m-%dT%H:%M:%S})",
        "often": "rate(1 minute)",
        "weekly": "cron(0 2 ? * MON *)",
    }
    for name, expression in expressions.items():
        scheduler.create_schedule(
            Name=name,
            ScheduleExpression=expression,
            FlexibleTimeWindow=OFF,
            Target={"Arn": SUBMIT, "RoleArn": ROLE, "Input": submission()},
        )
    before = first_tick(running, "often", "started")
    running.kill_daemon()
    decided_at = int(soon.timestamp() * 1000)
    with closing(sqlite3.connect(running.data / "store" / "windfall.db")) as database, database:
        # As if the daemon had been down for two minutes, and had been killed between a decision and its invocation.
        _change(database, "default/often", created_at=decided_at - 120_000, decided_at=decided_at - 120_000)
        _decide(database, "default/weekly", decided_at)
    wait_until(lambda: datetime.now(UTC) > soon, "the due times to pass while nobody is there")
    running.up()
    ran = {name: first_tick(running, name, "started") for name in ("soon", "weekly")}
    assert ran["weekly"]["dueAt"] == decided_at

    def made_up() -> bool:
        ticks = [tick for tick in history(running, "often") if tick["dueAt"] != before["dueAt"]]
        return [tick["outcome"] for tick in ticks] == ["started", "skipped"]

    wait_until(made_up, "one run for all that were missed")
    assert "no daemon ran at its time" in history(running, "often")[-1]["reason"]
    running.kill_daemon()
    running.up()
    named = [{"name": "JOB_NAME", "values": ["weekly"]}]
    jobs = running.client("batch").list_jobs(jobQueue="queue", filters=named)["jobSummaryList"]
    known = [tick["jobId"] for name in expressions for tick in history(running, name) if tick["jobId"]]
    assert sorted(job["jobId"] for job in jobs) == sorted(known)
    assert len(known) == 4


def _change(database: sqlite3.Connection, key: str, **fields: int) -> None:
    at = ("schedule", key)
    sql = "SELECT record FROM declarations WHERE kind = ? AND name = ?"
    (record,) = database.execute(sql, at).fetchone()
    changed = json.dumps({**json.loads(record), **fields})
    database.execute("UPDATE declarations SET record = ? WHERE kind = ? AND name = ?", (changed, *at))


def _decide(database: sqlite3.Connection, key: str, due_at: int) -> None:
    tick = {
        "schedule": key,
        "due_at": due_at,
        "at": due_at,
        "outcome": "due",
        "attempts": 1,
        "asked_at": due_at,
    }
    database.execute("INSERT INTO ticks VALUES (?, ?, 1, ?)", (key, due_at, json.dumps(tick)))
