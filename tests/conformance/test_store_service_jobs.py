"""Service jobs in both stores: as they were given, in pages, live ones at a start, and old ones gone."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from tests.conformance.store_builders import NOW
from windfall.control.changes import Changes, Purge
from windfall.control.ports import ServiceJobFilter
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.retry import Action, ExitRule, RetryStrategy
from windfall.jobs.service_jobs import ServiceAttempt, ServiceJob, ServiceState
from windfall.store.errors import BadPosition

QUEUE = QueueName("services")


def a_service_job(name: str = "train", at: int = NOW, **more) -> ServiceJob:
    return ServiceJob(
        JobId(str(uuid.uuid4())), name, more.pop("queue", QUEUE), '{"a": "ü"}', created_at=at, **more
    )


def a_round(*jobs: ServiceJob, **more) -> Changes:
    return Changes(service_jobs={job.id: job for job in jobs}, **more)


def names(store, limit: int = 100, **wanted) -> list[str]:
    return [job.name for job in pages(store, limit, **wanted)]


def pages(store, limit: int, between=lambda: None, **wanted) -> list[ServiceJob]:
    found, after = [], None
    while True:
        page = store.list_service_jobs(ServiceJobFilter(QUEUE, **wanted), limit, after)
        found += page.jobs
        after = page.next_after
        if after is None:
            return found
        assert len(page.jobs) == limit
        between()


def test_a_service_job_comes_back_as_it_was_given(store):
    attempts = [
        ServiceAttempt(
            "AWSBatcha", JobId("training-AWSBatcha"), {"ml.g5.xlarge": 2.0}, NOW, NOW + 1, NOW + 2
        ),
        ServiceAttempt("AWSBatchb", scheduled_at=NOW + 3, leaves_for=JobId("x"), leaves_because="for x"),
    ]
    job = a_service_job(
        state=ServiceState.SCHEDULED,
        priority=7,
        quota_share="team",
        preemptions_max=0,
        timeout_s=60,
        retry=RetryStrategy(3, (ExitRule(Action.RETRY, on_status_reason="Received*"),)),
        client_token="t",
        tags={"a": "b"},
        region="eu-west-1",
        instances={"ml.g5.xlarge": 2},
        attempts=attempts,
        trainings=2,
        promised=True,
    )
    store.commit(a_round(job))
    assert store.service_jobs([job.id]) == [job]
    later = replace(job, state=ServiceState.SUCCEEDED, stopped_at=NOW + 9)
    store.commit(a_round(later))
    assert store.service_jobs([JobId("nobody"), job.id, JobId("\ud800")]) == [later]


def test_live_ones_are_loaded_in_the_order_of_their_coming(store, place):
    jobs = [a_service_job(f"j{n}", order=n) for n in range(4)]
    store.commit(a_round(*jobs[:3]))
    store.commit(a_round(replace(jobs[1], state=ServiceState.FAILED, stopped_at=NOW), jobs[3]))
    store.commit(a_round(replace(jobs[0], state=ServiceState.RUNNING)))
    assert [job.name for job in place.reopened().load().service_jobs] == ["j0", "j2", "j3"]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_are_newest_first_and_nothing_shifts_them(store, limit):
    jobs = [a_service_job(f"j{n}", NOW + n // 3) for n in range(8)]
    store.commit(a_round(*jobs))

    def arrives() -> None:
        store.commit(a_round(a_service_job("late", NOW + 99)))

    assert [job.name for job in pages(store, limit, arrives)] == [f"j{n}" for n in reversed(range(8))]


def test_a_page_is_filled_past_what_a_filter_does_not_mean(store):
    jobs = [a_service_job("wanted" if n % 700 == 3 else f"j{n}", NOW + n) for n in range(2200)]
    store.commit(a_round(*jobs))
    assert names(store, 2, name="WANTED") == ["wanted"] * 4
    assert names(store, 3, name="want", name_is_prefix=True) == ["wanted"] * 4


def test_filters(store):
    store.commit(
        a_round(
            a_service_job("one", NOW, share="a"),
            a_service_job("Two", NOW + 1, state=ServiceState.RUNNING, quota_share="q"),
            a_service_job("three", NOW + 2, state=ServiceState.FAILED, share="a"),
            a_service_job("other", queue=QueueName("another")),
        )
    )
    assert names(store) == ["three", "Two", "one"]
    assert names(store, states=(ServiceState.RUNNING, ServiceState.FAILED)) == ["three", "Two"]
    assert names(store, states=()) == []
    assert names(store, name="t", name_is_prefix=True) == ["three", "Two"]
    assert names(store, name="two") == ["Two"]
    assert names(store, share="a", states=(ServiceState.FAILED,)) == ["three"]
    assert names(store, quota_share="q") == ["Two"]
    assert names(store, created_before=NOW + 1) == ["one"]
    assert names(store, created_after=NOW + 1) == ["three"]


def test_a_position_that_no_page_gave_is_refused(store):
    with pytest.raises(BadPosition):
        store.list_service_jobs(ServiceJobFilter(QUEUE), 10, "nonsense")


def test_old_ones_go_a_few_at_a_time(store):
    ended = [a_service_job(f"j{n}", state=ServiceState.SUCCEEDED, stopped_at=NOW + n) for n in range(4)]
    live = a_service_job("live", NOW - 1000)
    store.commit(a_round(*ended, live))
    store.commit(Changes(purge=Purge(NOW + 3, 2)))
    assert names(store) == ["j3", "j2", "live"]
    store.commit(Changes(purge=Purge(NOW + 3, 2)))
    assert names(store) == ["j3", "live"]
