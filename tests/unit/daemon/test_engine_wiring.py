"""A daemon is put together from engines that it knows by their port alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from windfall.agent.attempt_files import AttemptDirectory
from windfall.control.ports import Engine
from windfall.daemon.directory import DataDirectory
from windfall.daemon.engine_wiring import trains_on_own_machines, unpriced_engines, wire_engines
from windfall.daemon.errors import DaemonError
from windfall.daemon.leading import DaemonContext, Leading, load_state
from windfall.daemon.object_storage import ObjectStorage
from windfall.daemon.settings import Settings
from windfall.store.opening import open_store


class FakeEngine:
    """An engine that has machines of its own only if it is told to, and does nothing."""

    def __init__(self, name: str, trouble: str | None = None) -> None:
        self.name, self.trouble = name, trouble
        self.files: Any = None
        self.machines: tuple[Any, ...] = ()
        self.away = None
        self.ended: list[str] = []
        self._over = asyncio.Event()

    def check(self, environment: Any, /) -> None:
        """Take any."""

    def adopt(self, holdings: Any, /) -> None:
        """Nothing to know again."""

    def offers(self, environment: Any, /) -> tuple[Any, ...]:
        return ()

    def carry_out(self, instructions: Any) -> None:
        assert not instructions

    async def settle(self, *, or_unfit: bool = False) -> None:
        """Known at once."""

    async def run(self) -> None:
        await self._over.wait()

    async def dial(self, instance: Any, /) -> tuple[Any, Any]:
        return self.name, instance

    async def shut_down(self, *, kill: bool) -> None:
        self.ended.append(f"shut down, kill={kill}")
        self._over.set()

    def let_go(self) -> None:
        self.ended.append("let go")


def a_context(root: Path, engines: dict[str, Engine]) -> DaemonContext:
    settings, directory = Settings(root, engine="far"), DataDirectory(root)
    directory.prepare()
    return DaemonContext(
        settings,
        directory,
        AttemptDirectory(directory.logs),
        lambda _sink, _epoch, _leased: engines,
        open_store(str(root / "windfall.db")),
        ObjectStorage(settings, {}),
        lambda: 1_000,
        lambda: ("default",),
        lambda _: None,
    )


def led(context: DaemonContext, play: Any) -> None:
    async def lead() -> None:
        leading = Leading(context, load_state(context), 1)
        leading.start()
        try:
            await play(leading)
        finally:
            await leading.end(kill=False)

    try:
        asyncio.run(asyncio.wait_for(lead(), 120))
    finally:
        context.store.close()


def test_a_daemon_without_the_local_engine_waits_for_no_agent_of_its_own(tmp_path: Path):
    far = FakeEngine("far")

    async def play(leading: Leading) -> None:
        assert await leading.first_contact() is None
        assert leading.host is None
        assert await leading.dial(None, "i-1") == ("far", "i-1")  # type: ignore[arg-type] # a name is enough

    led(a_context(tmp_path, {"far": far}), play)
    assert far.ended == ["shut down, kill=False", "let go"]


def test_an_engine_that_does_not_know_its_machines_keeps_the_daemon_from_starting(tmp_path: Path):
    async def play(leading: Leading) -> None:
        with pytest.raises(DaemonError, match="no way to the machines"):
            await leading.first_contact()

    engines: dict[str, Engine] = {
        "far": FakeEngine("far"),
        "lost": FakeEngine("lost", "no way to the machines"),
    }
    led(a_context(tmp_path, engines), play)


def test_the_engine_of_environments_that_name_none_comes_first(tmp_path: Path):
    for default, others in (("local", ["simulated", "hosts"]), ("simulated", ["local", "hosts"])):
        settings, directory = Settings(tmp_path, engine=default), DataDirectory(tmp_path)

        async def make(settings: Settings = settings, directory: DataDirectory = directory) -> list[str]:
            files = AttemptDirectory(directory.logs)
            return list(wire_engines(settings, directory, files, lambda: 0)(lambda _: None, 1, False))

        assert asyncio.run(make()) == [default, *others]


def test_machines_of_ones_own_have_no_market_price_and_bound_training_jobs():
    data = Path("/nowhere")
    assert unpriced_engines(Settings(data)) == {"local", "hosts", None}
    assert unpriced_engines(Settings(data, engine="simulated")) == {"local", "hosts"}
    assert trains_on_own_machines(Settings(data))
    assert not trains_on_own_machines(Settings(data, training_engine="simulated"))
