"""kill -9 of the daemon, of the agent and of both, in the middle of 200 running jobs: nothing lost, nothing twice.

Every job writes its id and attempt into a file of its own making, so that what really ran can be counted without
believing anything that Windfall says.
"""

from __future__ import annotations

import collections
import os
import signal
from pathlib import Path

from tests.acceptance.daemon import a_definition, a_queue
from tests.waiting import wait_until

JOBS = 200
OPTIONS = ("--vcpus", "400", "--memory-mib", "400000", "--gpus", "none")


class Ledger:
    """What the jobs themselves wrote down: one line at the start, one at the end."""

    def __init__(self, root: Path) -> None:
        self.path = root / "ledger"
        self.path.mkdir()
        self.path.chmod(0o777)
        self.gate = root / "go"

    def command(self, exit_code: str = "$((AWS_BATCH_JOB_ARRAY_INDEX % 5 == 4))") -> list[str]:
        """Starts, waits until the gate file is there, ends with the code."""
        note = f"echo $AWS_BATCH_JOB_ID $AWS_BATCH_JOB_ATTEMPT >> {self.path}"
        return [
            "sh",
            "-c",
            f"{note}/started; while [ ! -e {self.gate} ]; do sleep 0.3; done; {note}/ended; exit {exit_code}",
        ]

    def count(self, name: str) -> collections.Counter[str]:
        """How often each job and attempt wrote its line."""
        file = self.path / name
        return collections.Counter(file.read_text().splitlines()) if file.exists() else collections.Counter()

    def open_gate(self) -> None:
        """Let all jobs end."""
        self.gate.touch()


def submit_and_start(windfall, ledger, **more):
    batch = a_queue(windfall, max_vcpus=400)
    a_definition(batch, "gated", *ledger.command())
    job_id = batch.submit_job(
        jobName="many", jobQueue="q", jobDefinition="gated", arrayProperties={"size": JOBS}, **more
    )["jobId"]
    wait_until(lambda: len(ledger.count("started")) == JOBS, f"{JOBS} jobs started")
    return job_id


def check(windfall, ledger, job_id):
    """Every child ended as its own code says, and ran exactly once."""
    [parent] = windfall.wait_for([job_id])
    summary = parent["arrayProperties"]["statusSummary"]
    assert (summary["SUCCEEDED"], summary["FAILED"]) == (JOBS * 4 // 5, JOBS // 5)
    children = windfall.wait_for([f"{job_id}:{index}" for index in range(JOBS)])
    codes = [child["container"]["exitCode"] for child in children]
    assert codes == [int(index % 5 == 4) for index in range(JOBS)]
    once = collections.Counter(f"{job_id}:{index} 1" for index in range(JOBS))
    assert ledger.count("started") == once
    assert ledger.count("ended") == once


def test_killing_the_daemon_kills_no_job(fresh):
    windfall = fresh(*OPTIONS)
    ledger = Ledger(windfall.root)
    job_id = submit_and_start(windfall, ledger)
    windfall.kill_daemon()
    windfall.up()
    ledger.open_gate()
    check(windfall, ledger, job_id)


def test_what_ended_while_the_daemon_was_dead_is_learnt(fresh):
    windfall = fresh(*OPTIONS)
    ledger = Ledger(windfall.root)
    job_id = submit_and_start(windfall, ledger)
    windfall.kill_daemon()
    ledger.open_gate()
    wait_until(lambda: len(ledger.count("ended")) == JOBS, "all jobs ended without a daemon")
    windfall.up()
    check(windfall, ledger, job_id)


def test_killing_the_agent_loses_no_exit_code(fresh):
    windfall = fresh(*OPTIONS)
    ledger = Ledger(windfall.root)
    job_id = submit_and_start(windfall, ledger)
    killed = windfall.kill_agent()
    ledger.open_gate()
    wait_until(lambda: windfall.agent_pids().get("agent", killed) != killed, "a new agent")
    check(windfall, ledger, job_id)


def test_killing_daemon_and_agent_while_jobs_start_and_end(fresh):
    """The kill falls among starts and exits, several times; every job still ends once for every attempt."""
    windfall = fresh("--vcpus", "40", "--memory-mib", "400000", "--gpus", "none")
    ledger = Ledger(windfall.root)
    ledger.open_gate()
    batch = a_queue(windfall, max_vcpus=400)
    a_definition(batch, "quick", *ledger.command("0"))
    job_id = batch.submit_job(
        jobName="many",
        jobQueue="q",
        jobDefinition="quick",
        arrayProperties={"size": 1_000},
        retryStrategy={"attempts": 10},
    )["jobId"]
    for share in (0.1, 0.3, 0.5, 0.7):
        wait_until(lambda share=share: len(ledger.count("started")) >= 1_000 * share, f"{share:.0%} started")
        windfall.kill_agent()
        windfall.kill_daemon()
        windfall.up()
    [parent] = windfall.wait_for([job_id])
    assert parent["status"] == "SUCCEEDED"
    started = ledger.count("started")
    assert max(started.values()) == 1, "an attempt ran twice"
    children = windfall.wait_for([f"{job_id}:{index}" for index in range(1_000)])
    succeeded = {
        f"{child['jobId']} {number}"
        for child in children
        for number, attempt in enumerate(child["attempts"], start=1)
        if attempt["container"].get("exitCode") == 0
    }
    assert len(succeeded) == 1_000
    assert succeeded <= set(ledger.count("ended"))


def test_after_killing_everything_what_cannot_be_known_is_lost_and_retried_by_rule(fresh):
    windfall = fresh(*OPTIONS)
    ledger = Ledger(windfall.root)
    rules = [{"action": "RETRY", "onStatusReason": "Host EC2*"}, {"action": "EXIT", "onReason": "*"}]
    job_id = submit_and_start(windfall, ledger, retryStrategy={"attempts": 2, "evaluateOnExit": rules})
    windfall.kill_daemon()
    before = windfall.agent_pids()
    os.kill(before["warden"], signal.SIGKILL)
    os.kill(before["agent"], signal.SIGKILL)
    ledger.open_gate()
    wait_until(lambda: len(ledger.count("ended")) == JOBS, "all jobs ended with nobody watching")
    windfall.up()
    [parent] = windfall.wait_for([job_id])
    children = windfall.wait_for([f"{job_id}:{index}" for index in range(JOBS)])
    assert parent["status"] == "FAILED"
    for child in children:
        first, code = child["attempts"][0], int(child["arrayProperties"]["index"] % 5 == 4)
        if first["statusReason"].startswith("Host EC2 (instance i-"):
            assert "exitCode" not in first["container"], "what is lost has no code"
            assert len(child["attempts"]) == 2
        else:
            # Where the kernel still knew the code (a zombie that init had not collected), it is not lost.
            assert (first["container"]["exitCode"], len(child["attempts"])) == (code, 1)
        assert child["container"]["exitCode"] == code
    assert max(ledger.count("started").values()) == 1


def test_a_second_daemon_on_the_same_data_is_refused(fresh):
    windfall = fresh()
    refused = windfall.windfall("up", "--port", "0", "--data", str(windfall.data), check=False)
    assert refused.returncode != 0
    assert "another Windfall daemon" in refused.stderr
    assert "windfall down" in refused.stderr


def test_going_down_leaves_running_jobs_to_the_next_daemon(fresh):
    windfall = fresh(*OPTIONS)
    ledger = Ledger(windfall.root)
    batch = a_queue(windfall)
    a_definition(batch, "gated", *ledger.command("0"))
    job_id = batch.submit_job(jobName="one", jobQueue="q", jobDefinition="gated")["jobId"]
    windfall.wait_for([job_id], "RUNNING")
    windfall.windfall("down")
    assert windfall.process is not None
    assert windfall.process.wait(120) == 0
    windfall.up()
    ledger.open_gate()
    [job] = windfall.wait_for([job_id])
    assert (job["status"], len(job["attempts"])) == ("SUCCEEDED", 1)
