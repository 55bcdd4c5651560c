"""A backup that is made while jobs are submitted, and a daemon elsewhere that goes on from it."""

from __future__ import annotations

import json
import stat
import threading

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.waiting import wait_until


def test_a_backup_under_load_is_consistent_and_goes_on_elsewhere(fresh):
    windfall = fresh("--gpus", "none", "--vcpus", "4")
    batch = a_queue(windfall)
    a_definition(batch, "quick", "true")
    ids: list[str] = []
    enough = threading.Event()

    def submit() -> None:
        while not enough.is_set():
            ids.append(batch.submit_job(jobName="n", jobQueue="q", jobDefinition="quick")["jobId"])

    submitting = threading.Thread(target=submit)
    submitting.start()
    try:
        wait_until(lambda: len(ids) > 20, "jobs to be submitted")
        answered = list(ids)
        file = windfall.root / "backup.tgz"
        said = json.loads(windfall.windfall("backup", str(file), "--json").stdout)
        count = len(ids)
        wait_until(lambda: len(ids) > count, "the daemon to go on")
    finally:
        enough.set()
        submitting.join(60)
    assert said["hasStore"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    refused = windfall.windfall("restore", str(file), check=False)
    assert refused.returncode == 1
    assert "is not empty" in refused.stderr

    other = RunningWindfall("--gpus", "none", "--vcpus", "4")
    try:
        restored = other.windfall("restore", str(file)).stdout
        assert f"from {windfall.data}" in restored
        other.up()
        # What was answered before the backup is all there, and ends; the same key works.
        assert other.environment["AWS_ACCESS_KEY_ID"] == windfall.environment["AWS_ACCESS_KEY_ID"]
        for job in other.wait_for(answered):
            assert job["status"] in ("SUCCEEDED", "FAILED")
        again = other.client("batch").submit_job(jobName="n", jobQueue="q", jobDefinition="quick")["jobId"]
        assert other.wait_for([again])[0]["status"] == "SUCCEEDED"
    finally:
        other.close()


def test_a_postgresql_store_is_left_to_pg_dump(fresh, postgres_server):
    postgres_server.execute("CREATE SCHEMA backups")
    windfall = fresh("--store", postgres_server.url("backups"), "--gpus", "none")
    file = windfall.root / "backup.tgz"
    refused = windfall.windfall("backup", str(file), check=False)
    assert (refused.returncode, file.exists()) == (1, False)
    assert "pg_dump --format=custom" in refused.stderr
    assert "has no store" in _restored(windfall, file)


def _restored(windfall: RunningWindfall, file) -> str:
    windfall.windfall("backup", "--no-store", str(file))
    done = windfall.windfall("restore", "--data", str(windfall.root / "other"), str(file))
    return done.stderr
