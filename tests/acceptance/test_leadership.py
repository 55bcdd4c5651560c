"""Several daemons on one PostgreSQL: one leads, and another one does when it dies, freezes or loses its connection.

Jobs run through each change and none runs twice (the jobs themselves keep the ledger), and a client that submits to all
daemons in turn, all the time, is refused nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.acceptance.exec_client import entered_processes, wait_for_program
from tests.acceptance.page_client import ask, fetch, the_session
from tests.acceptance.several_daemons import OPTIONS, Daemons, Relay, Submitter, send
from tests.acceptance.test_killing import Ledger
from tests.waiting import wait_until
from windfall.agent.client import connect
from windfall.agent.reach import UnixReach
from windfall.agent.settings import AgentSettings

GATED = 12
#: Above any that a clock gives.
EPOCH = 10**15


@pytest.fixture
def store(postgres_server, request) -> str:
    """A schema of its own on a real server."""
    name = f"leaders_{request.node.name.removeprefix('test_')[:40]}"
    postgres_server.execute(f"CREATE SCHEMA {name}")
    return postgres_server.url(name)


class Trial:
    """Gated jobs that run from before the change to after it, and a client that submits throughout."""

    def __init__(self, daemons: Daemons) -> None:
        self.daemons = daemons
        self.ledger = Ledger(daemons.root)
        batch = a_queue(daemons.follower(), max_vcpus=64)
        note = f"echo $AWS_BATCH_JOB_ID $AWS_BATCH_JOB_ATTEMPT >> {self.ledger.path}"
        a_definition(batch, "quick", "sh", "-c", f"{note}/started; {note}/ended")
        a_definition(batch, "gated", *self.ledger.command("0"))
        self.gated = batch.submit_job(
            jobName="gated", jobQueue="q", jobDefinition="gated", arrayProperties={"size": GATED}
        )["jobId"]
        daemons.all[0].wait_for([self.gated + f":{n}" for n in range(GATED)], "RUNNING")
        self.submitter = Submitter(daemons, jobQueue="q", jobDefinition="quick")
        self.submitter.wait_for_more()

    def check(self) -> None:
        """All that was taken has run, once; the gated ones have run through."""
        self.submitter.wait_for_more()
        taken = self.submitter.stop()
        self.ledger.open_gate()
        leader = self.daemons.leader()
        jobs = leader.wait_for([*taken, self.gated])
        assert {job["status"] for job in jobs} == {"SUCCEEDED"}
        assert {len(job["attempts"]) for job in jobs if job["jobId"] != self.gated} == {1}
        expected = {f"{job_id} 1" for job_id in taken} | {f"{self.gated}:{n} 1" for n in range(GATED)}
        started, ended = self.ledger.count("started"), self.ledger.count("ended")
        assert max(started.values()) == max(ended.values()) == 1, "a job ran twice"
        assert expected <= set(ended)


def both(store: str) -> Iterator[Daemons]:
    daemons = Daemons(store, store)
    try:
        yield daemons
    finally:
        daemons.close()


@pytest.fixture
def pair(store: str) -> Iterator[Daemons]:
    yield from both(store)


def passed_over(daemons: Daemons, old: RunningWindfall) -> RunningWindfall:
    [new] = [one for one in daemons.all if one is not old]
    daemons.wait_for_leader(new)
    return new


def test_a_leader_that_is_killed_is_replaced(pair: Daemons):
    trial, old = Trial(pair), pair.leader()
    old.kill_daemon()
    passed_over(pair, old)
    trial.submitter.wait_for_more()
    old.up()
    trial.check()
    listed = pair.listed()
    assert sorted(listed) == sorted(one.process.pid for one in pair.all)
    assert [pid for pid, leads in listed.items() if leads] == [pair.leader().process.pid]
    assert "follows" in old.windfall("status").stdout
    batch = old.client("batch")
    assert batch.get_job_queue_snapshot(jobQueue="q")["frontOfQueue"]["jobs"] == [], "handed on to the leader"
    # One that goes on purpose gives its lease back.
    assert "has stopped" in old.windfall("down").stdout
    pair.wait_for_leader(old)
    job_id = batch.submit_job(jobName="last", jobQueue="q", jobDefinition="quick")["jobId"]
    assert [job["status"] for job in old.wait_for([job_id])] == ["SUCCEEDED"]


def test_a_leader_that_freezes_is_replaced_and_follows_when_it_thaws(pair: Daemons):
    trial, old = Trial(pair), pair.leader()
    send(old, signal.SIGSTOP)
    passed_over(pair, old)
    trial.submitter.wait_for_more()
    send(old, signal.SIGCONT)
    pair.wait_for_word(old, "no longer leads")
    assert old.process.poll() is None
    trial.check()
    # On a machine that is busy enough the new one may have lost its lease meanwhile: then it was given properly.
    assert pair.leader() is not old or old.log.read_text().count("leads now") == 2


def exec_at(daemon: RunningWindfall, *arguments: str) -> subprocess.Popen[bytes]:
    """`windfall exec` of somebody who knows this daemon's address and nothing of its data directory."""
    environment = {**os.environ, **daemon.environment}
    del environment["WINDFALL_DATA"]  # By which it would find the one that leads.
    for name in environment:
        if name.startswith("AWS_ENDPOINT_URL"):
            environment[name] = daemon.url
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*daemon.command, "exec", *arguments], stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd="/"
    )


def test_a_command_inside_a_job_is_run_by_way_of_a_daemon_that_does_not_lead(pair: Daemons):
    leader, follower = pair.leader(), pair.follower()
    batch = a_queue(follower)
    a_definition(batch, "train", "sleep", "600")
    job_id = batch.submit_job(jobName="train", jobQueue="q", jobDefinition="train")["jobId"]
    follower.wait_for([job_id], "RUNNING")
    client = exec_at(follower, job_id, "--", "sh", "-c", "cat; echo err >&2; exit 3")
    assert client.communicate(b"in", timeout=60) == (b"in", b"err\n")
    assert client.returncode == 3
    assert "runs 'sh' in job" in leader.log.read_text()
    assert "runs 'sh' in job" not in follower.log.read_text(), "it was handed on"

    client = exec_at(follower, job_id, "--", "sleep", "600")
    wait_for_program(leader, "sleep", "600")
    leader.kill_daemon()
    assert client.communicate(timeout=60)[1].startswith(b"windfall: ")
    assert client.returncode == 1
    wait_until(lambda: not entered_processes(leader), "no process of the session is left")
    pair.wait_for_leader(follower)
    client = exec_at(follower, job_id, "--", "echo", "again")
    assert client.communicate(timeout=60)[0] == b"again\n"
    batch.terminate_job(jobId=job_id, reason="done")


def test_a_daemon_that_does_not_lead_serves_the_page_which_then_asks_by_itself(pair: Daemons):
    follower, leader = pair.follower(), pair.leader()
    assert leader is not None
    status, headers, _ = fetch(follower, "GET", "/ui/", {"accept": "text/html"})
    assert status == 200
    assert "content-security-policy" in {name.lower() for name in headers}
    session = the_session(leader)
    _, me = ask(follower, session, "WhoAmI")
    assert (me["leads"], me["leader"], me["role"]) == (False, leader.url, "read")
    status, refusal = ask(follower, session, "Watch", topics=["counts"])
    assert (status, refusal["__type"], refusal["leader"]) == (503, "WatchElsewhere", leader.url)
    for operation in ("Counts", "Alarms", "Machines", "Top", "Jobs", "Activity"):
        assert ask(follower, session, operation)[0] == 200, operation


def test_a_lone_daemon_goes_on_after_its_sessions_were_ended_and_after_a_higher_epoch(
    store: str, fresh, postgres_server
):
    windfall = fresh("--store", store, *OPTIONS)
    batch = a_queue(windfall)
    a_definition(batch, "quick", "true")

    def runs_a_job() -> None:
        job_id = batch.submit_job(jobName="n", jobQueue="q", jobDefinition="quick")["jobId"]
        [job] = windfall.wait_for([job_id])
        assert job["status"] == "SUCCEEDED"

    postgres_server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
    )
    runs_a_job()

    async def outbid() -> int:
        connection = await connect(UnixReach(AgentSettings(str(windfall.data / "agent"), "")), EPOCH)
        await connection.close()
        return connection.inventory.vcpus

    assert asyncio.run(outbid())
    wait_until(lambda: windfall.log.read_text().count("leads now") == 2, "it to lead with a higher epoch")
    runs_a_job()
    [(epoch,)] = postgres_server.execute(f"SELECT epoch FROM {store.rpartition('%3D')[2]}.leadership")
    assert epoch > EPOCH
    assert windfall.windfall("down", "--kill").returncode == 0


def test_a_leader_that_loses_its_connection_is_replaced_and_follows_when_it_is_back(store: str):
    folder = Path(psycopg.conninfo.conninfo_to_dict(store)["host"])
    relay = Relay(store, folder / ".s.PGSQL.5432")
    daemons = Daemons(relay.url, store)
    try:
        trial, old = Trial(daemons), daemons.all[0]
        assert daemons.leader() is old
        relay.cut()
        passed_over(daemons, old)
        trial.submitter.wait_for_more()
        relay.mend()
        daemons.wait_for_word(old, "no longer leads")
        trial.check()
    finally:
        daemons.close()
        relay.close()
