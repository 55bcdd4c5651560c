"""Screens as text at 80, 100 and 140 columns: no line is wider than the terminal, names stay usable, parts add up."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest
from rich.cells import cell_len

from tests.unit.cli.test_following import ID
from windfall.cli.notes import wrapped

WIDTHS = [80, 100, 140]
LONG_NAME = "python3-train-py-with-a-longer-name"
PARTS = ("useful", "checkpoint", "lost", "startUp", "idle", "waiting")
DETAIL = {
    "jobId": ID,
    "jobName": LONG_NAME,
    "jobQueue": "arn:aws:batch:us-east-1:123456789012:job-queue/windfall-spot",
    "jobDefinition": "arn:aws:batch:us-east-1:123456789012:job-definition/windfall-run:1",
    "status": "RUNNING",
    "statusReason": "",
    "createdAt": 1_700_000_000_000,
    "startedAt": 1_700_000_001_000,
    "retryStrategy": {"attempts": 1},
    "tags": {"windfall:checkpoint": "true"},
    "container": {"command": ["python3", "train.py", "--data", "/a/long/path/to/some/data/" + "x" * 60]},
    "attempts": [
        {
            "startedAt": 1_700_000_001_000,
            "stoppedAt": 1_700_000_004_000,
            "statusReason": "Host EC2 (instance i-388c36a625ccbfa8b) terminated.",
            "container": {"exitCode": 143, "reason": "words that go on " * 8},
        }
    ],
}


def an_attempt(number: int) -> dict[str, object]:
    mark = {"step": 424, "name": "m", "bytes": 164_000, "stateAt": 1_700_000_000_000}
    return {
        "number": number,
        "instance": "i-388c36a625ccbfa8b",
        "instanceType": "p4d.24xlarge",
        "market": "on-demand",
        "restored": mark,
        "checkpoint": mark,
        "stoppedAt": None,
        "stopWords": "a job on demand takes its place back",
        "doing": None,
        "alarm": None,
        "commit": None,
        "deadlineAt": None,
        "progress": {"step": 430},
    }


def a_row(key: str | None, hours: float) -> dict[str, object]:
    ms = {part: round(hours * 3_600_000 / (number + 1)) for number, part in enumerate(PARTS)}
    money = {"paidUsd": 1.25, "onDemandUsd": 4.5, "savedPercent": 72.2, "unpricedMs": 0}
    return {
        "key": key,
        "name": None,
        "jobs": 3,
        "attempts": 3,
        "ms": ms,
        "usd": {},
        "gpuMs": 0,
        "vcpuMs": 0,
    } | money


@pytest.fixture
def screen(daemon, windfall, monkeypatch):
    """`screen(80, "jobs")` is what stands on a terminal of that width; what is said beside it comes last."""

    def look(width: int, *arguments: str) -> tuple[list[str], str]:
        monkeypatch.setenv("COLUMNS", str(width))
        ran = windfall(*arguments)
        assert ran.code == 0, ran.err
        lines = ran.out.splitlines()
        assert all(cell_len(line) <= width for line in lines), "\n".join(lines)
        assert all(line == line.rstrip() for line in lines)
        return lines, ran.err

    return look


@pytest.mark.parametrize("width", WIDTHS)
def test_jobs_shows_names_that_can_be_used(daemon, screen, width):
    names = [LONG_NAME, "windfall", "a"]
    jobs = [
        {
            "jobId": f"{number}b5ae4ae-4b5c-4f5e-9d3c-2f6a1c0d9e11",
            "jobName": name,
            "status": "FAILED",
            "createdAt": 4_000_000_000_000,
            "startedAt": 4_000_000_000_000,
            "stoppedAt": 4_000_000_100_000,
            "container": {"exitCode": 1, "reason": "words that go on " * 8},
        }
        for number, name in enumerate(names)
    ]
    daemon.answers["describejobqueues"] = {"jobQueues": [{"jobQueueName": "windfall-spot"}]}
    daemon.answers["listjobs"] = lambda asked: {
        "jobSummaryList": jobs if asked["jobStatus"] == "FAILED" else []
    }
    (titles, *lines), said = screen(width, "jobs")
    assert [line.split()[1] for line in lines] == names
    left_out = set(re.findall(r"[A-Z]{3,}", said))
    assert {"JOB", "NAME", "QUEUE", "STATE", "CREATED", "RAN", "NOTE"} == left_out | set(titles.split())


@pytest.mark.parametrize("width", WIDTHS)
def test_describe_folds_what_must_be_whole(daemon, screen, width):
    daemon.answers["describejobs"] = {"jobs": [DETAIL]}
    daemon.answers["Attempts"] = {"checkpointUri": "file:///d", "attempts": [an_attempt(1), an_attempt(2)]}
    lines, said = screen(width, "describe", ID)
    text = " ".join(" ".join(lines).split())
    assert "its instance i-388c36a625ccbfa8b was taken away or lost" in text
    assert text.count("words that go on") == 8
    assert text.count("a job on demand takes its place back; at step 430") == 2
    for title, value in (("TYPE", "p4d.24xlarge"), ("MARKET", "on-demand"), ("BEGAN WITH", "step 424")):
        assert value in text or title in said


@pytest.mark.parametrize("width", WIDTHS)
def test_cost_adds_up_and_tells_queues_apart(daemon, screen, width):
    rows = [a_row("windfall", 30), a_row("windfall-spot", 7), a_row("windfall-spot-other-lab", 1)]
    total = a_row(None, 38) | {"paidUsd": 3.75, "onDemandUsd": 13.5}
    daemon.answers["Cost"] = {"by": "queue", "rows": rows, "total": total, "truncated": False, "now": 0}
    (titles, *lines), said = screen(width, "cost")
    assert [line.split()[0] for line in lines] == [*(row["key"] for row in rows), "total"]
    shown = re.findall(r"(JOBS|(?:USEFUL|CHECKPOINT|LOST|START-UP|IDLE|WAITING|OTHER) h)", titles)
    first = 1 + ("JOBS" in titles)
    for row, line in zip(rows, lines, strict=False):
        parts = line.split()[first : len(shown) + 1]
        assert sum(float(part) for part in parts) == pytest.approx(
            sum(row["ms"].values()) / 3_600_000, abs=0.05
        )
    assert ("OTHER" in titles) == ("other: checkpoint, start-up, idle, waiting" in said)


@pytest.mark.parametrize("width", WIDTHS)
def test_why_wraps_at_words(daemon, screen, width):
    reason = {"code": "c", "text": "word " * 60}
    daemon.answers["Why"] = {
        "jobId": ID,
        "jobName": LONG_NAME,
        "state": "RUNNABLE",
        "reasons": [reason],
        "changes": ["word " * 40],
        "expectedAt": None,
    }
    lines, _ = screen(width, "why", ID)
    assert sum(line.split().count("word") for line in lines) == 100


def test_notes_wrap_at_words_and_keep_long_words_whole():
    path = "/a/path/" + "x" * 90
    lines = wrapped(
        f"windfall: the directory {path} is not there; make it first, or name another with --data DIR", 80
    )
    assert any(path in line for line in lines)
    assert all(len(line) < 80 or path in line for line in lines)
    assert " ".join(line.strip() for line in lines).endswith("or name another with --data DIR")


def test_an_error_on_a_terminal_is_wrapped(tmp_path):
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "windfall.cli", "status", "--data", str(tmp_path / "none")]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("WINDFALL", "AWS"))
    }
    ran = subprocess.run(command, stderr=follower, env=environment | {"COLUMNS": "60"}, check=False)
    os.close(follower)
    said = os.read(leader, 10_000).decode()
    os.close(leader)
    assert ran.returncode == 1
    assert "start one with" in " ".join(said.split())
    assert all(len(line) < 60 or str(tmp_path) in line for line in said.splitlines())
