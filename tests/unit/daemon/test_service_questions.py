"""Service jobs in Windfall's own operations, over the real reactor and a real store."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.unit.control.service_worlds import ServiceWorld, a_service_job, a_service_world
from windfall.aws_api.protocol.keys import Role
from windfall.aws_api.protocol.service import Call, Caller
from windfall.capacity.environments import JobQueue, Switch
from windfall.control.changes import Changes
from windfall.control.commands.service_jobs import UpdateServiceEnvironment
from windfall.control.why import Why
from windfall.daemon.questions import Questions, find_service_jobs, service_counts
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.states import RUNNABLE
from windfall.store.opening import open_store


class StateGate:
    """Lets the state of a world be asked, as the daemon's gateway does."""

    def __init__(self, services: ServiceWorld, training: Why | None = None) -> None:
        self._services = services
        self._world = services.world
        self._training = training

    async def read(self, question: Any) -> Any:
        store = SimpleNamespace(jobs=lambda _: [], service_jobs=lambda ids: [self._services.job(ids[0])])
        return question(store)

    async def inspect(self, look: Any) -> Any:
        return look(self._world.state, None, self._world.now)

    async def why(self, job_id: JobId) -> Why | None:
        return self._training if job_id != "a" else None


def explained(services: ServiceWorld, job_id: str, training: Why | None = None) -> dict[str, Any]:
    questions = Questions(StateGate(services, training), lambda: 0)  # type: ignore[arg-type]  # what it asks
    call = Call("windfall", "Why", {"jobId": job_id}, Caller("key", Role.READ, "default"), "r", "id", 0)
    return asyncio.run(questions.why(call))


def sentences(answer: dict[str, Any]) -> list[str]:
    return [reason["text"] for reason in answer["reasons"]]


def test_one_that_waits_says_what_it_asks_for_and_who_is_before_it():
    services = a_service_world().submits(a_service_job("a"), a_service_job("b"), a_service_job("c"))
    assert sentences(explained(services, "c")) == [
        "asks for 1 NUM_INSTANCES; service environment training has 1, 1 in use",
        "1 service job of queue services before it",
    ]


def test_one_whose_environment_is_disabled_says_how_to_enable_it():
    services = a_service_world()
    services.world.happens(UpdateServiceEnvironment("training", Switch.DISABLED, None))
    services.submits(a_service_job("a"))
    assert (
        "training is DISABLED; aws batch update-service-environment" in sentences(explained(services, "a"))[0]
    )


def test_one_that_can_never_start_carries_the_words_of_aws():
    services = a_service_world().submits(a_service_job("a", instances=2))
    answer = explained(services, "a")
    assert answer["awsReason"].startswith("MISCONFIGURATION:SERVICE_ENVIRONMENT_MAX_RESOURCE")
    assert "asks for 2 NUM_INSTANCES; service environment training has 1, 0 in use" in sentences(answer)


def test_one_with_a_training_job_is_explained_by_it():
    services = a_service_world().submits(a_service_job("a")).created("a")
    why = Why(JobId("t"), RUNNABLE, [("cpu", "needs 1 vCPU")], ["wait"])
    answer = explained(services, "a", why)
    assert sentences(answer) == [f"its training job is {services.training('a')}", "needs 1 vCPU"]
    assert answer["changes"] == ["wait"]


def test_one_that_failed_leads_to_its_training_job():
    services = a_service_world().submits(a_service_job("a")).runs("a").ends("a", 1)
    answer = explained(services, "a")
    assert answer["state"] == "FAILED"
    assert sentences(answer)[-1] == f"its last training job is {services.training('a')}"
    assert answer["changes"] == [f"see how it ended: windfall why {services.training('a')}"]


def test_they_are_counted_and_found_in_the_store(tmp_path):
    services = a_service_world().submits(a_service_job("abc"), a_service_job("abd"))
    with_jobs = Changes()
    with_jobs.queues[QueueName("services")] = JobQueue(
        QueueName("services"), 1, (), service_environment="training"
    )
    with_jobs.service_jobs.update({JobId(one): services.job(one) for one in ("abc", "abd")})
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    try:
        store.commit(with_jobs)
        assert service_counts(store) == {"services": {"SCHEDULED": 1, "RUNNABLE": 1}}
        assert sorted(find_service_jobs(store, "ab")) == ["abc", "abd"]
        assert find_service_jobs(store, "abd") == ["abd"]
        assert find_service_jobs(store, "x") == []
    finally:
        store.close()
