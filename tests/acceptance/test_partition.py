"""A host that is cut off: an attempt that must not run on there ends before its job goes on elsewhere."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.daemon import RunningWindfall, a_queue
from tests.hosts_in_a_box import HostsInABox, require_hosts
from tests.waiting import wait_until

#: Says when it is told to leave, and when it is gone; ends by itself only when it may.
_SAVES = (
    "trap 'echo saved > /var/tmp/$AWS_BATCH_JOB_ID.saved; exit 143' TERM; touch /var/tmp/$AWS_BATCH_JOB_ID.begun;"
    " while [ ! -e /var/tmp/go ]; do sleep 0.1; done; hostname"
)
NEEDS = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}, {"type": "GPU", "value": "1"}]


def test_an_attempt_stops_on_a_host_that_is_cut_off_before_it_runs_elsewhere(tmp_path: Path) -> None:
    require_hosts()
    with HostsInABox(2, tmp_path) as hosts:
        daemon = RunningWindfall("--gpus", "none")
        daemon.extra_environment["WINDFALL_SSH_CONFIG"] = str(hosts.ssh_config)
        daemon.extra_environment["WINDFALL_LOST_AFTER_S"] = "20"
        daemon.up()
        try:
            _cut_and_heal(hosts, daemon)
        finally:
            daemon.close()


def _cut_and_heal(hosts: HostsInABox, daemon: RunningWindfall) -> None:
    daemon.windfall("hosts", "add", "box0", "box1", "--gpus", "simulated:2")
    batch = a_queue(daemon)
    batch.register_job_definition(
        jobDefinitionName="work",
        type="container",
        containerProperties={
            "image": "windfall/host",
            "command": ["sh", "-c", _SAVES],
            "resourceRequirements": NEEDS,
        },
    )
    with pytest.raises(
        batch.exceptions.ClientException, match="windfall:partition must be one of continue, stop"
    ):
        batch.submit_job(
            jobName="x", jobQueue="q", jobDefinition="work", tags={"windfall:partition": "pause"}
        )
    jobs = {
        word: batch.submit_job(
            jobName=word,
            jobQueue="q",
            jobDefinition="work",
            tags={"windfall:partition": word},
            retryStrategy={"attempts": 5},
        )["jobId"]
        for word in ("stop", "continue")
    }

    def job(word: str) -> dict[str, Any]:
        return dict(batch.describe_jobs(jobs=[jobs[word]])["jobs"][0])

    def over(word: str) -> dict[str, Any] | None:
        return now if (now := job(word))["status"] in ("SUCCEEDED", "FAILED") else None

    def left(host: int) -> list[str]:
        return hosts.run(host, "ls", "/var/tmp").split()

    def place(word: str) -> int | None:
        return next((host for host in (0, 1) if f"{jobs[word]}.begun" in left(host)), None)

    for word in jobs:
        wait_until(partial(lambda it: place(it) is not None, word), f"{word} has begun")
    assert place("stop") == place("continue"), "two GPUs of one host come first"
    first = place("stop")
    assert first is not None
    other = 1 - first
    hosts.cut(first)
    # It is told to leave while the daemon still waits for its host, and has left before the next attempt begins.
    wait_until(
        lambda: f"{jobs['stop']}.saved" in left(first), "the attempt was told to leave", deadline_s=120
    )
    assert len(job("stop")["attempts"]) == 0
    wait_until(lambda: f"{jobs['stop']}.begun" in left(other), "the job runs elsewhere", deadline_s=120)
    running = [line for line in hosts.commands(first).values() if "/var/tmp/go" in line]
    assert len(running) == 1, "the other one runs on"
    wait_until(lambda: f"{jobs['continue']}.begun" in left(other), "both run elsewhere", deadline_s=120)
    hosts.heal(first)
    wait_until(
        lambda: not any("/var/tmp/go" in line for line in hosts.commands(first).values()),
        "the superseded attempt is stopped",
        deadline_s=120,
    )
    hosts.run(other, "touch", "/var/tmp/go")
    for word in jobs:
        ended = wait_until(partial(over, word), f"{word} has ended", deadline_s=60)
        assert ended["status"] == "SUCCEEDED"
        assert len(ended["attempts"]) == 2
