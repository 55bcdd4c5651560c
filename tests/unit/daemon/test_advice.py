"""Which jobs `Advise` is about, and what it knows of their place; samples are files, jobs come from a fake store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.builders import a_busy_world, a_job, a_machine
from tests.unit.advisor.builders import a_gpu, a_recording
from windfall.accounting.prices import Rates
from windfall.advisor.samples import Recording
from windfall.aws_api.protocol.errors import ApiError
from windfall.capacity.machines import Machine
from windfall.control.ports import JobPage
from windfall.daemon.advice import Adviser
from windfall.jobs.ids import MachineId
from windfall.jobs.job import Job
from windfall.jobs.resources import Resources
from windfall.views.advice import link_bytes_s

NOW = 3_600_000
SERVER = a_recording(a_gpu(0.05), busiest_thread=0.05)
NETWORK = a_recording(a_gpu(0.1), net_rx_bytes_s=1.2e9, busiest_thread=0.2, cpu_cores=0.2)


class Params:
    """A call as the handler sees it."""

    operation = "Advise"

    def __init__(self, **params: Any) -> None:
        self.params = params


class FakeStore:
    def __init__(self, jobs: dict[str, Job]) -> None:
        self._jobs = jobs

    def jobs(self, wanted: list[str]) -> list[Job]:
        return [self._jobs[name] for name in wanted if name in self._jobs]

    def list_jobs(self, wanted: Any, _: int, __: str | None) -> JobPage:
        # All are new; none is an old one that still lives.
        return JobPage(list(self._jobs.values()) if wanted.created_after is not None else [], None)


class FakeReader:
    def __init__(self, jobs: dict[str, Job]) -> None:
        self._store = FakeStore(jobs)

    async def read(self, question: Any) -> Any:
        return question(self._store)


class FakeSamples:
    def __init__(self, recordings: dict[str, Recording]) -> None:
        self._recordings = recordings

    def recording(self, task_id: str) -> Recording | None:
        return self._recordings.get(task_id)


def two_jobs() -> dict[str, Job]:
    world = a_busy_world(a_machine(gpus=2))
    world.submits(a_job("server").gpus(1), a_job("fed").gpus(1), a_job("plain"))
    return {name: world.store.jobs[name] for name in ("server", "fed", "plain")}


def answer(every_s: float = 2.0, link: float | None = None, **params: Any) -> dict[str, Any]:
    jobs = two_jobs()
    recordings = {jobs["server"].attempts[0].task_id: SERVER, jobs["fed"].attempts[0].task_id: NETWORK}
    adviser = Adviser(
        FakeReader(jobs),
        FakeSamples(recordings),  # type: ignore[arg-type]  # a fake with the one method that is used
        Rates(usd_gpu_hour=2.0),
        lambda: NOW,
        every_s,
        lambda: link,
    )
    return asyncio.run(adviser.advise(Params(**params)))  # type: ignore[arg-type]  # a fake call


def test_jobs_with_gpus_are_ranked_by_what_they_waste():
    rows = answer(sinceAt=0)["jobs"]
    assert [row["jobId"] for row in rows] == ["server", "fed"]
    assert rows[0]["wastedGpuHours"] == pytest.approx(rows[0]["gpuHours"] * 0.95)
    assert rows[0]["cause"] == "waiting-for-requests"
    assert rows[1]["cause"] == "network"


def test_prices_are_the_owners_where_an_instance_has_none():
    [row] = answer(jobId="server")["jobs"]
    share = next(advice for advice in row["advice"] if advice["kind"] == "share")
    assert share["usdHour"] == pytest.approx(2.0 * 0.1)


def test_the_speed_of_the_hosts_own_link_is_evidence():
    [row] = answer(jobId="fed", link=1.25e9)["jobs"]
    assert "96 % of the link's 10 Gbit/s" in row["evidence"][0]
    assert row["missing"] == []


def test_a_job_without_samples_says_why():
    assert "uses no GPU" in answer(jobId="plain")["jobs"][0]["note"]


@pytest.mark.parametrize(("params", "code"), [({"jobId": "gone"}, "NotFound"), ({"sinceAt": "x"}, "Invalid")])
def test_wrong_questions_are_refused(params, code):
    with pytest.raises(ApiError) as refused:
        answer(**params)
    assert refused.value.code == code


@pytest.mark.parametrize(("fact", "speed"), [({"network_mbits": "25000"}, 25e9 / 8), ({}, None)])
def test_a_link_is_as_fast_as_the_hosts_agent_says(fact, speed):
    assert link_bytes_s(Machine(MachineId("m"), Resources(1, 64), facts=fact)) == speed
    assert link_bytes_s(None) is None
