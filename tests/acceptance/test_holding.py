"""`windfall hold` and `windfall release` against a real daemon, also over a kill of it."""

from __future__ import annotations

from tests.acceptance.daemon import a_definition, a_queue


def test_a_held_job_waits_over_a_kill_of_the_daemon_and_runs_when_it_is_released(fresh):
    running = fresh("--vcpus", "1", "--memory-mib", "4096")
    batch = a_queue(running)
    a_definition(batch, "true", "true")
    a_definition(batch, "long", "sleep", "600")
    first = batch.submit_job(jobName="first", jobQueue="q", jobDefinition="long")["jobId"]
    running.wait_for([first], "RUNNING")
    refused = running.windfall("hold", "first", check=False)
    assert refused.returncode == 1
    assert "windfall interrupt" in refused.stderr
    waiting = batch.submit_job(jobName="second", jobQueue="q", jobDefinition="true")["jobId"]
    assert "is held" in running.windfall("hold", "second").stdout
    running.kill_daemon()
    batch = running.up().client("batch")
    running.windfall("terminate", first)
    running.wait_for([first], "FAILED")
    third = batch.submit_job(jobName="third", jobQueue="q", jobDefinition="true")["jobId"]
    running.wait_for([third], "SUCCEEDED")
    (held,) = running.wait_for([waiting], "RUNNABLE")
    assert held["statusReason"].startswith("Held by ")
    assert f"windfall release {waiting}" in " ".join(running.windfall("why", waiting).stdout.split())
    assert "may start" in running.windfall("release", waiting).stdout
    running.wait_for([waiting], "SUCCEEDED")
