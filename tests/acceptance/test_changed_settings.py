"""An agent outlives its daemon; new settings replace an idle agent, and wait for one that has jobs."""

from __future__ import annotations

from tests.acceptance.daemon import a_definition, a_queue


def offered(windfall):
    return windfall.windfall("status").stdout


def test_an_idle_agent_is_replaced_and_a_busy_one_is_left_alone_with_a_warning(fresh):
    windfall = fresh("--vcpus", "4", "--gpus", "none")
    batch = a_queue(windfall)
    a_definition(batch, "long", "sleep", "300")
    a_definition(batch, "true", "true")
    windfall.wait_for([batch.submit_job(jobName="first", jobQueue="q", jobDefinition="true")["jobId"]])
    windfall.kill_daemon()
    windfall.options = ("--vcpus", "8", "--gpus", "simulated:2")
    windfall.up()
    assert "0 of 8 in use" in offered(windfall)
    job_id = windfall.client("batch").submit_job(
        jobName="a",
        jobQueue="q",
        jobDefinition="long",
        containerOverrides={"resourceRequirements": [{"type": "VCPU", "value": "6"}]},
    )["jobId"]
    windfall.wait_for([job_id], "RUNNING")
    windfall.kill_daemon()
    windfall.options = ("--vcpus", "16", "--gpus", "none")
    windfall.up()
    assert "1 job still runs under the settings of an earlier start" in windfall.log.read_text()
    assert "6 of 8 in use" in offered(windfall)
    windfall.wait_for([job_id], "RUNNING")
