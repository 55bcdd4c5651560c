"""Runs in this process, over numpy, with the real writer process."""

from __future__ import annotations

import json
import logging
import os
import random
from pathlib import Path

import pytest

import windfall.checkpoint as ckpt
from tests.waiting import wait_until
from windfall.checkpoint.errors import Mismatch, NothingUsable, WrongUse

numpy = pytest.importorskip("numpy", reason="numpy is not installed")


def opened(directory: Path | None, **more) -> ckpt.Run:
    return ckpt.open(directory, **{"every": 10**9, **more})


def saved(directory: Path, *steps: int, **more) -> None:
    """Checkpoints in which the array equals the step."""
    state = {"x": numpy.zeros(5000), "note": "a"}
    with opened(directory, **more) as run:
        run.track(state=state)
        run.resume()
        for step in steps:
            state["x"][:] = step
            run.snapshot(step).result(200)


def resumed(directory: Path | None) -> tuple[int, float]:
    """The step that a new run begins with, and what the array holds then."""
    state = {"x": numpy.full(5000, -1.0), "note": "b"}
    with opened(directory) as run:
        run.track(state=state)
        step = run.resume()
    assert len(set(state["x"])) == 1
    return step, float(state["x"][0])


def test_an_empty_directory_begins_at_zero(tmp_path):
    assert resumed(tmp_path / "new") == (0, -1.0)


def test_a_run_that_finds_a_checkpoint_says_so_once_and_how_to_begin_anew(tmp_path, capfd, monkeypatch):
    monkeypatch.delenv("WINDFALL_CHECKPOINT_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    saved(Path("checkpoints"), 1_200)
    assert capfd.readouterr().err == "", "nothing was there"
    (manifest,) = (tmp_path / "checkpoints").glob("step-*/manifest*")
    os.utime(manifest, (0, manifest.stat().st_mtime - 7_200))
    assert resumed(None) == (1_200, 1_200.0)
    assert capfd.readouterr().err == (
        f"windfall.checkpoint: resumed at step 1,200, saved 2 h ago, from {tmp_path}/checkpoints;"
        " to begin anew, remove that directory or open another one\n"
    )
    monkeypatch.setenv("WINDFALL_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    assert resumed(None) == (1_200, 1_200.0)
    assert capfd.readouterr().err == "", "Windfall put it there"


def test_the_newest_checkpoint_comes_back_into_the_same_array(tmp_path):
    saved(tmp_path, 3, 8)
    state = {"x": numpy.zeros(5000), "note": "b"}
    array = state["x"]
    with opened(tmp_path) as run:
        run.track(state=state)
        assert run.resume() == 8
        assert run.latest() == tmp_path / "step-000000008"
    assert state["x"] is array
    assert (array == 8).all()
    assert state["note"] == "a"


def test_a_snapshot_holds_the_moment_of_the_call(tmp_path):
    """Each element is rewritten as soon as the call is back, while the writer is still writing."""
    state = {str(n): numpy.zeros(400_000) for n in range(8)}
    with opened(tmp_path, keep=10) as run:
        run.track(state=state)
        run.resume()
        for step in range(1, 6):
            for array in state.values():
                array[:] = step
            snapshot = run.snapshot(step)
            for array in state.values():
                array[:] = -step
            snapshot.result(200)
            found = ckpt.reading.read_manifest(snapshot.path)
            image = memoryview(bytearray(found.size))
            ckpt.reading.read_image(snapshot.path, found, image)
            for path, extent in found.leaves.items():
                if path.startswith("state/"):
                    piece = image[extent.offset : extent.offset + extent.nbytes]
                    assert (numpy.frombuffer(piece) == step).all()


def damage(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0xFF
    path.write_bytes(raw)


@pytest.mark.parametrize("part", ["segment-0000.bin", "manifest.json"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, caplog, part):
    saved(tmp_path, 3, 8)
    damage(tmp_path / "step-000000008" / part, 100)
    with caplog.at_level(logging.WARNING, "windfall.checkpoint"):
        assert resumed(tmp_path) == (3, 3.0)
    assert "step 8 is passed over" in caplog.text
    assert resumed(tmp_path) == (3, 3.0)


@pytest.mark.parametrize("harm", ["short", "absent"])
def test_a_segment_that_is_short_or_absent_is_noticed(tmp_path, harm):
    saved(tmp_path, 3, 8)
    segment = tmp_path / "step-000000008" / "segment-0000.bin"
    if harm == "short":
        segment.write_bytes(segment.read_bytes()[:-1])
    else:
        segment.unlink()
    assert resumed(tmp_path) == (3, 3.0)


def test_latest_is_never_trusted(tmp_path):
    saved(tmp_path, 3, 8)
    (tmp_path / "LATEST").write_text("step-000000003\n")
    assert resumed(tmp_path) == (8, 8.0)


def test_nothing_but_damage_is_an_error_not_a_new_beginning(tmp_path):
    saved(tmp_path, 3)
    damage(tmp_path / "step-000000003" / "segment-0000.bin", 5)
    with opened(tmp_path) as run:
        run.track(state={"x": numpy.zeros(5000), "note": ""})
        with pytest.raises(NothingUsable, match="intact copy"):
            run.resume()


def test_so_many_are_kept(tmp_path):
    saved(tmp_path, 1, 2, 3, 4, 5, keep=2)
    assert [path.name for path in sorted(tmp_path.glob("step-*"))] == ["step-000000004", "step-000000005"]


def test_steps_decide_when_to_save(tmp_path):
    state = {"x": numpy.zeros(100)}
    with opened(tmp_path, every=5, keep=100) as run:
        run.track(state=state)
        run.resume()
        for step in range(1, 21):
            run.step(step)
            assert run.wait(60)
        assert run.skipped == 0
    assert [int(path.name[5:]) for path in sorted(tmp_path.glob("step-*"))] == [5, 10, 15, 20]


def test_a_save_while_another_is_under_way_is_left_out_and_counted(tmp_path):
    state = {"x": numpy.zeros(3_000_000)}
    with opened(tmp_path, every=1) as run:
        run.track(state=state)
        run.resume()
        for step in range(1, 200):
            run.step(step)
        assert run.skipped > 0
        assert run.wait(60)


def test_time_decides_when_to_save(tmp_path):
    state = {"x": numpy.zeros(100)}
    with opened(tmp_path, every="0.3s") as run:
        run.track(state=state)
        run.resume()
        steps = iter(range(1, 10**9))

        def saved_twice() -> bool:
            run.step(next(steps))
            return len(list(tmp_path.glob("step-*"))) >= 2

        wait_until(saved_twice, "two checkpoints", 30, interval_s=0.01)


def test_done_saves_the_last_step_once(tmp_path):
    state = {"x": numpy.zeros(100)}
    run = opened(tmp_path)
    run.track(state=state)
    run.resume()
    run.step(4)
    run.done()
    run.done()
    assert json.loads((tmp_path / "step-000000004" / "manifest.json").read_text())["final"] is True


def test_an_error_in_the_loop_saves_nothing(tmp_path):
    run = opened(tmp_path)
    run.track(state={"x": numpy.zeros(10)})
    run.resume()
    run.step(4)
    with pytest.raises(ZeroDivisionError), run:
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_random_generators_are_part_of_the_state_unless_told_otherwise(tmp_path):
    random.seed(5)
    numpy.random.seed(5)
    with opened(tmp_path) as run:
        run.resume()
        run.snapshot(1).result(200)
    expected = (random.random(), numpy.random.rand())
    random.seed(6)
    numpy.random.seed(6)
    with opened(tmp_path) as run:
        run.resume()
    assert (random.random(), numpy.random.rand()) == expected
    random.seed(6)
    mine = random.random()
    random.seed(6)
    with opened(tmp_path) as run:
        run.track(rng=False)
        run.resume()
    assert random.random() == mine


def test_plain_files_come_back(tmp_path, monkeypatch):
    work = tmp_path / "work"
    (work / "logs").mkdir(parents=True)
    monkeypatch.chdir(work)
    (work / "logs" / "loss.csv").write_text("1,2\n")
    with opened(tmp_path / "ck") as run:
        run.track_files("logs/*.csv")
        run.resume()
        run.snapshot(1).result(200)
    (work / "logs" / "loss.csv").write_text("1,2\n3,4\n")
    (work / "logs" / "other.csv").write_text("stays")
    with opened(tmp_path / "ck") as run:
        run.track_files("logs/*.csv")
        run.resume()
    assert (work / "logs" / "loss.csv").read_text() == "1,2\n"
    assert (work / "logs" / "other.csv").read_text() == "stays"


def test_state_that_grows_is_saved_whole(tmp_path):
    state = {"x": numpy.ones(10)}
    with opened(tmp_path) as run:
        run.track(state=state)
        run.resume()
        run.snapshot(1).result(200)
        state["y"] = numpy.full(400_000, 2.0)
        run.snapshot(2).result(200)
    again = {"x": numpy.zeros(10), "y": numpy.zeros(400_000)}
    with opened(tmp_path) as run:
        run.track(state=again)
        assert run.resume() == 2
    assert (again["y"] == 2.0).all()


def test_a_name_is_given_once(tmp_path):
    with opened(tmp_path) as run:
        run.track(model={})
        with pytest.raises(WrongUse, match="'model' is tracked already"):
            run.track(model={})


def test_a_step_before_resume_does_not_bury_what_is_there(tmp_path):
    saved(tmp_path, 50)
    with opened(tmp_path) as run:
        run.track(state={"x": numpy.zeros(5000), "note": ""})
        with pytest.raises(WrongUse, match=r"call resume\(\)"):
            run.step(1)
        run._step = 0
    assert resumed(tmp_path) == (50, 50.0)


def test_an_object_that_the_checkpoint_lacks_is_named(tmp_path):
    saved(tmp_path, 5)
    with opened(tmp_path) as run:
        run.track(state={"x": numpy.zeros(5000), "note": ""}, ema={"y": numpy.zeros(3)})
        with pytest.raises(Mismatch, match="nothing for ema"):
            run.resume()


def test_two_runs_do_not_share_a_directory(tmp_path):
    first = opened(tmp_path)
    first.resume()
    second = opened(tmp_path, lock_wait_s=0.1)
    with pytest.raises(WrongUse, match="directory of its own"):
        second.resume()
    first.done()
    second.done()


def test_progress_is_written_for_windfall(tmp_path, monkeypatch):
    told = tmp_path / "progress.json"
    told.write_text(json.dumps({"step": 12}))
    monkeypatch.setenv("WINDFALL_PROGRESS_FILE", str(told))
    saved(tmp_path / "ck", 9)
    told.write_text(json.dumps({"step": 12}))
    with opened(tmp_path / "ck", steps=40) as run:
        run.track(state={"x": numpy.zeros(5000), "note": ""})
        run.resume()
        run.step(10, loss=0.5)
        run.snapshot(10).result(200)
        wait_until(lambda: json.loads(told.read_text()).get("saved_step") == 10, "progress")
    found = json.loads(told.read_text())
    assert (found["steps"], found["loss"]) == (40, 0.5)
    assert (found["step"], found["restored_step"], found["steps_redone"]) == (10, 9, 3)
    assert found["stall_s"] > 0
    assert found["first_step_at"] <= found["at"]


def test_the_directory_comes_from_the_argument_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory = ckpt.settings.checkpoint_directory
    assert directory("here", {}) == tmp_path / "here"
    assert directory(None, {"WINDFALL_CHECKPOINT_DIR": "/a", "SM_CHECKPOINT_DIR": "/b"}) == Path("/a")
    assert directory(None, {"SM_CHECKPOINT_DIR": "/b"}) == Path("/b")


@pytest.mark.parametrize("more", [{"budget": 0}, {"budget": 2}, {"keep": 0}, {"every": "soon"}])
def test_arguments_that_make_no_sense_are_refused(tmp_path, more):
    with pytest.raises(WrongUse):
        opened(tmp_path, **more)


def test_an_object_that_cannot_be_stored_is_named_by_its_argument(tmp_path):
    run = ckpt.open(tmp_path)
    run.track(state={"x": 1}, connection=object())
    run.resume()
    with pytest.raises(
        ckpt.NotTrackable, match=r"^run\.track\(connection=\.\.\.\): the tracked object is a "
    ):
        run.step(1)
    run.done(save=False)
