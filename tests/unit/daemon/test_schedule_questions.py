"""What the daemon says of schedules: order, names, next times by the schedule's own clocks, and what is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.builders import a_busy_world, a_job, a_machine
from tests.unit.control.schedules import BERLIN, a_schedule, ms
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Role
from windfall.aws_api.protocol.service import Call, Caller
from windfall.capacity.environments import Switch
from windfall.control.changes import Changes
from windfall.daemon.questions import Questions
from windfall.jobs.ids import JobId
from windfall.schedules.schedule import Schedule, ScheduleGroup, Tick, TickOutcome
from windfall.store.sqlite.opening import open_sqlite

NOW = ms("2027-03-26 12:00")
HOUR = 3_600_000


class StoreGate:
    """Asks a real store."""

    def __init__(self, path: Any) -> None:
        self.store = open_sqlite(path)

    async def read(self, question: Any) -> Any:
        return question(self.store)


@pytest.fixture
def listing(tmp_path):
    gate = StoreGate(tmp_path / "windfall.db")
    schedules = [
        a_schedule("cron(30 2 * * ? *)", "night", timezone=BERLIN, decided_at=NOW - HOUR),
        a_schedule("rate(1 hour)", "often", decided_at=NOW - 1, created_at=NOW - 10 * HOUR),
        a_schedule("rate(1 hour)", "off", switch=Switch.DISABLED),
    ]
    tagged = ScheduleGroup("etl", tags={"windfall:overlap": "queue"})
    other = Schedule(
        "etl",
        "load",
        "rate(2 days)",
        schedules[0].target,
        decided_at=NOW,
        created_at=NOW,
        window_minutes=15,
    )
    ticks = [
        Tick(
            "default/often",
            NOW - number * HOUR,
            NOW - number * HOUR,
            TickOutcome.STARTED,
            run=f"job-{number}",
            done_at=NOW - number * HOUR,
            run_ended_at=NOW - number * HOUR + 600_000,
            run_succeeded=True,
        )
        for number in range(1, 7)
    ]
    gone = Tick("default/gone", NOW, NOW, TickOutcome.SKIPPED, "why")
    coming = Tick("etl/load", NOW, NOW + 240_000)
    declared: dict[Any, Any] = {(Schedule, one.key): one for one in [*schedules, other]}
    declared[ScheduleGroup, "etl"] = tagged
    kept = {(tick.schedule, tick.due_at): tick for tick in [*ticks, gone, coming]}
    gate.store.commit(Changes(declared=declared, ticks=kept))
    yield Questions(gate, lambda: NOW)  # type: ignore[arg-type]  # only reads are asked of it
    gate.store.close()


def asked(handler: Any, **params: Any) -> dict[str, Any]:
    caller = Caller("key", Role.READ, "default")
    answer: dict[str, Any] = asyncio.run(handler(Call("windfall", "x", params, caller, "r", "id", 0)))
    return answer


def test_the_one_that_is_due_first_comes_first_and_those_that_never_are_last(listing):
    answer = asked(listing.schedules)
    assert [one["key"] for one in answer["schedules"]] == [
        "default/often",
        "default/night",
        "etl/load",
        "default/off",
    ]
    assert (answer["leftOut"], answer["now"]) == (0, NOW)
    often, night, load, off = answer["schedules"]
    assert often["forecast"]["verdict"] == "fits"
    assert (often["forecast"]["runs"], often["forecast"]["certainty"]) == (6, "fair")
    assert often["last"]["jobId"] == "job-1"
    assert night["next"][0]["local"] == "Sat 2027-03-27 02:30:00 CET"
    assert load["overlap"] == "queue"
    assert (load["last"]["comesAt"], often["last"]["comesAt"]) == (NOW + 240_000, None)
    assert (off["next"], off["last"], off["state"]) == ([], None, "DISABLED")
    assert asked(listing.schedules, limit=1)["leftOut"] == 3


def test_a_run_that_has_no_place_yet_waits_and_of_an_array_all_of_it(tmp_path):
    world = a_busy_world(a_machine(8))
    world.submits(a_job("runs").vcpus(6), a_job("waits").vcpus(6), a_job("all").array(2).vcpus(6))
    world.submits(a_job("some").array(2).vcpus(1))
    gate = StoreGate(tmp_path / "windfall.db")
    jobs = {JobId(name): world.job(name) for name in ("runs", "waits", "all", "some")}
    ticks = {
        (f"default/{name}", NOW): Tick(
            f"default/{name}", NOW, NOW, TickOutcome.STARTED, run=name, done_at=NOW
        )
        for name in jobs
    }
    gate.store.commit(Changes(jobs=jobs, ticks=ticks))
    listing = Questions(gate, lambda: NOW)  # type: ignore[arg-type]  # only reads are asked of it
    found = {name: asked(listing.schedule_history, name=name)["ticks"][0]["runWaits"] for name in jobs}
    gate.store.close()
    assert found == {"runs": False, "waits": True, "all": True, "some": False}


def test_one_shows_five_due_times_and_what_summer_time_does_to_them(listing):
    answer = asked(listing.schedule_history, name="night")
    due = answer["schedule"]["next"]
    assert len(due) == 5
    assert [one["skipped"] for one in due] == [False, True, False, False, False]
    assert "does not exist on 2027-03-28" in due[1]["note"]
    assert due[2]["local"] == "Mon 2027-03-29 02:30:00 CEST"


def test_a_history_comes_by_name_by_group_and_name_and_page_by_page(listing):
    assert [tick["jobId"] for tick in asked(listing.schedule_history, name="often", limit=2)["ticks"]] == [
        "job-1",
        "job-2",
    ]
    later = asked(listing.schedule_history, name="default/often", limit=2, before=NOW - 2 * HOUR)
    assert [tick["jobId"] for tick in later["ticks"]] == ["job-3", "job-4"]
    assert asked(listing.schedule_history, name="load")["key"] == "etl/load"


def test_what_is_left_of_a_schedule_that_is_gone_is_shown(listing):
    answer = asked(listing.schedule_history, name="gone")
    assert answer["schedule"] is None
    assert [tick["reason"] for tick in answer["ticks"]] == ["why"]


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"name": "nobody"}, "NotFound"),
        ({"name": "no\0body"}, "NotFound"),
        ({}, "Invalid"),
        ({"name": "often", "limit": 0}, "Invalid"),
        ({"name": "often", "limit": True}, "Invalid"),
        ({"name": "often", "before": "yesterday"}, "Invalid"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name(listing, params, code):
    with pytest.raises(ApiError) as refused:
        asked(listing.schedule_history, **params)
    assert refused.value.code == code
