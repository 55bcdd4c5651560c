"""One attempt in the courier while the object store is slow, away, or comes back."""

from __future__ import annotations

import shutil
import tarfile
import time
from pathlib import Path

import pytest

from tests.deep import LEVELS, deep_directory
from tests.unit.agent.courier.moody_store import Mood
from tests.waiting import wait_until
from windfall.agent.courier.errand import RunningErrand
from windfall.agent.courier.late import LateErrand
from windfall.agent.courier.messages import (
    Dropped,
    Errand,
    Finish,
    Finished,
    Line,
    News,
    Prepared,
    PrepareFailed,
    Store,
    Stored,
)
from windfall.agent.places import PROGRESS, Places
from windfall.agent.settings import AgentSettings
from windfall.jobs.staging import Channel, Checkpoints, Output, Staging
from windfall.jobs.storage import StorageAccess

CHECKPOINTS = Checkpoints("mood://job", "/opt/ml/checkpoints")


class Run:
    """An errand with what it has said; the job is the test itself."""

    def __init__(self, root: Path, staging: Staging, fence: int = 1) -> None:
        self.root = root / f"attempt-{fence}.ml"
        self.mood = Mood(root / "store")
        self.said: list[Line] = []
        settings = AgentSettings(str(root / "agent"), str(root))
        self.errand = Errand(
            "t", Places(str(self.root), staging, sandboxed=True), str(self.root), fence, StorageAccess()
        )
        self.settings = settings
        self.running = RunningErrand(self.errand, settings, self.said.append, self.mood.open)

    def of(self, kind: type) -> list[Line]:
        return [line for line in self.said if isinstance(line, kind)]

    def prepared(self) -> Run:
        self.running.prepare()
        wait_until(lambda: self.of(Prepared) or self.of(PrepareFailed), "everything is brought")
        assert not self.of(PrepareFailed), self.said
        return self

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def finish(self, within_s: float = 60.0, code: int = 0, **fields: bool) -> None:
        values = {"interrupted": False, "lose": False, **fields}
        deadline_at = int((time.time() + within_s) * 1000)
        self.running.finish(Finish(self.errand, code, deadline_at=deadline_at, **values))

    def finished(self) -> Finished:
        wait_until(lambda: self.of(Finished), "it is finished")
        (line,) = self.of(Finished)
        assert isinstance(line, Finished)
        return line

    def alarms(self) -> list[str]:
        return [line.alarm for line in self.said if isinstance(line, News) and line.alarm]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path, Staging(checkpoints=CHECKPOINTS))


def restored(tmp_path: Path, fence: int = 9) -> dict[str, str]:
    """What the next attempt finds."""
    later = Run(tmp_path, Staging(checkpoints=CHECKPOINTS), fence).prepared()
    found = {path.name: path.read_text() for path in (later.root / "checkpoints").iterdir()}
    later.running.drop()
    wait_until(lambda: later.of(Dropped), "it is dropped")
    return found


def test_what_was_written_last_is_in_the_final_flush(run: Run, tmp_path: Path):
    run.prepared().write("checkpoints/state", "1")
    run.finish()
    finished = run.finished()
    assert finished.checkpoint is not None
    assert finished.checkpoint.name == "state"
    assert restored(tmp_path) == {"state": "1"}


def test_a_store_that_is_away_is_waited_for_before_the_start(run: Run):
    run.mood.away.set()
    run.running.prepare()
    wait_until(lambda: run.mood.calls > 1, "it asks again")

    def alarmed() -> bool:
        run.running.tick()
        return any("the store is away" in alarm for alarm in run.alarms())

    wait_until(alarmed, "somebody hears of it")
    assert not run.of(Prepared)
    run.mood.away.clear()
    wait_until(lambda: run.of(Prepared), "it is brought when the store is back")


def test_a_store_that_is_away_for_a_channel_is_an_alarm(tmp_path: Path):
    run = Run(tmp_path, Staging(channels=(Channel("train", "mood://train"),)))
    (tmp_path / "store" / "train").mkdir(parents=True)
    (tmp_path / "store" / "train" / "x").write_text("x")
    run.mood.away.set()
    run.running.prepare()

    def alarmed() -> bool:
        run.running.tick()
        return any("the store is away" in alarm for alarm in run.alarms())

    wait_until(alarmed, "somebody hears of it")
    run.mood.away.clear()
    wait_until(lambda: run.of(Prepared), "it is brought")
    assert (run.root / "input" / "data" / "train" / "x").read_text() == "x"


def test_a_damaged_checkpoint_is_passed_over_and_that_is_said(run: Run, tmp_path: Path):
    run.prepared().write("checkpoints/state", "old")
    wait_until(lambda: run.running.board.checkpoint, "the first is safe")
    run.write("checkpoints/state", "newer")
    run.finish()
    run.finished()
    chunks = tmp_path / "store" / "job" / ".windfall" / "chunks"
    (newer,) = [path for path in chunks.rglob("*") if path.is_file() and path.read_bytes() == b"newer"]
    newer.write_bytes(b"worse")
    later = Run(tmp_path, Staging(checkpoints=CHECKPOINTS), 9).prepared()
    assert (later.root / "checkpoints" / "state").read_text() == "old"
    assert any("passed over" in alarm for alarm in later.alarms())
    later.running.drop()
    wait_until(lambda: later.of(Dropped), "it is dropped")


def test_the_final_flush_tries_again_until_the_store_is_back(run: Run, tmp_path: Path):
    run.prepared()
    run.mood.away.set()
    run.write("checkpoints/state", "1")
    calls = run.mood.calls
    run.finish()
    wait_until(lambda: run.mood.calls > calls, "it tries")
    assert not run.of(Finished)
    run.mood.away.clear()
    assert run.finished().checkpoint is not None
    assert restored(tmp_path) == {"state": "1"}


@pytest.mark.parametrize("hangs", [True, False], ids=["hangs", "away"])
def test_an_interruption_ends_at_its_deadline_with_the_newest_that_is_safe(
    run: Run, tmp_path: Path, hangs: bool
):
    run.prepared().write("checkpoints/state", "1")
    wait_until(lambda: run.running.board.checkpoint, "the first is safe")
    run.write("checkpoints/state", "22")
    if hangs:
        run.mood.flowing.clear()
    else:
        run.mood.away.set()
    run.finish(within_s=0.5, code=143, interrupted=True)
    finished = run.finished()
    assert finished.checkpoint is not None
    assert finished.checkpoint.bytes == 1
    assert run.alarms()
    run.mood.away.clear()
    run.mood.flowing.set()
    assert restored(tmp_path) == {"state": "1"}


def test_a_repeated_order_can_take_time_away_or_call_it_off(run: Run):
    run.prepared()
    run.mood.flowing.clear()
    run.write("checkpoints/state", "1")
    run.finish(within_s=600)
    wait_until(run.mood.waiting.is_set, "the store holds it up")
    run.finish(within_s=600, lose=True)
    assert run.finished().checkpoint is None
    run.mood.flowing.set()


def test_what_was_cut_off_is_never_committed(run: Run, tmp_path: Path):
    run.prepared()
    run.mood.flowing.clear()
    run.write("checkpoints/state", "1")
    run.finish(within_s=600)
    wait_until(run.mood.waiting.is_set, "the store holds it up")
    run.finish(lose=True)
    run.finished()
    run.mood.flowing.set()
    assert restored(tmp_path) == {}


def test_dropping_while_it_is_being_brought_ends_it(run: Run):
    run.mood.flowing.clear()
    run.running.prepare()
    wait_until(run.mood.waiting.is_set, "it is being brought")
    run.running.drop()
    run.mood.flowing.set()
    wait_until(lambda: run.of(Dropped), "it is dropped")
    assert not run.of(Prepared)


def test_outputs_wait_for_the_store_and_what_fails_for_good_is_an_alarm(tmp_path: Path):
    outputs = (Output("/opt/ml/model", "mood:///model.tar.gz"), Output("/opt/ml/gone", "mood:///gone.tar.gz"))
    run = Run(tmp_path, Staging(outputs=outputs)).prepared()
    (run.root / "gone").rmdir()
    run.write("model/weights", "w")
    run.mood.away.set()
    calls = run.mood.calls
    run.finish()
    wait_until(lambda: run.mood.calls > calls, "it tries")
    run.mood.away.clear()
    run.finished()
    assert (tmp_path / "store" / "model.tar.gz").exists()
    assert any("/opt/ml/gone could not be stored" in alarm for alarm in run.alarms())


def test_news_are_told_on_a_change_and_no_oftener_than_once_a_second(run: Run):
    run.prepared()
    run.write(PROGRESS, '{"at": 1, "step": 1}')

    def told() -> list[News]:
        run.running.tick()
        return [line for line in run.said if isinstance(line, News) and line.progress is not None]

    wait_until(told, "the progress is told")
    for step in range(2, 50):
        run.write(PROGRESS, f'{{"at": 1, "step": {step}}}')
        run.running.tick()
    wait_until(lambda: told()[-1].progress.step == 49, "the last one is told")  # type: ignore[union-attr]  # told() has progress
    assert len(told()) < 10
    before = len(run.said)
    run.running.tick()
    assert len(run.said) == before
    run.write(PROGRESS, "torn {")
    run.running.tick()
    assert len(run.said) == before


MODEL = Output("/opt/ml/model", "mood://models/model.tar.gz")


def with_model(tmp_path: Path, output: Output = MODEL) -> Run:
    run = Run(tmp_path, Staging(outputs=(output,))).prepared()
    run.write("model/weights", "w" * 100)
    return run


def stored_late(run: Run, *outputs: Output, checkpoint: bool = False) -> None:
    LateErrand(Store(run.errand, outputs, checkpoint), run.settings, run.said.append, run.mood.open).begin()
    wait_until(lambda: run.of(Stored), "it is stored")


def test_an_output_that_cannot_be_stored_is_told_and_can_be_stored_later(tmp_path: Path):
    run = with_model(tmp_path)
    (tmp_path / "store").mkdir(exist_ok=True)
    (tmp_path / "store" / "models").write_text("a file in the way")
    run.finish()
    finished = run.finished()
    assert finished.unstored == (MODEL,)
    assert finished.why_unstored is not None
    assert finished.why_unstored.startswith("mood://models/model.tar.gz: ")
    assert any("is kept in" in alarm for alarm in run.alarms())
    (tmp_path / "store" / "models").unlink()
    stored_late(run, MODEL)
    with tarfile.open(tmp_path / "store" / "models" / "model.tar.gz") as archive:
        assert archive.getnames() == ["weights"]


def test_a_store_that_is_away_until_the_time_is_up_has_not_stored_it(tmp_path: Path):
    run = with_model(tmp_path)
    run.mood.away.set()
    run.finish(within_s=0.5)
    finished = run.finished()
    assert finished.unstored == (MODEL,)
    run.mood.away.clear()
    stored_late(run, MODEL)


def test_the_last_checkpoint_is_told_as_not_stored_and_can_be_stored_later(run: Run, tmp_path: Path):
    run.prepared().write("checkpoints/state", "1")
    run.finish(within_s=0)
    # Of what was committed before, or of nothing.
    finished = run.finished()
    assert finished.unstored_checkpoint
    assert (finished.why_unstored or "").startswith("mood://job: the last checkpoint: ")
    stored_late(run, checkpoint=True)
    assert restored(tmp_path) == {"state": "1"}


def test_a_store_that_refuses_every_write_does_not_keep_the_place(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("windfall.agent.courier.errand._SAVE_UNTAKEN_S", 0.5)
    run.prepared().write("checkpoints/state", "1")
    run.mood.read_only.set()
    run.finish(within_s=3600)
    assert run.finished().unstored_checkpoint
    run.mood.read_only.clear()
    stored_late(run, checkpoint=True)
    assert restored(tmp_path) == {"state": "1"}


@pytest.mark.parametrize("ends", [{"interrupted": True}, {"lose": True}])
def test_the_last_checkpoint_of_a_lost_place_is_not_waited_for(run: Run, ends: dict[str, bool]):
    run.prepared().write("checkpoints/state", "1")
    run.mood.away.set()
    run.finish(within_s=0, **ends)
    assert not run.finished().unstored_checkpoint


def test_a_checkpoint_that_a_later_attempt_has_superseded_is_not_stored_late(run: Run, tmp_path: Path):
    run.prepared().write("checkpoints/state", "1")
    run.mood.away.set()
    run.finish(within_s=0)
    assert run.finished().unstored_checkpoint
    later = Run(tmp_path, Staging(checkpoints=CHECKPOINTS), 5).prepared()
    later.write("checkpoints/state", "2")
    later.finish()
    assert not later.finished().unstored_checkpoint
    run.mood.away.clear()
    stored_late(run, checkpoint=True)
    assert restored(tmp_path) == {"state": "2"}


def test_a_store_that_is_full_is_waited_for(tmp_path: Path):
    run = with_model(tmp_path)
    run.mood.full.set()
    run.finish()
    wait_until(
        lambda: run.running.tick() or any("is full" in alarm for alarm in run.alarms()), "somebody hears"
    )
    assert not run.of(Finished)
    run.mood.full.clear()
    assert run.finished().unstored == ()


def test_what_was_removed_by_hand_is_not_waited_for(tmp_path: Path):
    run = with_model(tmp_path)
    run.mood.away.set()
    run.finish(within_s=0.2)
    run.finished()
    shutil.rmtree(run.root)
    stored_late(run, MODEL)


def test_what_is_lost_with_its_host_is_not_wanted_any_more(tmp_path: Path):
    run = with_model(tmp_path)
    run.mood.away.set()
    run.finish(lose=True)
    assert run.finished().unstored == ()


@pytest.mark.parametrize("uri", ["mood://models/deep/model.tar.gz", "mood://models/../x"])
def test_where_outputs_go_is_checked_before_the_start(tmp_path: Path, uri: str):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "models").write_text("a file in the way")
    run = Run(tmp_path, Staging(outputs=(Output("/opt/ml/model", uri),)))
    run.running.prepare()
    wait_until(lambda: run.of(PrepareFailed), "it is refused")
    (failed,) = run.of(PrepareFailed)
    assert isinstance(failed, PrepareFailed)
    assert "/opt/ml/model could not be stored in" in failed.reason


def test_an_output_of_any_depth_is_stored(tmp_path: Path):
    run = with_model(tmp_path)
    with deep_directory(run.root / "model"):
        run.finish()
        assert run.finished().unstored == ()
    with tarfile.open(tmp_path / "store" / "models" / "model.tar.gz") as archive:
        assert len(archive.getnames()) == LEVELS + 2
