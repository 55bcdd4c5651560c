"""A second tenant, with keys of its own: what another one has can be neither seen, changed, nor learned of."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.daemon import a_definition
from tests.security.attacked import QUEUE, Attacked, refusal

PATTERNS = ("default:{}", "default{}", "{}")


@pytest.fixture(scope="module")
def victim(attacked: Attacked) -> dict[str, Any]:
    """A job of the tenant `default` that runs while the tests of this module try to reach it."""
    batch = attacked.client(attacked.key())
    # The program has a name of its own, for those who look for it.
    script = (
        "echo of-the-victim; cp /bin/sleep victim; touch /tmp/victims /dev/shm/victims; exec ./victim 600"
    )
    job = attacked.submitted(batch, script, tags={"owner": "victim"})
    found = attacked.windfall.wait_for([job], "RUNNING")[0]
    assert found["status"] == "RUNNING"
    return dict(found)


def test_no_call_about_its_jobs_tells_more_than_one_about_nothing(attacked: Attacked, victim: dict[str, Any]):
    thief = attacked.client(attacked.key(tenant="vision"))
    job, arn, nothing = victim["jobId"], victim["jobArn"], "00000000-0000-4000-8000-000000000000"

    def told(call: Any, **members: Any) -> str:
        code, text = refusal(call, **members)
        return f"{code} {text}".partition(", RequestId")[0].replace(job, nothing)

    calls: list[tuple[Any, dict[str, Any]]] = [
        (thief.tag_resource, {"resourceArn": arn, "tags": {"a": "b"}}),
        (thief.untag_resource, {"resourceArn": arn, "tagKeys": ["owner"]}),
        (thief.list_tags_for_resource, {"resourceArn": arn}),
    ]
    for call, members in calls:
        unknown = {**members, "resourceArn": arn.replace(job, nothing)}
        assert told(call, **members) == told(call, **unknown)
    a_definition(thief, "depending", "true")
    depending = {"jobName": "x", "jobQueue": QUEUE, "jobDefinition": "depending"}
    assert told(thief.submit_job, **depending, dependsOn=[{"jobId": job}]) == told(
        thief.submit_job, **depending, dependsOn=[{"jobId": nothing}]
    )
    assert thief.describe_jobs(jobs=[job, arn])["jobs"] == []
    for members in (
        {"arrayJobId": job},
        {"multiNodeJobId": job},
        {"jobQueue": QUEUE, "jobStatus": "RUNNING"},
    ):
        assert thief.list_jobs(**members)["jobSummaryList"] == []
    thief.terminate_job(jobId=job, reason="mine now")
    thief.cancel_job(jobId=job, reason="mine now")
    assert attacked.windfall.wait_for([job], "RUNNING")[0]["tags"]["owner"] == "victim"


def test_no_name_of_a_log_group_leads_to_its_logs(attacked: Attacked, victim: dict[str, Any]):
    thief = attacked.client(attacked.key(tenant="vision"), "logs")
    stream = victim["container"]["logStreamName"]
    for pattern in PATTERNS:
        group = pattern.format("/aws/batch/job")
        code, _ = refusal(thief.get_log_events, logGroupName=group, logStreamName=stream)
        assert code == "ResourceNotFoundException"
    assert "of-the-victim" not in str(thief.filter_log_events(logGroupName="/aws/batch/job"))


def test_a_job_finds_no_trace_of_its_processes_and_files(attacked: Attacked, victim: dict[str, Any]):
    thief = attacked.client(attacked.key(tenant="vision"))
    script = r"""
for process in /proc/[0-9]*; do readlink $process/exe; done | grep -c /victim
ls /tmp /dev/shm | grep -c victims
pkill -x victim && echo killed
kill -9 -1
ipcs -m | grep -c 0x
true
"""
    assert attacked.run(thief, script).split()[:2] == ["0", "0"]
    assert attacked.windfall.wait_for([victim["jobId"]], "RUNNING")


@pytest.mark.parametrize("name", ["token", "default/token", "../default/token", "../token"])
def test_no_name_leads_to_its_secrets(attacked: Attacked, name: str):
    token = attacked.windfall.root / "token"
    token.write_text("of-the-victim")
    token.chmod(0o644)
    attacked.windfall.windfall("secret", "set", "token", "--from-file", str(token))
    thief = attacked.client(attacked.key(tenant="vision"))
    secret = {"secrets": [{"name": "TOKEN", "valueFrom": name}]}
    a_definition(thief, "stealing", "env", container=secret)
    job = thief.submit_job(jobName="x", jobQueue=QUEUE, jobDefinition="stealing")["jobId"]
    ended = attacked.windfall.wait_for([job])[0]
    assert ended["status"] == "FAILED"
    assert "there is no secret" in ended["attempts"][-1]["container"]["reason"]
