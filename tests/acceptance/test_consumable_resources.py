"""Consumable resources with the aws command line and boto3 against a real daemon."""

from __future__ import annotations

from tests.acceptance.daemon import a_definition, a_queue
from tests.waiting import wait_until


def test_jobs_wait_for_tokens_hold_them_and_give_them_back(windfall):
    batch = a_queue(windfall)
    made = windfall.aws(
        "batch create-consumable-resource --consumable-resource-name licence --total-quantity 2 --tags team=vision"
    )
    assert made["consumableResourceArn"].endswith(":consumable-resource/licence")
    wanted = {
        "consumableResourceList": [{"consumableResource": made["consumableResourceArn"], "quantity": 2}]
    }
    a_definition(batch, "hold", "sleep", "600", consumableResourceProperties=wanted)
    first = batch.submit_job(jobName="first", jobQueue="q", jobDefinition="hold")["jobId"]
    windfall.wait_for([first], "RUNNING")
    second = windfall.aws("batch submit-job --job-name second --job-queue q --job-definition hold")["jobId"]
    small = batch.submit_job(
        jobName="small",
        jobQueue="q",
        jobDefinition="hold",
        consumableResourcePropertiesOverride={
            "consumableResourceList": [{"consumableResource": "licence", "quantity": 1}]
        },
    )["jobId"]
    described = batch.describe_consumable_resource(consumableResource="licence")
    assert (described["totalQuantity"], described["inUseQuantity"], described["availableQuantity"]) == (
        2,
        2,
        0,
    )
    explained = windfall.windfall("why", second).stdout
    assert "wants 2 of licence, 0 of 2 free; held by" in " ".join(explained.split())

    windfall.aws(
        "batch update-consumable-resource --consumable-resource licence --operation ADD --quantity 1"
    )
    windfall.wait_for([small], "RUNNING")
    listed = windfall.aws("batch list-jobs-by-consumable-resource --consumable-resource licence")["jobs"]
    assert {job["jobName"]: (job["jobStatus"], job["quantity"]) for job in listed} == {
        "first": ("RUNNING", 2),
        "second": ("RUNNABLE", 2),
        "small": ("RUNNING", 1),
    }
    # Who holds what is known again after a kill -9.
    windfall.kill_daemon()
    windfall.up()
    batch = windfall.client("batch")
    assert batch.describe_consumable_resource(consumableResource="licence")["inUseQuantity"] == 3
    assert batch.describe_jobs(jobs=[second])["jobs"][0]["status"] == "RUNNABLE"
    batch.terminate_job(jobId=first, reason="enough")
    windfall.wait_for([second], "RUNNING")
    for job_id in (second, small):
        batch.terminate_job(jobId=job_id, reason="enough")

    def all_back() -> bool:
        return batch.describe_consumable_resource(consumableResource="licence")["inUseQuantity"] == 0

    wait_until(all_back, "all tokens to be back")
    windfall.aws("batch delete-consumable-resource --consumable-resource licence")
    assert windfall.aws("batch list-consumable-resources") == {"consumableResources": []}
