"""Tenants in the store: each is listed, counted and found by itself, at a cost that the others do not raise."""

from __future__ import annotations

import pytest

from tests.conformance.store_builders import NOW, a_child, a_job, a_round, an_array
from tests.conformance.test_store_migrations import asked, known
from windfall.control.changes import Changes, LogStream
from windfall.control.ports import JobFilter, ServiceJobFilter
from windfall.jobs.service_jobs import ServiceJob
from windfall.jobs.states import FAILED, PENDING, RUNNABLE, SUCCEEDED
from windfall.jobs.submitters import Submitter
from windfall.schedules.schedule import Schedule, ScheduleGroup, Target, Tick

TENANTS = ("default", "vision", "vision.2", "visio")


def of(tenant: str) -> dict[str, Submitter]:
    return {"submitter": Submitter(tenant)}


def names(store, **wanted) -> list[str]:
    return [job.submission.name for job in store.list_jobs(JobFilter(**wanted), 100, None).jobs]


@pytest.fixture
def jobs(store):
    made = {
        tenant: [
            a_job(state, queue=queue, name=f"{tenant}-{queue}-{state}", **of(tenant))
            for queue in ("q", "r")
            for state in (RUNNABLE, SUCCEEDED)
        ]
        for tenant in TENANTS
    }
    store.commit(a_round(*(job for own in made.values() for job in own)))
    return made


@pytest.mark.parametrize("tenant", TENANTS)
def test_a_tenant_has_pages_of_its_own(store, jobs, tenant):
    own = [job.submission.name for job in reversed(jobs[tenant])]
    assert names(store, tenant=tenant) == own
    assert names(store, tenant=tenant, queue="q") == own[2:]
    assert names(store, tenant=tenant, queues=("r", "q", "s")) == own
    assert names(store, tenant=tenant, queue="q", states=(SUCCEEDED,)) == [f"{tenant}-q-SUCCEEDED"]
    assert names(store, tenant=tenant, queue="q", name=f"{tenant}-Q", name_is_prefix=True) == own[2:]
    assert names(store, tenant=tenant, queue="s") == []
    first = store.list_jobs(JobFilter(tenant=tenant), 3, None)
    rest = store.list_jobs(JobFilter(tenant=tenant), 3, first.next_after)
    assert [job.submission.name for job in (*first.jobs, *rest.jobs)] == own
    assert first.jobs[0].submission.queue == "r"


def test_without_a_tenant_all_are_listed(store, jobs):
    everything = sorted(job.submission.name for own in jobs.values() for job in own)
    assert sorted(names(store)) == everything
    assert sorted(names(store, queue="q")) == [name for name in everything if "-q-" in name]
    assert names(store, tenant="nobody") == []


def test_a_tenant_s_jobs_are_counted_by_themselves_whatever_becomes_of_them(store, jobs):
    assert store.counts("vision") == {(q, s): 1 for q in ("q", "r") for s in (RUNNABLE, SUCCEEDED)}
    assert store.counts() == {(q, s): 4 for q in ("q", "r") for s in (RUNNABLE, SUCCEEDED)}
    waiting = jobs["vision"][0]
    waiting.state, waiting.stopped_at = FAILED, NOW
    store.commit(a_round(waiting))
    assert store.counts("vision")["q", FAILED] == 1
    assert ("q", FAILED) not in store.counts("default")
    store.commit(Changes(removed_jobs={waiting.id}))
    assert ("q", FAILED) not in store.counts("vision")
    assert store.counts("nobody") == {}


def test_a_text_finds_jobs_of_the_tenant_alone(store):
    own = a_job(name="train", id="aaaa-1", **of("vision"))
    other = a_job(name="train", id="aaaa-2")
    array = an_array(2, name="array", id="bbbb", **of("vision"))
    store.commit(a_round(own, other, array, a_child(array, 1)))
    assert store.find_job("train", "vision") == store.find_job("aaaa", "vision") == [own.id]
    assert store.find_job("train", "default") == store.find_job("aaaa", "default") == [other.id]
    assert store.find_job("bbbb:1", "vision") == ["bbbb:1"]
    for text in ("bbbb", "bbbb:1", "bbbb:", "aaaa-1", "array"):
        assert store.find_job(text, "default") == store.find_job(text, "visio") == []
    assert set(store.find_job("aaaa")) == {own.id, other.id}


def test_service_jobs_are_listed_by_tenant(store):
    def submitted(job_id: str, tenant: str) -> ServiceJob:
        return ServiceJob(job_id, "n", "q", "{}", created_at=NOW, submitter=Submitter(tenant))

    store.commit(
        Changes(service_jobs={it.id: it for it in (submitted("a", "default"), submitted("b", "vision"))})
    )

    def listed(tenant: str | None) -> list[str]:
        return sorted(
            job.id for job in store.list_service_jobs(ServiceJobFilter("q", tenant=tenant), 10, None).jobs
        )

    assert (listed("default"), listed("vision"), listed(None), listed("x")) == (["a"], ["b"], ["a", "b"], [])


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_page_costs_no_more_for_the_jobs_of_others(store):
    """Counted in steps of the database's own machine, which no other program can slow down."""
    few = [a_job(SUCCEEDED, name="few", **of("vision")) for _ in range(10)]
    store.commit(a_round(*few))
    own = JobFilter(queue="q", tenant="vision", states=(SUCCEEDED,))
    questions = [own, JobFilter(tenant="vision"), JobFilter(queue="q", tenant="vision", name="few")]
    before = [_steps(store, wanted) for wanted in questions]
    store.commit(a_round(*(a_job(SUCCEEDED, name="few") for _ in range(5_000))))
    store.commit(a_round(*(a_job(SUCCEEDED, name="few", **of("visio")) for _ in range(5_000))))
    after = [_steps(store, wanted) for wanted in questions]
    assert [most for most, least in zip(after, before, strict=True) if most > 2 * least + 200] == []


def _steps(store, wanted: JobFilter) -> int:
    store._database._readers.forget()
    connection = store._database._readers._connect()
    taken = [0]

    def step() -> int:
        taken[0] += 1
        return 0

    connection.set_progress_handler(step, 1)
    store._database._readers._idle.append(connection)
    assert len(store.list_jobs(wanted, 100, None).jobs) == 10
    connection.set_progress_handler(None, 1)
    return taken[0]


def test_what_earlier_versions_kept_comes_to_its_tenant(place):
    """Records with a submitter, in columns and keys that did not say the tenant."""
    store = place.open(known(place)[:7])
    jobs = [a_job(SUCCEEDED, name=f"{tenant}-1", **of(tenant)) for tenant in ("default", "vision")]
    array = an_array(2, PENDING, name="vision-array", **of("vision"))
    child = a_child(array, 0, SUCCEEDED)
    streams = {
        str(n): LogStream("/aws/batch/job", f"d/default/{n}", str(n), job.id, NOW)
        for n, job in enumerate([*jobs, child])
    }
    made = [
        Schedule(group, "nightly", "rate(1 hour)", Target("arn", "role"), submitter=Submitter(tenant))
        for group, tenant in (("default", "default"), ("team", "vision"))
    ]
    ticks = [Tick(it.key, 5, 5) for it in made]
    declared = {(type(it), key): it for it in made for key in [it.key]}
    group = ScheduleGroup("team", tags={"a": "b"})
    service = ServiceJob("s", "n", "q", "{}", created_at=NOW, submitter=Submitter("vision"))
    store.commit(
        Changes(
            jobs={job.id: job for job in (*jobs, array, child)},
            log_streams=streams,
            declared={**declared, (ScheduleGroup, "team"): group},
            ticks={(tick.schedule, tick.due_at): tick for tick in ticks},
            service_jobs={"s": service},
        )
    )
    _forget_tenants(store)
    place.close()
    store = place.open()
    assert names(store, tenant="vision") == ["vision-array", "vision-1"]
    assert names(store, tenant="default") == ["default-1"]
    assert store.counts("vision") == {("q", SUCCEEDED): 1, ("q", PENDING): 1}
    assert store.counts("default") == {("q", SUCCEEDED): 1}
    assert store.log_groups() == ["/aws/batch/job", "vision:/aws/batch/job"]
    assert [it.task_id for it in store.log_streams("vision:/aws/batch/job", "", 9, None)] == ["1", "2"]
    assert [it.key for it in store.declared(Schedule)] == ["default/nightly", "vision/team/nightly"]
    assert [(it.name, dict(it.tags)) for it in store.declared(ScheduleGroup)] == [
        ("team", {"a": "b"}),
        ("vision/team", {"a": "b"}),
    ]
    assert [tick.schedule for tick in store.ticks("vision/team/nightly", 9)] == ["vision/team/nightly"]
    assert store.ticks("team/nightly", 9) == []
    assert len(store.ticks("default/nightly", 9)) == 1
    page = store.list_service_jobs(ServiceJobFilter("q", tenant="vision"), 9, None)
    assert [job.id for job in page.jobs] == ["s"]
    loaded = store.load()
    assert {tick.schedule for tick in loaded.ticks} == {"default/nightly", "vision/team/nightly"}


def _forget_tenants(store) -> None:
    """Bring the columns to what the version before wrote: it named a queue alone."""
    for table in ("jobs", "service_jobs"):
        store._database.write(
            lambda session, table=table: session.rows(
                f"UPDATE {table} SET queue = 'q' WHERE queue IS NOT NULL RETURNING id"
            )
        )
    assert asked(store, "SELECT DISTINCT queue FROM jobs WHERE queue IS NOT NULL") == [("q",)]
