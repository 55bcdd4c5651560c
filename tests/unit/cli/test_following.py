"""Logs are read whole, from the end and as they grow; a job is watched to its end and through a restart."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.fake_daemon import Error
from windfall.cli.errors import NoDaemon, UnknownJob
from windfall.cli.log_reading import LogFollower, log_group, read_all, read_tail, streams
from windfall.cli.watching import PATIENCE_S, watch

ID = "0b5ae4ae-4b5c-4f5e-9d3c-2f6a1c0d9e11"


class FakeLogs:
    """GetLogEvents over lists of lines, two to a page, with tokens as CloudWatch gives them."""

    def __init__(self, **lines: list[str]) -> None:
        self.lines = lines

    def __call__(self, asked):
        lines = self.lines.get(asked["logStreamName"])
        if lines is None:
            return Error("ResourceNotFoundException", "The specified log stream does not exist.")
        size = min(2, asked["limit"])
        token = asked.get("nextToken")
        if token is None:
            begin = 0 if asked["startFromHead"] else max(0, len(lines) - size)
        else:
            place = int(token[2:])
            begin = place if token[0] == "f" else max(0, place - size)
        end = min(len(lines), begin + size)
        if token is not None and token[0] == "b":
            end = int(token[2:])
        return {
            "events": [{"timestamp": 1000, "message": line} for line in lines[begin:end]],
            "nextForwardToken": f"f/{end}",
            "nextBackwardToken": f"b/{begin}",
        }


def a_job(status="RUNNING", *, ended=(), current=None, **members):
    attempts = [{"container": {"logStreamName": stream}, "stoppedAt": 1} for stream in ended]
    latest = current or (ended[-1] if ended else None)
    return {
        "jobId": ID,
        "jobName": "train",
        "status": status,
        "attempts": attempts,
        "container": {"logStreamName": latest} if latest else {},
        **members,
    }


@pytest.fixture
def said():
    return []


@pytest.fixture
def follower(said):
    return LogFollower(lambda events: said.extend(event["message"] for event in events))


def test_streams_are_in_the_order_of_attempts():
    assert streams(a_job(ended=["a", None], current="c")) == ["a", None, "c"]
    assert streams(a_job("FAILED", ended=["a", "b"])) == ["a", "b"]
    assert streams(a_job("RUNNABLE")) == []


def test_the_definitions_own_log_group_is_read():
    job = a_job()
    assert log_group(job) == "/aws/batch/job"
    job["container"]["logConfiguration"] = {"logDriver": "awslogs", "options": {"awslogs-group": "mine"}}
    assert log_group(job) == "mine"


def test_a_stream_is_read_to_its_end(daemon, client):
    daemon.answers["GetLogEvents"] = FakeLogs(s=list("abcde"))
    assert [event["message"] for page in read_all(client, "g", "s") for event in page] == list("abcde")
    assert list(read_all(client, "g", "unknown")) == []


@pytest.mark.parametrize(("count", "lines"), [(1, "e"), (3, "cde"), (5, "abcde"), (99, "abcde")])
def test_the_tail(daemon, client, count, lines):
    daemon.answers["GetLogEvents"] = FakeLogs(s=list("abcde"))
    events, token = read_tail(client, "g", "s", count)
    assert "".join(event["message"] for event in events) == lines
    assert token == "f/5"


def test_every_line_once_attempt_after_attempt(daemon, client, follower, said):
    logs = FakeLogs(one=["a"])
    daemon.answers["GetLogEvents"] = logs
    assert not follower.catch_up(client, a_job("RUNNABLE"))
    assert follower.catch_up(client, a_job(current="one"))
    assert not follower.catch_up(client, a_job(current="one"))
    logs.lines["one"] += ["b", "c", "d"]
    follower.catch_up(client, a_job("RUNNABLE", ended=["one"]))
    follower.catch_up(client, a_job(ended=["one"], current="two"))
    logs.lines["two"] = ["e"]
    follower.catch_up(client, a_job("SUCCEEDED", ended=["one", "two"]))
    assert said == list("abcde")


def test_a_watch_ends_after_one_more_look(daemon, client):
    states = iter(["RUNNABLE", "RUNNING", "RUNNING", "SUCCEEDED"])
    daemon.answers["describejobs"] = lambda _: {"jobs": [a_job(next(states))]}
    seen = []
    job = watch(
        client,
        None,
        ID,
        lambda _, job: bool(seen.append(job["status"])),
        lambda job: job["status"] == "SUCCEEDED",
        sleep=lambda _: None,
    )
    assert seen == ["RUNNABLE", "RUNNING", "RUNNING", "SUCCEEDED"]
    assert job["status"] == "SUCCEEDED"


def test_a_daemon_that_comes_back_elsewhere_is_found(daemon, client, capsys):
    daemon.answers["describejobs"] = {"jobs": [a_job("SUCCEEDED")]}
    client.endpoint = client.endpoint.__class__("http://127.0.0.1:9", "k", "s")
    job = watch(client, daemon.directory, ID, lambda *_: False, lambda _: True, sleep=lambda _: None)
    assert job["status"] == "SUCCEEDED"
    assert client.endpoint.url == daemon.url
    assert "is away; the job goes on" in capsys.readouterr().err


def test_patience_has_an_end(client, tmp_path):
    client.endpoint = client.endpoint.__class__("http://127.0.0.1:9", "k", "s")
    times = iter([0.0, PATIENCE_S / 2, PATIENCE_S + 1])
    with pytest.raises(NoDaemon, match=f"windfall logs -f {ID}"):
        watch(
            client,
            tmp_path / "none",
            ID,
            lambda *_: False,
            lambda _: True,
            clock=lambda: next(times),
            sleep=lambda _: None,
        )


def test_a_job_that_was_purged_meanwhile(daemon, client):
    daemon.answers["describejobs"] = {"jobs": []}
    with pytest.raises(UnknownJob, match="is gone"):
        watch(client, None, ID, lambda *_: False, lambda _: False)


def test_logs_prints_the_latest_attempt_or_the_one_asked_for(daemon, windfall):
    daemon.answers["describejobs"] = {"jobs": [a_job("FAILED", ended=["one", "two"])]}
    daemon.answers["GetLogEvents"] = FakeLogs(one=["first"], two=["a", "b", "grüezi"])
    assert windfall("logs", ID).out == "a\nb\ngrüezi\n"
    assert windfall("logs", ID, "--attempt", "1").out == "first\n"
    assert windfall("logs", ID, "--tail", "1").out == "grüezi\n"
    assert windfall("logs", "-f", ID).out == "a\nb\ngrüezi\n"
    assert windfall("logs", "-f", "--tail", "2", ID).out == "b\ngrüezi\n"
    assert windfall("logs", "-f", "--tail", "0", ID).out == ""
    assert windfall("logs", "-f", "--attempt", "1", ID).out == "first\n"
    assert windfall("logs", "--timestamps", "--attempt", "1", ID).out.endswith(":01 first\n")
    events = json.loads(windfall("logs", ID, "--json").out)["events"]
    assert [event["message"] for event in events] == ["a", "b", "grüezi"]
    assert windfall("logs", ID, "--attempt", "3").err.startswith(
        f"windfall: {ID} has no attempt 3; it has had 2"
    )


def test_logs_of_a_job_that_has_none(daemon, windfall):
    daemon.answers["describejobs"] = {"jobs": [a_job("RUNNABLE")]}
    ran = windfall("logs", ID)
    assert (ran.code, ran.out) == (1, "")
    assert f"is RUNNABLE and has no log; see `windfall why {ID}`" in ran.err


def test_an_array_has_no_log_of_its_own(daemon, windfall):
    daemon.answers["describejobs"] = {"jobs": [a_job("PENDING", arrayProperties={"size": 4})]}
    ran = windfall("logs", ID)
    assert ran.code == 2
    assert f"name one, such as {ID}:0" in ran.err
