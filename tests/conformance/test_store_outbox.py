"""Events wait in the store in their order until their destination has heard them; jobs are found by their tokens."""

from __future__ import annotations

from tests.conformance.store_builders import NOW, a_job, a_round, an_attempt
from windfall.control.changes import Changes
from windfall.control.outbox import EventKind, OutboxEvent
from windfall.control.ports import JobFilter
from windfall.jobs.states import JobState


def an_event(number: int, subject: str = "job") -> OutboxEvent:
    job = a_job(JobState.RUNNING, name="tränieren \u2603")
    job.attempts = [an_attempt(job)]
    return OutboxEvent(f"event-{number}", EventKind.JOB, NOW + number, subject, job=job)


def a_round_telling(*events: OutboxEvent, to: str = "file") -> Changes:
    return Changes(outbox={(to, it.id): it for it in events})


def test_events_come_back_whole_and_in_their_order_also_after_a_restart(place):
    events = [an_event(number) for number in (5, 3, 9, 1)]
    store = place.open()
    store.commit(a_round_telling(*events[:2]))
    store.commit(a_round_telling(*events[2:]))
    assert store.undelivered("file", 10) == events
    assert place.reopened().undelivered("file", 3) == events[:3]


def test_what_was_heard_is_gone_and_what_comes_later_stays_behind(place):
    store = place.open()
    first, second, third = (an_event(number) for number in range(3))
    store.commit(a_round_telling(first, second))
    store.delivered("file", [first.id])
    store.commit(a_round_telling(third))
    assert store.undelivered("file", 10) == [second, third]
    store.delivered("file", [second.id, third.id, "nobody"])
    store.delivered("file", [])
    assert store.undelivered("file", 10) == []


def test_a_round_that_is_committed_twice_tells_nothing_twice(place):
    store = place.open()
    round_ = a_round_telling(an_event(1), an_event(2))
    store.commit(round_)
    store.commit(round_)
    assert len(store.undelivered("file", 10)) == 2


def test_each_destination_hears_at_its_own_pace_and_is_forgotten_alone(place):
    store, event = place.open(), an_event(1)
    store.commit(a_round_telling(event))
    store.commit(a_round_telling(event, to="webhook"))
    store.delivered("file", [event.id])
    assert (store.undelivered("file", 9), store.undelivered("webhook", 9)) == ([], [event])
    assert store.forget_undelivered(["webhook"]) == 0
    assert store.forget_undelivered(["file"]) == 1
    assert store.undelivered("webhook", 9) == []


def test_jobs_are_found_by_the_consumable_resources_that_they_name(place):
    store = place.open()
    one = a_job(name="one", consumables=(("licence", 1), ("seat_1", 2)))
    two = a_job(JobState.RUNNING, name="two", consumables=(("licence-x", 1),))
    three = a_job(name="three", queue="other", consumables=(("licence", 1),))
    store.commit(a_round(one, two, three, a_job(name="plain")))

    def found(**wanted) -> list[str]:
        return [job.submission.name for job in store.list_jobs(JobFilter(**wanted), 10, None).jobs]

    assert found(consumable="licence") == ["three", "one"]
    assert found(consumable="licence", name="on", name_is_prefix=True) == ["one"]
    assert found(consumable="licence-x", states=(JobState.RUNNABLE,)) == []
    assert found(consumable="licence-x") == ["two"]
    assert found(consumable="seat%1") == found(consumable="seat") == []
    page = store.list_jobs(JobFilter(consumable="licence"), 1, None)
    assert [job.submission.name for job in page.jobs] == ["three"]
    assert store.list_jobs(JobFilter(consumable="licence"), 1, page.next_after).jobs == [one]
