"""A submit key whose text runs with the rights of another key: in its runs and its retries."""

from __future__ import annotations

from tests.security.attacked import QUEUE, Attacked, refusal


def test_nothing_is_slipped_into_what_others_run(attacked: Attacked):
    attacker = attacked.client(attacked.key())
    attacked.windfall.windfall("run", "--queue", QUEUE, "--clean", "--", "true")
    container = {
        "image": "windfall/host",
        "command": [],
        "environment": [{"name": "BASH_ENV", "value": "/tmp/evil.sh"}],
        "resourceRequirements": [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}],
    }
    evil = {"jobDefinitionName": "windfall-run", "type": "container", "containerProperties": container}
    assert refusal(attacker.register_job_definition, **evil)[0] == "AccessDeniedException"
    plain = "env | grep BASH_ENV || echo clean"
    ran = attacked.windfall.windfall("run", "--queue", QUEUE, "--clean", "--", "sh", "-c", plain)
    assert ran.stdout.strip() == "clean"


def test_tags_do_not_steer_the_retry_of_an_administrators_job(attacked: Attacked):
    attacker = attacked.client(attacked.key())
    job = attacked.submitted(attacked.admin, "sleep 600; exit 1")
    running = attacked.windfall.wait_for([job], "RUNNING")[0]
    for tags in ({"windfall:checkpoint": "file:///etc"}, {"windfall:git": "https://example.com/evil@main"}):
        code, _ = refusal(attacker.tag_resource, resourceArn=running["jobArn"], tags=tags)
        assert code == "AccessDeniedException"
    attacked.admin.terminate_job(jobId=job, reason="enough")
    attacked.windfall.wait_for([job])
