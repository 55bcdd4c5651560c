"""The files of the past: bounded, readable after a crash, and without what other tenants did."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Role
from windfall.aws_api.protocol.service import Call, Caller
from windfall.daemon.page_history import (
    COARSE,
    COARSE_POINTS,
    FINE_POINTS,
    ActivityRecorder,
    Lines,
    PageHistory,
    activity_file,
    read_lines,
    thinned,
)
from windfall.jobs.states import JobState
from windfall.jobs.tenants import View

CALLER = Caller("KEY", Role.READ, "default")


def a_point(number):
    return {"at": number * 10_000, "running": number, "failed": 1} | (
        {"coarse": True} if number % COARSE == 0 else {}
    )


def test_a_week_of_points_stays_small_and_reaches_back(tmp_path):
    path = tmp_path / "page" / "activity.jsonl"
    lines = Lines(path, thinned, FINE_POINTS + COARSE_POINTS)
    for number in range(0, 70_000, 100):
        lines.add([a_point(number + n) for n in range(100)])
    assert len(lines.lines) <= 2 * (FINE_POINTS + COARSE_POINTS)
    assert path.stat().st_mode & 0o077 == 0
    again = Lines(path, thinned, FINE_POINTS + COARSE_POINTS)
    assert again.lines[-1]["running"] == 69_999
    assert again.lines[0]["running"] < 69_999 - 40_000
    assert len(again.lines) <= FINE_POINTS + COARSE_POINTS


def test_what_a_crash_left_half_written_is_passed_over(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"at":1}\n\xff\xfe{"at"')
    assert read_lines(path) == [{"at": 1}]
    assert read_lines(tmp_path / "none") == []


class CountingLoop:
    """A control loop without jobs at first; two jobs end before the first point is recorded."""

    def __init__(self):
        self.reads = 0
        self.recorded = asyncio.Event()

    async def inspect(self, _):
        return {"at": self.reads}, ([], set())

    async def read(self, _):
        self.reads += 1
        if self.reads == 3:  # the first point is in its file
            self.recorded.set()
        ended = {("queue", JobState.SUCCEEDED): 1, ("queue", JobState.FAILED): 1}
        return {} if self.reads == 1 else ended


def test_jobs_that_end_before_the_first_point_count_in_it(tmp_path, monkeypatch):
    monkeypatch.setattr("windfall.daemon.page_history.EVERY_S", 0)

    async def play():
        loop, files = CountingLoop(), SimpleNamespace(machine_head=lambda: None)
        recording = asyncio.create_task(ActivityRecorder(loop, files, tmp_path, None, lambda: 0).run())
        await asyncio.wait_for(loop.recorded.wait(), 30)
        recording.cancel()
        await asyncio.wait([recording])

    asyncio.run(play())
    first = read_lines(activity_file(tmp_path))[0]
    assert (first["succeeded"], first["failed"]) == (1, 1)


def ask(tmp_path, sees_all, **params):
    gate = SimpleNamespace(view=View("default", sees_all=sees_all))
    history = PageHistory(gate, tmp_path, lambda: 10_000 * 10_000)
    return asyncio.run(history.activity(Call("windfall", "Activity", params, CALLER, "r", "1", 0)))


def test_a_tenant_sees_the_capacity_and_not_how_the_jobs_of_others_ended(tmp_path):
    Lines(activity_file(tmp_path), thinned, 10_000).add([a_point(n) for n in range(9_000, 10_001)])
    point = ask(tmp_path, sees_all=False)["points"][-1]
    assert point == {"at": 100_000_000, "running": 10_000}
    assert ask(tmp_path, sees_all=True)["points"][-1]["failed"] == 1
    assert len(ask(tmp_path, sees_all=True, hours=1)["points"]) == 361
    assert ask(tmp_path / "empty", sees_all=True)["points"] == []


@pytest.mark.parametrize("hours", [0, -1, 169, "6", True])
def test_hours_are_checked(tmp_path, hours):
    with pytest.raises(ApiError):
        ask(tmp_path, sees_all=True, hours=hours)
