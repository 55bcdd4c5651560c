"""The watch beside the agent's loop: it never blocks the loop, and says what it does not know."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until
from windfall.agent.devices import watcher as module
from windfall.agent.devices.readings import HealthRules, Reading
from windfall.agent.devices.sources import CannotRead, FixedSource
from windfall.agent.devices.watcher import DeviceWatcher

A = Reading("GPU-a", "A")


class ScriptedSource:
    """Reads what the test puts there, one reading at a time."""

    changes = True
    tells_within_s = 0.3

    def __init__(self) -> None:
        self.rules = HealthRules()
        self.now: list[Reading] | Exception = [A]
        self.go = threading.Semaphore(0)
        self.hold = threading.Event()
        self.hold.set()
        self.reads = 0

    def read(self) -> list[Reading]:
        self.hold.wait(30)
        self.reads += 1
        if isinstance(self.now, Exception):
            raise self.now
        return self.now

    def wait(self) -> None:
        self.go.acquire()

    def turn(self) -> None:
        """Have it read once more, to the end."""
        reads = self.reads
        self.go.release()
        wait_until(lambda: self.reads > reads, "a reading")


@pytest.fixture
def source() -> Iterator[ScriptedSource]:
    scripted = ScriptedSource()
    yield scripted
    scripted.hold.set()


def watch(
    source: ScriptedSource, tmp_path: Path, boot: str = "boot"
) -> tuple[DeviceWatcher, threading.Event]:
    told = threading.Event()
    return DeviceWatcher(source, told.set, str(tmp_path / "devices.json"), boot), told


def test_no_source_and_a_fixed_one_need_no_thread(tmp_path: Path):
    threads = threading.active_count()
    assert DeviceWatcher(None, lambda: None, str(tmp_path / "m"), "b").start() == []
    fixed = DeviceWatcher(FixedSource([A]), lambda: None, str(tmp_path / "m"), "b")
    assert [gpu.id for gpu in fixed.start()] == ["GPU-a"]
    assert (fixed.take(), fixed.next_due) == (None, None)
    assert threading.active_count() == threads


def test_a_change_wakes_the_loop_once(source: ScriptedSource, tmp_path: Path):
    watcher, told = watch(source, tmp_path)
    assert [gpu.fence for gpu in watcher.start()] == [None]
    told.clear()
    source.turn()
    assert watcher.take() is None
    source.now = [Reading("GPU-a", "A", xids=(79,))]
    source.turn()
    assert told.wait(30)
    [gpu] = watcher.take() or []
    assert gpu.evacuate
    assert watcher.take() is None


def test_a_driver_that_fails_once_is_forgiven_and_one_that_goes_on_keeps_new_jobs_away(
    source: ScriptedSource, tmp_path: Path
):
    watcher, told = watch(source, tmp_path)
    watcher.start()
    told.clear()
    source.now = CannotRead("Unknown Error")
    source.turn()
    source.turn()
    assert watcher.take() is None
    source.turn()
    assert told.wait(30)
    [gpu] = watcher.take() or []
    assert (gpu.fence, gpu.evacuate, gpu.lost) == ("it cannot be read: Unknown Error", False, False)
    told.clear()
    source.now = [A]
    source.turn()
    assert told.wait(30)
    assert [gpu.fence for gpu in watcher.take() or []] == [None]


def test_a_reading_that_hangs_fences_all_until_it_ends(
    source: ScriptedSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    watcher, told = watch(source, tmp_path)
    watcher.start()
    told.clear()
    monkeypatch.setattr(module, "_STUCK_S", 0.0)
    source.hold.clear()
    source.go.release()
    found = []
    wait_until(lambda: found.append(watcher.take()) or found[-1] is not None, "the loop to see it")
    [gpu] = found[-1] or []
    assert "has not answered" in (gpu.fence or "")
    assert not gpu.evacuate
    assert watcher.next_due is None
    monkeypatch.undo()
    source.hold.set()
    assert told.wait(30)
    assert [gpu.fence for gpu in watcher.take() or []] == [None]


def test_the_next_agent_knows_what_this_one_saw_unless_the_machine_was_started_again(
    source: ScriptedSource, tmp_path: Path
):
    watcher, told = watch(source, tmp_path)
    watcher.start()
    source.now = [Reading("GPU-a", "A", xids=(48,))]
    told.clear()
    source.turn()
    assert told.wait(30)
    source.now = [A]
    wait_until(lambda: b"XID 48" in (tmp_path / "devices.json").read_bytes(), "its memory to be written")
    later, _ = watch(source, tmp_path)
    assert "XID 48" in (later.start()[0].fence or "")
    rebooted, _ = watch(source, tmp_path, "another boot")
    assert rebooted.start()[0].fence is None
