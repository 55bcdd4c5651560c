"""The process that plays forecasts: values in, values out, ended when it takes too long."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import Any

import pytest

from windfall.control.ports import Loaded
from windfall.control.state import Rules
from windfall.daemon import forecast_process
from windfall.daemon.forecast_process import ForecastFailed, ForecastProcesses, TooBusy
from windfall.forecast.copies import Copied
from windfall.forecast.playing import Bounds
from windfall.jobs.errors import NotFound

VALUES: dict[str, Any] = {"now": 5, "rules": Rules(), "offers": {}}


async def records() -> bytes:
    return pickle.dumps(Loaded())


def what_it_has(copied: Copied, bounds: Bounds) -> tuple[int, int, bool]:
    return copied.now, len(copied.state().jobs), bounds.goes_on()


def refuse(_copied: Copied, _bounds: Bounds) -> None:
    raise NotFound("there is no such thing")


def play_for_ever(_copied: Copied, bounds: Bounds) -> str:
    while bounds.goes_on():
        pass
    return "as far as it came"


def hang(_copied: Copied, _bounds: Bounds) -> None:
    threading.Event().wait()


def die(_copied: Copied, _bounds: Bounds) -> None:
    raise SystemExit(3)


def test_work_is_done_on_a_copy_and_a_refusal_comes_back():
    async def test() -> None:
        processes = ForecastProcesses()
        assert await processes.ask(what_it_has, records, VALUES) == (5, 0, True)
        with pytest.raises(NotFound, match="no such thing"):
            await processes.ask(refuse, records, VALUES)

    asyncio.run(test())


def test_a_play_stops_when_its_time_is_over():
    answer = asyncio.run(ForecastProcesses(play_s=0.1).ask(play_for_ever, records, VALUES))
    assert answer == "as far as it came"


def test_a_process_that_hangs_or_dies_is_ended_and_said(monkeypatch):
    monkeypatch.setattr(forecast_process, "GRACE_S", 0.2)

    async def test() -> None:
        processes = ForecastProcesses(play_s=0.1)
        with pytest.raises(ForecastFailed, match="took longer"):
            await processes.ask(hang, records, VALUES)
        with pytest.raises(ForecastFailed):
            await processes.ask(die, records, VALUES)

    asyncio.run(test())


def test_one_plays_at_a_time_and_few_wait():
    async def test() -> None:
        processes = ForecastProcesses()
        began: list[int] = []
        gate = asyncio.Event()

        async def slow_records() -> bytes:
            began.append(1)
            await gate.wait()
            return await records()

        asked = [
            asyncio.create_task(processes.ask(what_it_has, slow_records, VALUES))
            for _ in range(forecast_process.WAITING_MAX)
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(began) == 1
        with pytest.raises(TooBusy, match="try again"):
            await processes.ask(what_it_has, records, VALUES)
        for task in asked[1:]:
            task.cancel()
        gate.set()
        assert await asked[0] == (5, 0, True)

    asyncio.run(test())
