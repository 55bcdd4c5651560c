"""Watch over a real daemon: what happens to a job reaches the page by itself, and streams end when they must."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

from tests.acceptance.daemon import a_definition, a_queue
from tests.acceptance.page_client import a_key, ask, signed_headers, the_session


class Stream:
    """What a browser does with Watch."""

    def __init__(self, windfall, session, topics, **params):
        body = json.dumps({"topics": topics, **params}).encode()
        path = "/windfall/v1/Watch"
        signed = signed_headers(windfall, session, path, body)
        parts = urlsplit(windfall.url)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        self.connection.request("POST", path, body, signed)
        self.answer = self.connection.getresponse()

    def next(self):
        """The next event as (name, data, id)."""
        fields = {}
        while True:
            line = self.answer.readline().decode().rstrip("\n")
            if not line and "event" in fields:
                return fields["event"], json.loads(fields["data"]), fields.get("id")
            name, _, text = line.partition(": ")
            if name:
                fields[name] = text

    def until(self, wanted):
        """The first event that is wanted."""
        while True:
            event = self.next()
            if wanted(*event[:2]):
                return event

    def close(self):
        self.answer.close()
        self.connection.close()


def test_a_job_reaches_the_page_by_itself_from_its_submission_to_its_end(windfall):
    batch = a_queue(windfall, "watched")
    session = the_session(windfall)
    stream = Stream(windfall, session, ["counts", "now", "alarms", "queues"])
    assert stream.answer.status == 200
    assert stream.answer.getheader("content-type") == "text/event-stream; charset=utf-8"
    first = {stream.next()[0] for _ in range(4)}
    assert first == {"counts", "now", "alarms", "queues"}
    a_definition(batch, "short", "sh", "-c", "echo hello")
    job_id = batch.submit_job(jobName="short", jobQueue="watched", jobDefinition="short")["jobId"]
    stream.until(
        lambda name, data: name == "counts" and data["counts"].get("watched", {}).get("SUCCEEDED") == 1
    )
    stream.close()
    other = Stream(windfall, session, [f"job:{job_id}", f"log:{job_id}", "rows", "job:none"], rows=[job_id])
    events = {name: data for name, data, _ in (other.next() for _ in range(4))}
    assert events[f"job:{job_id}"]["row"]["state"] == "SUCCEEDED"
    assert events[f"log:{job_id}"]["size"] == len("hello\n")
    assert events["rows"]["rows"][0]["jobName"] == "short"
    assert events["gone"] == {"topic": "job:none"}
    other.close()
    status, window = ask(windfall, session, "LogWindow", jobId=job_id)
    assert (status, [line[2] for line in window["lines"]]) == (200, ["hello"])


def test_a_revoked_key_ends_its_streams_and_a_client_that_leaves_frees_its_place(fresh):
    windfall = fresh("--gpus", "none")
    key = a_key(windfall, "--role", "read")
    session = the_session(windfall, key=key)
    for _ in range(20):  # More than one key may have at once.
        stream = Stream(windfall, session, ["counts"])
        if stream.answer.status == 200:
            stream.next()
        stream.close()

    def opens():
        again = Stream(windfall, session, ["counts"])
        if again.answer.status != 200:
            again.close()
            return None
        return again

    last = opens()
    while last is None:  # The places of those who left are free as soon as the daemon notices.
        last = opens()
    last.next()
    windfall.windfall("keys", "revoke", key["AWS_ACCESS_KEY_ID"])
    assert last.until(lambda name, _: name == "end")[1] == {"reason": "key revoked"}
    assert last.answer.read() == b""
    last.close()


def test_the_daemon_stops_with_pages_open(fresh):
    windfall = fresh("--gpus", "none")
    stream = Stream(windfall, the_session(windfall), ["counts"])
    stream.next()
    windfall.windfall("down")
    assert stream.until(lambda name, _: name == "end")[1] == {"reason": "daemon stops"}
    stream.close()
