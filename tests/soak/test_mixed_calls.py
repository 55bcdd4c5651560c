"""Many clients at once, with calls of all kinds: no call is a fault of ours, and every job ends as it was asked to.

Clients submit, describe, list, tag, cancel and terminate each other's jobs at random. In the end each job has run at
most once, and the states that the API tells agree with what the jobs wrote.
"""

from __future__ import annotations

import collections
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.acceptance.daemon import ENDED, a_definition, a_queue
from tests.soak.test_random_kills import lines, note

CLIENTS = 50
CALLS = int(os.environ.get("SOAK_CALLS", "20000"))
SEED = int(os.environ.get("SOAK_SEED", "20261116"))
OPTIONS = ("--vcpus", "16", "--memory-mib", "100000", "--gpus", "none")
#: One try for each call: a refusal or a fault must be seen, not tried away.
ONCE = Config(retries={"total_max_attempts": 1}, max_pool_connections=1)


class Caller:
    """One client with its own dice, and the jobs that all of them know."""

    def __init__(self, client: Any, seed: int, jobs: list[str], lock: threading.Lock) -> None:
        self._batch, self._random = client, random.Random(seed)
        self._jobs, self._lock = jobs, lock
        self.refused: list[str] = []

    def work(self, calls: int) -> None:
        for _ in range(calls):
            kind = self._random.choices(
                [self._submit, self._describe, self._list, self._tag, self._stop],
                weights=[40, 20, 10, 10, 20],
            )[0]
            try:
                kind()
            except ClientError as error:
                # Refusals are answers (a job that has ended cannot be cancelled, say); faults are not.
                if error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
                    raise
                self.refused.append(error.response["Error"]["Message"])

    def _submit(self) -> None:
        size = self._random.choice([None, None, None, 2, 5])
        more = {} if size is None else {"arrayProperties": {"size": size}}
        answer = self._batch.submit_job(jobName="mixed", jobQueue="q", jobDefinition="plain", **more)
        with self._lock:
            self._jobs.append(answer["jobId"])

    def _some(self) -> str:
        with self._lock:
            return self._random.choice(self._jobs)

    def _describe(self) -> None:
        wanted = self._some()
        assert [job["jobId"] for job in self._batch.describe_jobs(jobs=[wanted])["jobs"]] == [wanted]

    def _list(self) -> None:
        state = self._random.choice(["RUNNABLE", "RUNNING", "SUCCEEDED", "FAILED"])
        self._batch.list_jobs(jobQueue="q", jobStatus=state, maxResults=50)

    def _tag(self) -> None:
        job = self._batch.describe_jobs(jobs=[self._some()])["jobs"][0]
        self._batch.tag_resource(resourceArn=job["jobArn"], tags={"n": str(self._random.random())})

    def _stop(self) -> None:
        ask = self._random.choice([self._batch.cancel_job, self._batch.terminate_job])
        ask(jobId=self._some(), reason="by chance")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fifty_clients_at_once(fresh):
    windfall = fresh(*OPTIONS)
    ledger = windfall.root / "ledger"
    ledger.mkdir()
    ledger.chmod(0o777)
    batch = a_queue(windfall)
    a_definition(batch, "plain", "sh", "-c", f"{note(ledger, 'begun')}; {note(ledger, 'ended')}")
    jobs = [batch.submit_job(jobName="first", jobQueue="q", jobDefinition="plain")["jobId"]]
    lock = threading.Lock()
    callers = [
        Caller(windfall.client("batch", config=ONCE), SEED + number, jobs, lock) for number in range(CLIENTS)
    ]
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda caller: caller.work(CALLS // CLIENTS), callers))
    found = {job["jobId"]: job for job in windfall.wait_for(jobs, deadline_s=1800)}
    assert len(found) == len(jobs) == len(set(jobs))
    begun, ended = lines(ledger, "begun"), lines(ledger, "ended")
    assert not {line for line, times in (begun | ended).items() if times > 1}
    ran = {line.split()[0] for line in ended}
    for job_id, job in found.items():
        size = job.get("arrayProperties", {}).get("size")
        each = [job_id] if size is None else [f"{job_id}:{index}" for index in range(size)]
        if job["status"] == "SUCCEEDED":
            assert ran.issuperset(each), job
    states = collections.Counter(job["status"] for job in found.values())
    assert set(states) <= set(ENDED)
    print(f"{CALLS} calls, {len(jobs)} jobs: {dict(states)}; {sum(len(c.refused) for c in callers)} refused")
