"""A job that prints without end: its log stays within the limit, and readers find its beginning and its end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.waiting import wait_until

MIB = 1 << 20
#: Prints 100 times the limit, 64 bytes a line, and waits on the way.
PRINTS = """
import pathlib, sys, time
for part in range(50):
    sys.stdout.write("".join(f"line {part * 32_768 + n:9d} {'.' * 48}\\n" for n in range(32_768)))
    sys.stdout.flush()
    if part in (10, 30):
        pathlib.Path(f"{sys.argv[1]}.{part}").touch()
        while not pathlib.Path(f"{sys.argv[1]}.{part}.on").exists():
            time.sleep(0.05)
    time.sleep(0.02)
"""
LINES = 50 * 32_768


@pytest.fixture
def limited():
    running = RunningWindfall("--gpus", "none", "--job-log-limit", "1m")
    try:
        yield running.up()
    finally:
        running.close()


def events_of(logs: Any, stream: str) -> list[str]:
    """All events, by the pages that a client asks for."""
    said: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = logs.get_log_events(
            logGroupName="/aws/batch/job", logStreamName=stream, startFromHead=True, **token
        )
        said += [event["message"] for event in page["events"]]
        if page["nextForwardToken"] == token.get("nextToken"):
            return said
        token = {"nextToken": page["nextForwardToken"]}


def check(said: list[str]) -> None:
    numbers = [int(line.split()[1]) for line in said if line.startswith("line ")]
    assert (numbers[0], numbers[-1]) == (0, LINES - 1)
    assert len([at for at, (one, two) in enumerate(pairwise(numbers)) if two != one + 1]) == 1
    assert MIB // 2 <= len(numbers) * 64 <= MIB
    (told,) = [line for line in said if "windfall" in line]
    assert "of output are not kept here: the log of an attempt is limited to 1 MiB" in told
    assert not any("\0" in line for line in said)


def test_a_job_that_prints_without_end_keeps_to_the_limit_through_kills(limited):
    batch, logs = a_queue(limited), limited.client("logs")
    go = limited.root / "shared"
    go.mkdir(mode=0o777)
    go.chmod(0o777)
    a_definition(batch, "prints", "python3", "-c", PRINTS, str(go / "at"), memory_mib=256)
    job = batch.submit_job(jobName="prints", jobQueue="q", jobDefinition="prints")["jobId"]
    directory = limited.data / "logs"
    for part, kill in ((10, limited.kill_agent), (30, limited.kill_daemon)):
        wait_until((go / f"at.{part}").exists, "the job has printed a part")
        kill()
        if kill == limited.kill_daemon:
            limited.up()
            logs = limited.client("logs")
        (go / f"at.{part}.on").touch()
    (ended,) = limited.wait_for([job])
    assert ended["status"] == "SUCCEEDED", ended
    (file,) = directory.glob("*.log")
    assert file.stat().st_size >= LINES * 64
    assert file.stat().st_blocks * 512 <= MIB + 64 * 1024
    stream = ended["container"]["logStreamName"]
    check(events_of(logs, stream))
    check(limited.windfall("logs", job).stdout.splitlines())
    newest = logs.get_log_events(logGroupName="/aws/batch/job", logStreamName=stream, limit=3)["events"]
    assert [int(event["message"].split()[1]) for event in newest] == [LINES - 3, LINES - 2, LINES - 1]
    found = logs.filter_log_events(logGroupName="/aws/batch/job", filterPattern='"are not kept here"')[
        "events"
    ]
    assert len(found) == 1


def test_a_job_lowers_its_own_limit_by_a_tag_and_a_wrong_one_is_refused(limited):
    batch = a_queue(limited)
    a_definition(batch, "true", "true")
    refused = limited.windfall("run", "--tag", "windfall:log-limit=lots", "--", "true", check=False)
    assert refused.returncode != 0
    assert "windfall:log-limit must be a size from 1m on, such as 500m, 10g or 1t" in refused.stderr
