"""A data directory and its store belong together: jobs that run survive every mix-up of the two."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.waiting import wait_until
from windfall.daemon.store_claim import CLAIM_NAME


def a_job_that_waits(windfall: RunningWindfall) -> str:
    """A job that runs until the file `go` is there and says so in a file that it alone writes."""
    go, said = windfall.root / "go", windfall.root / "said"
    said.touch()
    said.chmod(0o666)
    batch = a_queue(windfall)
    script = f"while ! test -e {go}; do sleep 0.02; done; echo done >> {said}"
    a_definition(batch, "precious", "sh", "-c", script)
    job_id = batch.submit_job(jobName="precious", jobQueue="q", jobDefinition="precious")["jobId"]
    windfall.wait_for([job_id], "RUNNING")
    return str(job_id)


def go_down(windfall: RunningWindfall) -> None:
    """Stop the daemon; jobs go on."""
    windfall.windfall("down")
    assert windfall.process is not None
    windfall.process.wait(60)


def ends_well(windfall: RunningWindfall, job_id: str) -> None:
    """Let the job end, which was never disturbed."""
    (windfall.root / "go").touch()
    (ended,) = windfall.wait_for([job_id])
    assert (ended["status"], len(ended["attempts"])) == ("SUCCEEDED", 1)
    assert (windfall.root / "said").read_text() == "done\n"


def refused(windfall: RunningWindfall, *options: str) -> str:
    """What `windfall up` says with these options in place of its own."""
    done = windfall.windfall("up", "--port", "0", "--gpus", "none", *options, check=False)
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_daemon_with_another_store_is_refused_and_jobs_live(fresh):
    windfall = fresh("--gpus", "none")
    job_id = a_job_that_waits(windfall)
    go_down(windfall)
    text = refused(windfall, "--store", f"sqlite:///{windfall.root}/other.db")
    assert f"belongs to the store {windfall.data}/store/windfall.db" in text
    windfall.up()
    ends_well(windfall, job_id)


def test_a_daemon_that_forgets_its_server_is_refused_and_jobs_live(fresh, postgres_server):
    postgres_server.execute("CREATE SCHEMA windfall_precious")
    url = postgres_server.url("windfall_precious").replace("postgres@", "postgres:verysecret@")
    windfall = fresh("--gpus", "none", "--store", url)
    job_id = a_job_that_waits(windfall)
    # Beside the daemon that runs: one line, with its process id and nothing else of the lock's file.
    text = refused(windfall)
    assert f"(pid {windfall.process.pid}) uses" in text
    assert text.count("\n") == 1
    go_down(windfall)
    text = refused(windfall)
    assert "belongs to the store PostgreSQL database postgres" in text
    assert "verysecret" not in text + (windfall.data / CLAIM_NAME).read_text()
    postgres_server.execute("CREATE SCHEMA windfall_nothing")
    assert "missing or empty" in refused(windfall, "--store", postgres_server.url("windfall_nothing"))
    made = "SELECT count(*) FROM pg_tables WHERE schemaname = 'windfall_nothing'"
    assert postgres_server.execute(made) == [(0,)]
    windfall.up()
    ends_well(windfall, job_id)


def test_a_store_that_was_dropped_and_made_again_is_not_led(fresh, postgres_server):
    postgres_server.execute("CREATE SCHEMA windfall_dropped")
    url = postgres_server.url("windfall_dropped")
    windfall = fresh("--gpus", "none", "--store", url, "--lease-s", "1")
    job_id = a_job_that_waits(windfall)
    postgres_server.execute("ALTER SCHEMA windfall_dropped RENAME TO windfall_kept")
    postgres_server.execute("CREATE SCHEMA windfall_dropped")
    # Somebody else makes a new store of the same name.
    other = RunningWindfall("--gpus", "none", "--store", url)
    try:
        other.up()
        assert windfall.process.wait(60) == 2
        assert "another store" in windfall.log.read_text()
        assert "belongs to the store" in refused(windfall, "--store", url)
    finally:
        other.close()
    postgres_server.execute("DROP SCHEMA windfall_dropped CASCADE")
    postgres_server.execute("ALTER SCHEMA windfall_kept RENAME TO windfall_dropped")
    windfall.up()
    ends_well(windfall, job_id)


@pytest.mark.parametrize("busy", [True, False])
def test_a_store_that_is_taken_away_ends_the_daemon_and_no_job(fresh, busy):
    windfall = fresh("--gpus", "none")
    job_id = a_job_that_waits(windfall)
    batch = windfall.client("batch")
    (windfall.data / "store").rename(windfall.root / "kept")
    (windfall.data / "store").mkdir(mode=0o700)
    if busy:
        with pytest.raises((ClientError, BotoCoreError)):
            batch.submit_job(jobName="late", jobQueue="q", jobDefinition="precious")
    assert windfall.process.wait(60) == 2
    assert f"{windfall.data}/store/windfall.db was removed" in windfall.log.read_text()
    assert "running jobs go on" in windfall.log.read_text()
    assert "Traceback" not in windfall.log.read_text()
    assert "missing or empty" in refused(windfall)
    shutil.rmtree(windfall.data / "store")
    (windfall.root / "kept").rename(windfall.data / "store")
    windfall.up()
    ends_well(windfall, job_id)


def test_a_directory_of_an_earlier_version_takes_the_store_that_it_has(fresh):
    windfall = fresh("--gpus", "none")
    job_id = a_job_that_waits(windfall)
    go_down(windfall)
    (windfall.data / CLAIM_NAME).unlink()
    file = windfall.data / "store" / "windfall.db"
    subprocess.run(
        ["python3", "-c", f"import sqlite3; sqlite3.connect('{file}').execute('DROP TABLE store_identity')"],
        check=True,
    )
    windfall.up()
    wait_until((windfall.data / CLAIM_NAME).exists, "the directory knows its store")
    ends_well(windfall, job_id)
