"""Events reach a real file and a real HTTP server: whole, in order for each job, and again rather than never."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conformance.store_builders import NOW, a_job
from tests.waiting import wait_until
from tests.webhook import receiving
from windfall.backoff import Pauses
from windfall.control.changes import Changes
from windfall.control.outbox import Destination, EventKind, OutboxEvent
from windfall.daemon import event_delivery
from windfall.daemon.errors import BadSetting
from windfall.daemon.event_delivery import GIVEN_UP_MS, EventDelivery, check_event_settings, destinations_in
from windfall.daemon.event_sinks import Event, EventFile
from windfall.daemon.settings import Settings
from windfall.daemon.webhook import Webhook
from windfall.jobs.states import JobState
from windfall.store.opening import open_store

STATES = (JobState.SUBMITTED, JobState.RUNNABLE, JobState.STARTING, JobState.RUNNING, JobState.SUCCEEDED)


@pytest.fixture
def store(tmp_path):
    store = open_store(str(tmp_path / "windfall.db"))
    yield store
    store.close()


@pytest.fixture
def receiver():
    with receiving() as receiver:
        yield receiver


def a_life(job_id: str, at: int = NOW) -> list[OutboxEvent]:
    return [
        OutboxEvent(f"{job_id}-{number}", EventKind.JOB, at + number, job_id, job=a_job(state, id=job_id))
        for number, state in enumerate(STATES)
    ]


def told_to(store, destinations, *events: OutboxEvent) -> None:
    store.commit(Changes(outbox={(name, it.id): it for name in destinations for it in events}))


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def while_delivering(
    settings: Settings, store, then: Callable[[EventDelivery], Awaitable[None]], now: int = NOW
) -> None:
    async def live() -> None:
        delivery = EventDelivery(settings, store, lambda: now)
        tasks = delivery.start()
        try:
            await then(delivery)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(live())


async def until(condition: Callable[[], object]) -> None:
    await asyncio.to_thread(wait_until, condition, "events to be delivered", 20)


def test_the_file_gets_a_line_for_each_event_and_the_store_forgets_them(tmp_path, store):
    path = tmp_path / "events.jsonl"
    settings = Settings(tmp_path, events_file=str(path))
    told_to(store, destinations_in(settings), *a_life("one"))

    async def more(delivery: EventDelivery) -> None:
        await until(lambda: len(lines(path)) == 5)
        told_to(store, destinations_in(settings), *a_life("two"))
        delivery.wake()
        await until(lambda: len(lines(path)) == 10 and not store.undelivered("file", 1))

    while_delivering(settings, store, more)
    assert [it["detail"]["status"] for it in lines(path)[:5]] == [state.value for state in STATES]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_torn_is_written_again_whole(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"id":"a"}\n{"id":"b","x":"' + b"y" * 200_000)
    outcome = EventFile(path).deliver([Event("b", "job", b'{"id":"b"}')])
    assert (outcome.delivered, outcome.trouble) == (["b"], None)
    assert path.read_bytes() == b'{"id":"a"}\n{"id":"b"}\n'
    path.write_bytes(b'{"id":"torn')
    EventFile(path).deliver([Event("b", "job", b'{"id":"b"}')])
    assert path.read_bytes() == b'{"id":"b"}\n'


def test_a_pipe_is_written_to_like_a_file(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert EventFile(path).deliver([Event("b", "job", b'{"id":"b"}')]).delivered == ["b"]
        assert os.read(reading, 100) == b'{"id":"b"}\n'
    finally:
        os.close(reading)


def test_a_file_that_cannot_be_written_is_a_trouble_and_no_error(tmp_path):
    outcome = EventFile(tmp_path / "no" / "events").deliver([Event("b", "job", b"{}")])
    assert outcome.delivered == []
    assert "cannot open" in outcome.trouble


@pytest.mark.parametrize("status", [500, 404, None])
def test_a_webhook_that_fails_for_a_while_hears_everything_in_order_afterwards(
    tmp_path, store, receiver, monkeypatch, caplog, status
):
    monkeypatch.setattr(event_delivery, "AGAIN", Pauses(0.02, 60.0))
    settings = Settings(tmp_path, events_webhook=receiver.url)
    told_to(store, destinations_in(settings), *a_life("one"), *a_life("two"))
    receiver.status = status

    async def mend(delivery: EventDelivery) -> None:
        await until(lambda: receiver.refused >= 2)
        assert len(store.undelivered("webhook", 99)) == 10, "what is not delivered waits in the store"
        receiver.status = 200
        await until(lambda: not store.undelivered("webhook", 1) and "reach the webhook again" in caplog.text)

    with caplog.at_level(logging.INFO):
        while_delivering(settings, store, mend)
    for job_id in ("one", "two"):
        assert receiver.states_of(job_id) == [state.value for state in STATES]
    assert caplog.text.count("they stay in the store and are tried again") == 1
    assert "s3cret" not in caplog.text


def test_a_job_that_the_webhook_refuses_holds_back_no_other(receiver):
    receiver.statuses["bad"] = 400
    events = [
        Event(f"{n}", job, json.dumps({"id": n, "detail": {"jobId": job}}).encode())
        for n, job in enumerate(["bad", "good", "bad", "good"])
    ]
    webhook = Webhook(receiver.url)
    outcome = webhook.deliver(events)
    webhook.close()
    assert outcome.delivered == ["1", "3"]
    assert "answered 400 to event 0" in outcome.trouble
    assert receiver.refused == 1, "the second event of that job waits for the first"


def test_a_connection_that_the_receiver_has_closed_is_opened_again(receiver):
    webhook = Webhook(receiver.url)
    event = Event("1", "job", b'{"id": 1, "detail": {"jobId": "job"}}')
    receiver.closes = True
    for _ in range(3):
        assert webhook.deliver([event]).delivered == ["1"]
    webhook.close()
    assert "stopping" in webhook.deliver([event]).trouble


def test_the_token_is_sent_and_read_anew_for_each_page(tmp_path, receiver):
    token = tmp_path / "token"
    token.write_text("first\n")
    token.chmod(0o600)
    webhook = Webhook(receiver.url, token)
    event = Event("1", "job", b'{"id": 1, "detail": {"jobId": "job"}}')
    webhook.deliver([event])
    token.write_text("second")
    webhook.deliver([event])
    assert [it["Authorization"] for it in receiver.headers] == ["Bearer first", "Bearer second"]
    token.chmod(0o644)
    outcome = webhook.deliver([event])
    webhook.close()
    assert outcome.delivered == []
    assert "chmod 600" in outcome.trouble
    assert "second" not in outcome.trouble


def test_a_webhook_that_is_closed_while_it_connects_leaves_no_connection_open():
    """The receiver's queue is full at first, so the connection comes about only after the daemon has let go of it."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ThreadPoolExecutor(1) as thread:
        address = server.getsockname()
        with socket.create_connection(address):
            webhook = Webhook(f"http://127.0.0.1:{address[1]}/")
            under_way = thread.submit(webhook.deliver, [Event("1", "job", b"{}")])
            wait_until(lambda: is_connecting_to(address[1]), "it waits for room in the queue")
            webhook.close()
            server.accept()[0].close()
            late, _ = server.accept()
            with late:
                assert late.recv(1) == b"", "it is closed, and nothing was sent"
        assert under_way.result().delivered == []


def is_connecting_to(port: int) -> bool:
    """Whether this host has a connection in the state SYN_SENT to a port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any((row[2].rpartition(":")[2], row[3]) == (f"{port:04X}", "02") for row in rows)


def test_an_event_is_given_up_after_a_day_and_said_to_be(tmp_path, store, receiver, monkeypatch, caplog):
    monkeypatch.setattr(event_delivery, "AGAIN", Pauses(0.02, 60.0))
    settings = Settings(tmp_path, events_webhook=receiver.url)
    told_to(store, destinations_in(settings), *a_life("old"), *a_life("young", NOW + 2_000))
    receiver.status = 503

    async def forgotten(delivery: EventDelivery) -> None:
        await until(lambda: len(store.undelivered("webhook", 99)) == 5)

    while_delivering(settings, store, forgotten, now=NOW + GIVEN_UP_MS + 1_000)
    assert {it.subject for it in store.undelivered("webhook", 99)} == {"young"}
    assert caplog.text.count("of job old is dropped after a day") == 5


def test_many_events_are_read_page_by_page(tmp_path, store, monkeypatch):
    path, settings = tmp_path / "events.jsonl", Settings(tmp_path, events_file=str(tmp_path / "events.jsonl"))
    monkeypatch.setattr(event_delivery, "PAGE", 7)
    told_to(store, destinations_in(settings), *(it for number in range(8) for it in a_life(f"job-{number}")))

    async def all_there(delivery: EventDelivery) -> None:
        await until(lambda: len(lines(path)) == 40)

    while_delivering(settings, store, all_there)
    for number in range(8):
        found = [it["id"] for it in lines(path) if it["detail"]["jobId"] == f"job-{number}"]
        assert found == [f"job-{number}-{n}" for n in range(5)]


def test_what_waits_for_a_destination_that_is_no_more_is_forgotten(tmp_path, store, caplog):
    told_to(store, [Destination.WEBHOOK], *a_life("one"))

    async def nothing(delivery: EventDelivery) -> None:
        assert store.undelivered("webhook", 9) == []

    while_delivering(Settings(tmp_path), store, nothing)
    assert "dropped 5 events" in caplog.text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"events_webhook_token_file": "/x"}, "set events_webhook too"),
        ({"events_webhook": "http://a/", "events_webhook_token_file": "/no/such/file"}, "No such file"),
        ({"events_file": "/no/such/place/events"}, "does not exist; make it first"),
    ],
)
def test_settings_that_could_never_work_are_refused_at_start(tmp_path, changes, text):
    with pytest.raises(BadSetting, match=text):
        check_event_settings(Settings(tmp_path, **changes))


def test_a_token_that_others_can_read_is_refused_at_start(tmp_path):
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o640)
    settings = Settings(tmp_path, events_webhook="https://a/", events_webhook_token_file=str(token))
    with pytest.raises(BadSetting, match="can be read by others"):
        check_event_settings(settings)
    token.chmod(0o600)
    check_event_settings(settings)
