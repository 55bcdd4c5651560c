"""The same daemon on PostgreSQL: jobs run, and a kill -9 costs nothing."""

from __future__ import annotations

from tests.acceptance.daemon import a_definition, a_queue


def test_a_daemon_on_postgresql_survives_its_own_death(fresh, postgres_server):
    postgres_server.execute("CREATE SCHEMA windfall_acceptance")
    windfall = fresh("--store", postgres_server.url("windfall_acceptance"), "--vcpus", "16", "--gpus", "none")
    batch = a_queue(windfall)
    gate = windfall.root / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.2; done"
    a_definition(batch, "index", "sh", "-c", f"{wait}; exit $((AWS_BATCH_JOB_ARRAY_INDEX == 3))")
    job_id = batch.submit_job(jobName="a", jobQueue="q", jobDefinition="index", arrayProperties={"size": 8})[
        "jobId"
    ]
    windfall.wait_for([f"{job_id}:0"], "RUNNING")
    windfall.kill_daemon()
    windfall.up()
    gate.touch()
    [parent] = windfall.wait_for([job_id])
    summary = parent["arrayProperties"]["statusSummary"]
    assert (summary["SUCCEEDED"], summary["FAILED"]) == (7, 1)
    assert "postgresql" in windfall.windfall("status").stdout

    # A daemon that knows the array from the store alone lets those children run whose namesakes succeeded.
    windfall.kill_daemon()
    windfall.up()
    batch = windfall.client("batch")
    a_definition(batch, "quick", "true")
    follower = batch.submit_job(
        jobName="b",
        jobQueue="q",
        jobDefinition="quick",
        arrayProperties={"size": 8},
        dependsOn=[{"jobId": job_id, "type": "N_TO_N"}],
    )["jobId"]
    windfall.wait_for([follower])
    children = windfall.wait_for([f"{follower}:{index}" for index in range(8)])
    assert [index for index, child in enumerate(children) if child["status"] == "FAILED"] == [3]
    assert (children[3]["statusReason"], children[3]["attempts"]) == ("Dependent Job failed", [])


def test_a_database_that_a_plain_initdb_under_the_c_locale_makes(fresh, postgres_server):
    postgres_server.execute("CREATE DATABASE ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    windfall = fresh("--store", postgres_server.url(database="ascii"), "--gpus", "none")
    batch = a_queue(windfall)
    a_definition(batch, "hello", "echo", "zażółć")
    job_id = batch.submit_job(jobName="a", jobQueue="q", jobDefinition="hello")["jobId"]
    windfall.wait_for([job_id])
    windfall.kill_daemon()
    windfall.up()
    [job] = windfall.wait_for([job_id], "SUCCEEDED")
    assert job["container"]["command"] == ["echo", "zażółć"]


def test_a_store_that_does_not_answer_is_a_clear_error(fresh):
    windfall = fresh("--gpus", "none")
    refused = windfall.windfall(
        "up",
        "--port",
        "0",
        "--data",
        f"{windfall.root}/other",
        "--store",
        "postgresql://127.0.0.1:1/none",
        check=False,
    )
    assert refused.returncode != 0
    assert refused.stderr.startswith("windfall: ")
    assert "127.0.0.1" in refused.stderr
    assert "Traceback" not in refused.stderr
