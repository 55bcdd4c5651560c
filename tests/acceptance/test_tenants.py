"""Two tenants on one daemon, each with real clients: neither sees, changes or names what the other has."""

from __future__ import annotations

import base64
import json
import re
import shutil
import urllib.request
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.acceptance.several_daemons import Daemons
from tests.acceptance.test_keys import a_key, client_with

SCHEDULE = {
    "ScheduleExpression": "rate(1 hour)",
    "FlexibleTimeWindow": {"Mode": "OFF"},
    "Target": {
        "Arn": "arn:aws:scheduler:::aws-sdk:batch:submitJob",
        "RoleArn": "arn:aws:iam::123456789012:role/r",
        "Input": json.dumps({"JobName": "n", "JobQueue": "q", "JobDefinition": "train"}),
    },
    "State": "DISABLED",
}


CUT = "----8----"
NOBODY = "00000000-0000-4000-8000-000000000000"
COMMANDS = (
    "aws batch describe-jobs --jobs JOB",
    "aws batch terminate-job --job-id JOB --reason mine",
    "aws batch tag-resource --resource-arn arn:aws:batch:us-east-1:123456789012:job/JOB --tags a=b",
    "aws logs get-log-events --log-group-name /aws/batch/job --log-stream-name STREAM",
    "aws logs filter-log-events --log-group-name /aws/batch/job",
    "windfall why JOB",
    "windfall cost JOB",
    "windfall interrupt JOB",
    "windfall logs JOB",
)


def scrubbed(text: str) -> str:
    """A text without the ids of jobs and requests, and without the time."""
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b1[0-9]{12}\b", "-", text)


class Tenant:
    """A key, and the clients of one who has it."""

    def __init__(
        self, windfall: RunningWindfall, tenant: str, role: str = "submit", name: str | None = None
    ) -> None:
        self.windfall = windfall
        self.key = a_key(
            windfall, "--role", role, "--tenant", tenant, *(["--name", name] if name is not None else [])
        )
        self.batch, self.logs, self.scheduler, self.sagemaker = (
            client_with(windfall, self.key, service)
            for service in ("batch", "logs", "scheduler", "sagemaker")
        )

    def says(self, *commands: str) -> list[str]:
        """What real command lines print, of their answers or of their errors."""
        # The data directory would give `windfall` the administrator's key.
        script = "unset WINDFALL_DATA\n" + "\n".join(
            f"{command} 2>&1; echo; echo {CUT}" for command in commands
        )
        done = self.windfall.shell(script, **self.key)
        return [scrubbed(text) for text in done.stdout.split(CUT)[: len(commands)]]

    def metrics(self) -> str:
        shown = f"{self.key['AWS_ACCESS_KEY_ID']}:{self.key['AWS_SECRET_ACCESS_KEY']}".encode()
        headers = {"Authorization": f"Basic {base64.b64encode(shown).decode()}"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{self.windfall.url}/metrics", headers=headers)
        ) as answer:
            return answer.read().decode()

    def runs(self, *command: str, definition: str = "train", **more: object) -> str:
        """A job of a definition of this tenant's own; the answer is its id."""
        a_definition(self.batch, definition, *command, **more)
        return self.submits(definition)

    def submits(self, definition: str) -> str:
        return self.batch.submit_job(jobName="job", jobQueue="q", jobDefinition=definition)["jobId"]


@pytest.fixture
def windfall(fresh, require) -> RunningWindfall:
    require(shutil.which("bwrap") is not None, "bubblewrap is not installed: tenants cannot be kept apart")
    running = fresh("--gpus", "none", "--vcpus", "8")
    a_queue(running)
    return running


@pytest.fixture
def lab(windfall) -> Tenant:
    return Tenant(windfall, "lab")


@pytest.fixture
def rival(windfall) -> Tenant:
    return Tenant(windfall, "rival")


def test_another_tenant_s_running_job_cannot_be_seen_stopped_or_read(windfall, lab, rival):
    job = lab.runs("sh", "-c", "echo very-private; sleep 600")
    (described,) = windfall.wait_for([job], "RUNNING")
    stream = described["container"]["logStreamName"]
    seen = rival.says(*(command.replace("JOB", job).replace("STREAM", stream) for command in COMMANDS))
    missing = rival.says(*(command.replace("JOB", NOBODY).replace("STREAM", "none") for command in COMMANDS))
    assert dict(zip(COMMANDS, seen, strict=True)) == dict(zip(COMMANDS, missing, strict=True))
    assert "very-private" not in "".join(seen)
    assert rival.batch.list_jobs(jobQueue="q")["jobSummaryList"] == []
    assert rival.logs.describe_log_streams(logGroupName="/aws/batch/job")["logStreams"] == []
    assert job not in rival.metrics()
    events = lab.logs.get_log_events(logGroupName="/aws/batch/job", logStreamName=stream)["events"]
    assert [event["message"] for event in events] == ["very-private"]
    (after,) = windfall.client("batch").describe_jobs(jobs=[job])["jobs"]
    assert (after["status"], after["tags"]) == ("RUNNING", described["tags"])
    # The administrator reads its log under the group that the job names, and can end it.
    assert "very-private" in windfall.windfall("logs", job).stdout
    windfall.client("batch").terminate_job(jobId=job, reason="enough")
    windfall.wait_for([job], "FAILED")


def test_two_tenants_use_the_same_names(windfall, lab, rival):
    jobs = {}
    for tenant, word in ((lab, "of-lab"), (rival, "of-rival")):
        jobs[word] = tenant.runs("echo", word)
        tenant.scheduler.create_schedule(Name="nightly", **SCHEDULE)
        assert tenant.batch.describe_job_definitions()["jobDefinitions"][0]["revision"] == 1
    for tenant, word in ((lab, "of-lab"), (rival, "of-rival")):
        (job,) = windfall.wait_for([jobs[word]])
        (own,) = tenant.batch.describe_jobs(jobs=[jobs[word]])["jobs"]
        assert own["jobDefinition"].endswith(":job-definition/train:1")
        assert own["container"]["command"] == ["echo", word]
        assert job["jobDefinition"].endswith(f"/{'lab' if tenant is lab else 'rival'}/train:1")
        assert [one["Name"] for one in tenant.scheduler.list_schedules()["Schedules"]] == ["nightly"]
    lab.scheduler.delete_schedule(Name="nightly")
    lab.batch.deregister_job_definition(jobDefinition="train:1")
    assert rival.scheduler.get_schedule(Name="nightly")["State"] == "DISABLED"
    windfall.wait_for([rival.submits("train")], "SUCCEEDED")
    with pytest.raises(ClientError, match="Job definition train does not exist"):
        lab.submits("train")
    groups = windfall.client("scheduler").list_schedule_groups()["ScheduleGroups"]
    assert "rival/default" in [group["Name"] for group in groups]


def test_a_definition_of_the_administrators_serves_all_with_their_own_secrets(windfall, lab, rival, tmp_path):
    admin = windfall.client("batch")
    wanted = {"secrets": [{"name": "TOKEN", "valueFrom": "token"}]}
    a_definition(admin, "shared", "sh", "-c", "echo got $TOKEN", container=wanted)
    for tenant in ("lab", "rival"):
        (tmp_path / tenant).write_text(f"secret-of-{tenant}")
        windfall.windfall("secret", "set", "token", "--tenant", tenant, "--from-file", str(tmp_path / tenant))
    for tenant, word in ((lab, "lab"), (rival, "rival")):
        (job,) = windfall.wait_for([tenant.submits("shared")], "SUCCEEDED")
        stream = job["container"]["logStreamName"]
        (event,) = tenant.logs.get_log_events(logGroupName="/aws/batch/job", logStreamName=stream)["events"]
        assert event["message"] == f"got secret-of-{word}"
        with pytest.raises(ClientError, match="needs an admin key"):
            tenant.batch.deregister_job_definition(jobDefinition="shared:1")
    # The administrators' own has none; a tenant's definition of the same name is used before the shared one.
    (job,) = windfall.wait_for([admin.submit_job(jobName="a", jobQueue="q", jobDefinition="shared")["jobId"]])
    assert "windfall secret set token" in job["attempts"][0]["container"]["reason"]
    (job,) = windfall.wait_for([lab.runs("echo", "mine", definition="shared")])
    assert job["container"]["command"] == ["echo", "mine"]


def test_who_submitted_what_is_shown_to_those_who_may_see_it(windfall, rival):
    """The administrator reads owners of all tenants, and a tenant those of its own keys."""
    lab = Tenant(windfall, "lab", name="ana")
    other = Tenant(windfall, "lab", name="bo")
    jobs = [lab.runs("true"), other.submits("train"), rival.runs("true")]
    windfall.wait_for(jobs)
    everything = windfall.windfall("jobs").stdout
    assert {"OWNER", "lab/ana", "lab/bo", f"rival/{rival.key['AWS_ACCESS_KEY_ID']}"} <= set(
        everything.split()
    )
    seen, by_user, by_tenant = lab.says(
        "windfall jobs", "windfall cost --by user", "windfall cost --by tenant"
    )
    assert {"ana", "bo"} <= set(seen.split()) & set(by_user.split())
    assert "lab" in by_tenant.split()
    assert "rival" not in seen + by_user + by_tenant
    assert {"lab", "rival"} <= set(windfall.windfall("cost", "--by", "tenant").stdout.split())
    # Those who have all jobs in sight to themselves are not told who they are.
    assert "OWNER" not in rival.says("windfall jobs")[0]


@pytest.fixture
def pair(postgres_server) -> Iterator[Daemons]:
    postgres_server.execute("CREATE SCHEMA tenants")
    daemons = Daemons(*[postgres_server.url("tenants")] * 2)
    yield daemons
    daemons.close()


def test_a_daemon_that_does_not_lead_keeps_tenants_apart_as_well(pair, require):
    require(shutil.which("bwrap") is not None, "bubblewrap is not installed: tenants cannot be kept apart")
    follower = pair.follower()
    a_queue(follower)
    lab, rival = Tenant(follower, "lab"), Tenant(follower, "rival")
    job = lab.runs("sleep", "600")
    follower.wait_for([job], "RUNNING")
    rival.batch.terminate_job(jobId=job, reason="mine")
    assert rival.batch.describe_jobs(jobs=[job])["jobs"] == []
    a_definition(rival.batch, "own", "true")
    with pytest.raises(ClientError, match=f"Job {job} does not exist"):
        rival.batch.submit_job(jobName="x", jobQueue="q", jobDefinition="own", dependsOn=[{"jobId": job}])
    with pytest.raises(ClientError, match="Job definition train does not exist"):
        rival.submits("train")
    assert rival.says(f"windfall why {job}") == rival.says(f"windfall why {NOBODY}")
    (seen,) = lab.batch.describe_jobs(jobs=[job])["jobs"]
    assert (seen["status"], seen.get("isTerminated", False)) == ("RUNNING", False)
    lab.batch.terminate_job(jobId=job, reason="enough")
    follower.wait_for([job], "FAILED")
