"""What a tenant sees of the core's memory: its own attempts by name, and of the others that they are there."""

from __future__ import annotations

import asyncio
import base64
import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import a_busy_world, a_job, a_machine
from windfall.aws_api.protocol.keys import Key, Role
from windfall.aws_api.protocol.request import HttpRequest
from windfall.aws_api.protocol.service import Call, Caller
from windfall.aws_api.tenants.gate import TenantGate, view_of, without_others
from windfall.control.queue_shares import QueueShares, ShareStatus
from windfall.control.why import Why, why
from windfall.daemon.measurements import MetricsPage
from windfall.daemon.questions import Questions
from windfall.daemon.tenant_gateway import TenantGateway
from windfall.jobs.states import RUNNABLE
from windfall.jobs.tenants import View
from windfall.scheduling.fair_share import NONE

MINE = "11111111-1111-4111-8111-111111111111"
THEIRS = "22222222-2222-4222-8222-222222222222"
LATE = "33333333-3333-4333-8333-333333333333"


class Gateway:
    """The core's memory, and its store, in one thread."""

    rounds, commit_s = 1, 0.5

    def __init__(self) -> None:
        self.world = a_busy_world(a_machine(gpus=2))
        self.world.submits(
            a_job(MINE).gpus(1).of_tenant("lab"),
            a_job(THEIRS).gpus(1).of_tenant("rival"),
            a_job(LATE).gpus(1).of_tenant("lab"),
        )
        self.world.starts(MINE, THEIRS)

    async def inspect(self, question: Any) -> Any:
        return question(self.world.state, {}, self.world.now)

    async def read(self, question: Any) -> Any:
        store = SimpleNamespace(
            jobs=lambda ids: [self.world.job(one) for one in ids if one in self.world.store.jobs],
            service_jobs=lambda _: [],
            counts=lambda tenant: {("queue", RUNNABLE): {"lab": 1, "rival": 0, None: 1}[tenant]},
        )
        return question(store)

    async def why(self, job_id: str) -> Why | None:
        return why(self.world.state, job_id, {}, self.world.now)

    async def queue_snapshot(self, _queue: str) -> list[tuple[str, int]]:
        return [(THEIRS, 1), (LATE, 2)]

    async def shares(self, queue: str) -> QueueShares:
        shares = (ShareStatus("a", front=(THEIRS, 1)), ShareStatus("b", front=(LATE, 2)))
        return QueueShares(queue, None, NONE, NONE, shares)


@pytest.fixture
def gateway():
    return Gateway()


def caller(tenant: str, role: Role = Role.READ) -> Caller:
    return Caller("WNDFKEY", role, tenant)


def seen(gateway, who: Caller) -> TenantGateway:
    return TenantGateway(gateway, view_of(who))


def listed(gateway, who: Caller) -> dict[str, Any]:
    call = Call("windfall", "Gpus", {}, who, "eu-west-1", "1", 0)
    return {
        gpu["id"]: gpu for gpu in asyncio.run(Questions(seen(gateway, who), lambda: 0).gpus(call))["gpus"]
    }


def test_a_gpu_that_another_tenant_s_job_holds_is_held_by_others(gateway):
    held = {
        who.tenant: {gpu["heldBy"] for gpu in listed(gateway, who).values()}
        for who in map(caller, ("lab", "rival"))
    }
    assert held == {"lab": {MINE, "others"}, "rival": {THEIRS, "others"}}
    everything = listed(gateway, caller("default", Role.ADMIN))
    assert {gpu["heldBy"] for gpu in everything.values()} == {MINE, THEIRS}


def test_the_core_itself_is_left_as_it_is(gateway):
    before = dict(gateway.world.state.attempts)
    asyncio.run(seen(gateway, caller("lab")).inspect(lambda state, *_: len(state.attempts)))
    assert gateway.world.state.attempts == before
    assert asyncio.run(seen(gateway, caller("x")).inspect(lambda state, *_: dict(state.attempts))) == {}


@pytest.mark.parametrize(("tenant", "job", "other"), [("lab", MINE, THEIRS), ("rival", THEIRS, MINE)])
def test_a_scraper_reads_the_series_of_its_tenant_s_jobs(gateway, tenant, job, other):
    key = Key("WNDFKEY", "secret", Role.READ, tenant, None, 0)
    sample = SimpleNamespace(
        cpu_cores=1.0,
        memory_bytes=1,
        read_bytes_s=0,
        write_bytes_s=0,
        net_rx_bytes_s=0,
        net_tx_bytes_s=0,
        gpus=[],
    )
    samples = SimpleNamespace(machine_head=lambda *_: None, latest=lambda _: sample)
    page = MetricsPage(gateway, samples, SimpleNamespace(find=lambda _: key))
    shown = b"Basic " + base64.b64encode(b"WNDFKEY:secret")
    request = HttpRequest("GET", "/metrics", "", {b"authorization": shown}, b"")
    text = asyncio.run(page.answer(request)).body.decode()
    assert f'job_id="{job}"' in text
    assert other not in text
    assert 'windfall_gpu_held{gpu="gpu0"' in text
    assert 'job_id="others"' in text
    counted = {"lab": 1, "rival": 0}[tenant]
    assert f'windfall_jobs{{queue="queue",state="RUNNABLE"}} {counted}' in text


def test_why_a_job_waits_names_no_job_of_others(gateway):
    own = asyncio.run(seen(gateway, caller("lab")).why(LATE))
    assert own is not None
    assert THEIRS not in json.dumps([own.reasons, own.changes])
    assert asyncio.run(seen(gateway, caller("rival")).why(LATE)) is None
    assert asyncio.run(seen(gateway, caller("default", Role.ADMIN)).why(LATE)) is not None


def test_a_text_keeps_the_names_of_own_jobs_alone():
    text = f"job {MINE} (train) and {THEIRS}:3 (2) hold it, with training-lab.run-1#0 (x)"
    assert without_others(text, {MINE}) == (
        f"job {MINE} (train) and a job of another tenant hold it, with a job of another tenant"
    )


@pytest.mark.parametrize(
    ("view", "front", "fronts"),
    [
        (View("lab"), [LATE], [None, LATE]),
        (View("rival"), [THEIRS], [THEIRS, None]),
        (View("x"), [], [None, None]),
        (View("ops", sees_all=True), [THEIRS, LATE], [THEIRS, LATE]),
    ],
)
def test_the_front_of_a_queue_shows_own_jobs(gateway, view, front, fronts):
    gate = TenantGate(gateway, view)
    assert [job_id for job_id, _ in asyncio.run(gate.queue_snapshot("queue"))] == front
    shares = asyncio.run(gate.shares("queue")).shares
    assert [share.front and share.front[0] for share in shares] == fronts
