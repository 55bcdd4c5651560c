"""State-change events from a real daemon: none is lost when the receiver is down or the daemon is killed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.acceptance.conftest import OPTIONS
from tests.acceptance.daemon import RunningWindfall, a_definition, a_queue
from tests.waiting import wait_until
from tests.webhook import receiving

ALL = ["SUBMITTED", "RUNNABLE", "STARTING", "RUNNING", "SUCCEEDED"]


def in_file(path: Path, job_id: str) -> list[str]:
    """The states that the file tells of a job, each event once."""
    events = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    seen = {event["id"]: event["detail"]["status"] for event in events if event["detail"]["jobId"] == job_id}
    return list(seen.values())


def submit(batch, name: str, command: str, **more) -> str:
    a_definition(batch, name, command)
    return batch.submit_job(jobName=name, jobQueue="q", jobDefinition=name, **more)["jobId"]


def test_all_events_arrive_in_order_although_the_receiver_was_down_and_the_daemon_was_killed():
    windfall = RunningWindfall(*OPTIONS)
    path, token = windfall.root / "events.jsonl", windfall.root / "token"
    token.write_text("a-secret-token\n")
    token.chmod(0o600)
    with receiving() as receiver:
        receiver.status = 503
        windfall.extra_environment = {
            "WINDFALL_EVENTS_FILE": str(path),
            "WINDFALL_EVENTS_WEBHOOK": receiver.url,
            "WINDFALL_EVENTS_WEBHOOK_TOKEN_FILE": str(token),
        }
        try:
            batch = a_queue(windfall.up())
            good = submit(batch, "good", "true")
            again = submit(batch, "again", "false", retryStrategy={"attempts": 2})
            many = submit(batch, "many", "true", arrayProperties={"size": 3})
            windfall.wait_for([good, again, many])
            wait_until(lambda: receiver.refused, "the receiver to refuse something")
            # What is committed and not delivered must survive this.
            windfall.kill_daemon()
            assert receiver.events == []
            windfall.up()
            receiver.status = 200
            for job_id, last in ((good, "SUCCEEDED"), (again, "FAILED"), (many, "SUCCEEDED")):
                wait_until(
                    lambda it=job_id, last=last: receiver.states_of(it)[-1:] == [last], "the last event"
                )
                wait_until(lambda it=job_id, last=last: in_file(path, it)[-1:] == [last], "the last line")
            for told in (receiver.states_of, lambda job_id: in_file(path, job_id)):
                assert told(good) == ALL
                assert told(again) == [*ALL[:4], "RUNNABLE", "STARTING", "RUNNING", "FAILED"]
                assert (told(many)[:2], told(many)[-1]) == (["SUBMITTED", "PENDING"], "SUCCEEDED")
                for index in range(3):
                    assert told(f"{many}:{index}") == ["RUNNABLE", *ALL[2:]]
            # Events of different jobs may overtake one another.
            _looks_like_eventbridge(next(it for it in receiver.events if good in it["resources"][0]), good)
            assert {it["Authorization"] for it in receiver.headers} == {"Bearer a-secret-token"}
            assert "a-secret-token" not in windfall.log.read_text()
            assert "s3cret" not in windfall.log.read_text()
        finally:
            windfall.close()


def _looks_like_eventbridge(event: dict, job_id: str) -> None:
    assert (event["version"], event["source"], event["detail-type"]) == (
        "0",
        "aws.batch",
        "Batch Job State Change",
    )
    assert (event["account"], event["region"]) == ("123456789012", "us-east-1")
    assert event["resources"] == [f"arn:aws:batch:us-east-1:123456789012:job/{job_id}"]
    assert event["detail"]["jobQueue"].endswith(":job-queue/q")
