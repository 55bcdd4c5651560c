"""kill -9 of any process of Windfall, again and again under load: every job ends well, and no attempt runs twice.

What really ran is counted from lines that the jobs write themselves, with the attempt's number in each. A job is lost
if it never ends, and doubled if one attempt wrote two lines.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import re
import signal
from pathlib import Path

import pytest

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.waiting import wait_until

KILLS = int(os.environ.get("SOAK_KILLS", "80"))
SEED = int(os.environ.get("SOAK_SEED", "20261116"))
OPTIONS = ("--vcpus", "24", "--memory-mib", "100000", "--gpus", "none")
#: Steps that a checkpointing job does; each is a file renamed into its checkpoint directory.
STEPS = 30
CHECKPOINTING = f"""
kept=$WINDFALL_CHECKPOINT_DIR
n=$(ls $kept | grep -c '^step-')
while [ $n -lt {STEPS} ]; do
  n=$((n + 1)); echo $n > $kept/.new; mv $kept/.new $kept/step-$n
  sleep 0.1
done
"""


def note(ledger: Path, name: str) -> str:
    return f"echo $AWS_BATCH_JOB_ID $AWS_BATCH_JOB_ATTEMPT >> {ledger}/{name}"


def lines(ledger: Path, name: str) -> collections.Counter[str]:
    file = ledger / name
    return collections.Counter(file.read_text().splitlines() if file.exists() else ())


def own_processes(windfall: RunningWindfall) -> dict[str, list[int]]:
    """The process ids of all parts but the daemon, by the module or script that they run."""
    found: dict[str, list[int]] = collections.defaultdict(list)
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                part = re.search(r"windfall\.agent[.\w]*|warden\.py", command)
                if part and f"{windfall.data}/agent" in command:
                    found[part[0]].append(int(entry.name))
    return found


def strike(windfall: RunningWindfall, random_: random.Random) -> str:
    """kill -9 of one part, each kind as likely as the others; a killed daemon is started again."""
    parts = own_processes(windfall)
    kind = random_.choice(["daemon", *sorted(parts)])
    if kind == "daemon":
        windfall.kill_daemon()
        windfall.up()
        return kind
    with contextlib.suppress(ProcessLookupError):
        os.kill(random_.choice(parts[kind]), signal.SIGKILL)
    return kind


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_is_lost_or_run_twice_whatever_is_killed(fresh):
    random_ = random.Random(SEED)
    windfall = fresh(*OPTIONS)
    ledger = windfall.root / "ledger"
    ledger.mkdir()
    ledger.chmod(0o777)
    batch = a_queue(windfall)
    begun, ended = note(ledger, "begun"), note(ledger, "ended")
    retry = {"attempts": 10}
    a_definition(batch, "plain", "sh", "-c", f"{begun}; sleep 0.$(($$ % 9)); {ended}", retryStrategy=retry)
    a_definition(
        batch,
        "saving",
        *("sh", "-c", f"{begun}; {CHECKPOINTING} {ended}"),
        retryStrategy=retry,
        tags={"windfall:checkpoint": "true"},
    )
    ids: list[str] = []
    children: dict[str, int] = {}
    struck: collections.Counter[str] = collections.Counter()
    for number in range(KILLS):
        client = windfall.client("batch")
        ids.extend(
            client.submit_job(jobName="one", jobQueue="q", jobDefinition=definition)["jobId"]
            for definition in ("plain", "plain", "saving")
        )
        if number % 4 == 0:
            array = client.submit_job(
                jobName="many", jobQueue="q", jobDefinition="plain", arrayProperties={"size": 60}
            )["jobId"]
            ids.append(array)
            children[array] = 60
        # The blow falls at any moment of the jobs' lives.
        so_far = min(
            lines(ledger, "begun").total() + random_.randint(1, 6),
            len(ids) - len(children) + sum(children.values()),
        )
        wait_until(lambda so_far=so_far: lines(ledger, "begun").total() >= so_far, "more jobs have begun")
        struck[strike(windfall, random_)] += 1
    if windfall.process is None or windfall.process.poll() is not None:
        windfall.up()
    found = windfall.wait_for(ids, deadline_s=900)
    failed = [(job["jobId"], job.get("statusReason")) for job in found if job["status"] != "SUCCEEDED"]
    assert not failed, (SEED, dict(struck), failed)
    for name in ("begun", "ended"):
        twice = {line: times for line, times in lines(ledger, name).items() if times > 1}
        assert not twice, (SEED, name, twice)
    finished = {line.split()[0] for line in lines(ledger, "ended")}
    wanted = {job_id for job_id in ids if job_id not in children}
    wanted |= {f"{array}:{index}" for array, size in children.items() for index in range(size)}
    assert wanted <= finished, (SEED, dict(struck), sorted(wanted - finished)[:10])
    wait_until(lambda: not lost_processes(windfall), "no process of a job is left")
    print(f"{sum(struck.values())} kills: {dict(struck)}; {len(ids)} jobs, {sum(children.values())} children")


def lost_processes(windfall: RunningWindfall) -> list[str]:
    """Processes that still carry the mark of a job of this daemon though all have ended."""
    mark = f"{windfall.root}/ledger".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "cmdline").read_bytes():
                found.append(entry.name)
    return found
