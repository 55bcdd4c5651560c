"""What is read from the state is copied: nothing that a round could change leaves the loop, or goes to a thread."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import Any

import pytest

from tests.builders import a_busy_world, a_job, a_machine
from tests.unit.views.live_objects import WatchedThreads, live_objects_in
from windfall.advisor.samples import Recording, Sample
from windfall.aws_api.protocol.keys import Key, Role
from windfall.aws_api.protocol.request import HttpRequest
from windfall.aws_api.protocol.service import Call, Caller
from windfall.aws_api.tenants.gate import view_of
from windfall.control.state import State
from windfall.control.why import why
from windfall.daemon.measurements import MetricsPage, Monitoring
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.jobs.job import Job
from windfall.views import capacity, measurements, metrics

ADMIN = Caller("WNDFKEY", Role.ADMIN, "default")


class Gateway:
    """The state of a world with a job that runs on a GPU and one that waits."""

    rounds, commit_s = 1, 0.5

    def __init__(self) -> None:
        self.world = a_busy_world(a_machine(gpus=1))
        self.world.submits(a_job("runs").gpus(1), a_job("waits").gpus(1))
        self.world.starts("runs")

    @property
    def state(self) -> State:
        return self.world.state

    async def inspect(self, question: Any) -> Any:
        return question(self.state, {}, self.world.now)

    async def read(self, _: Any) -> Any:
        return {}


@dataclass(frozen=True)
class Held:
    """A value with something live in it."""

    job: Job


class NoSamples:
    """A machine on which nothing was measured."""

    def machine_head(self, machine: str | None = None) -> None:
        return None

    def latest(self, _: str) -> Sample | None:
        return None

    def recording(self, _: str) -> Recording | None:
        return None


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


VIEWS = {
    "overview": lambda gateway: capacity.overview(gateway.state),
    "all_gpus": lambda gateway: capacity.all_gpus(gateway.state),
    "shares": lambda gateway: capacity.shares(
        gateway.state, next(iter(gateway.state.queues)), gateway.world.now
    ),
    "occupied": lambda gateway: measurements.occupied(gateway.state),
    "scraped": lambda gateway: metrics.scraped(gateway.state),
    "why": lambda gateway: why(gateway.state, "waits", {}, gateway.world.now),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_the_state_holds_nothing_of_it(gateway, name):
    answer = VIEWS[name](gateway)
    assert answer
    assert live_objects_in(answer, gateway.state) == []


def test_a_live_object_is_found_wherever_it_is(gateway):
    job = gateway.state.jobs["runs"]
    assert live_objects_in({"jobs": [(1, job)]}, gateway.state) == ["Attempt", "Job", "list"]
    assert live_objects_in(Held(job), gateway.state) == ["Attempt", "Job", "list"]
    assert live_objects_in(gateway.state.jobs, gateway.state) != []
    assert live_objects_in(job.submission, gateway.state) == []


async def _in_watched_threads(gateway: Gateway, ask: Any) -> WatchedThreads:
    threads = WatchedThreads(gateway.state)
    asyncio.get_running_loop().set_default_executor(threads)
    await ask()
    return threads


def test_threads_get_values_for_top(gateway):
    gate: Any = TenantGateway(gateway, view_of(ADMIN))  # type: ignore[arg-type]  # the parts that are asked
    samples: Any = NoSamples()
    monitoring = Monitoring(gate, samples, lambda: 0, 2.0)
    call = Call("windfall", "Top", {}, ADMIN, "r", "id", 0)
    threads = asyncio.run(_in_watched_threads(gateway, lambda: monitoring.top(call)))
    assert (threads.calls, threads.live) == (1, [])


def test_threads_get_values_for_the_metrics_page(gateway):
    parts: Any = (gateway, NoSamples())

    class Keys:
        def find(self, _: str) -> Key:
            return Key("WNDFKEY", "secret", Role.ADMIN, "default", None, 0)

    keys: Any = Keys()
    page = MetricsPage(*parts, keys)
    shown = b"Basic " + base64.b64encode(b"WNDFKEY:secret")
    request = HttpRequest("GET", "/metrics", "", {b"authorization": shown}, b"")
    threads = asyncio.run(_in_watched_threads(gateway, lambda: page.answer(request)))
    assert (threads.calls, threads.live) == (1, [])


def test_a_live_job_in_a_thread_is_noticed(gateway):
    job = gateway.state.jobs["runs"]
    threads = asyncio.run(_in_watched_threads(gateway, lambda: asyncio.to_thread(lambda: job.state)))
    assert "Job" in threads.live
