from __future__ import annotations

from pathlib import Path

from windfall.checkpoint import directory as places


def a_checkpoint(directory: Path, step: int) -> Path:
    place = places.workplace(directory, step)
    (place / "manifest.json").write_text("{}")
    return places.commit(directory, place, step)


def test_a_commit_is_one_rename_and_latest_follows(tmp_path):
    place = places.workplace(tmp_path, 5)
    (place / "manifest.json").write_text("{}")
    assert places.committed_steps(tmp_path) == []
    final = places.commit(tmp_path, place, 5)
    assert final == tmp_path / "step-000000005"
    assert places.committed_steps(tmp_path) == [5]
    assert (tmp_path / "LATEST").read_text() == "step-000000005\n"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["LATEST", "step-000000005"]


def test_steps_are_ordered_as_numbers(tmp_path):
    for step in (2, 1_000_000_000, 999_999_999):
        a_checkpoint(tmp_path, step)
    assert places.committed_steps(tmp_path) == [1_000_000_000, 999_999_999, 2]


def test_a_directory_without_a_manifest_is_no_checkpoint(tmp_path):
    (tmp_path / "step-000000009").mkdir()
    (tmp_path / "step-x").mkdir()
    assert places.committed_steps(tmp_path) == []
    assert places.committed_steps(tmp_path / "absent") == []


def test_only_older_ones_go(tmp_path):
    for step in (10, 20, 30, 40, 50):
        a_checkpoint(tmp_path, step)
    places.retain(tmp_path, keep=2, newest=40)
    assert places.committed_steps(tmp_path) == [50, 40, 30]


def test_a_step_that_is_reached_again_replaces_the_old_one(tmp_path):
    a_checkpoint(tmp_path, 10)
    place = places.workplace(tmp_path, 10)
    (place / "manifest.json").write_text("new")
    places.commit(tmp_path, place, 10)
    assert (tmp_path / "step-000000010" / "manifest.json").read_text() == "new"


def test_what_is_damaged_stays_until_a_newer_one_is_committed(tmp_path):
    a_checkpoint(tmp_path, 10)
    places.set_aside(tmp_path, 10)
    assert places.committed_steps(tmp_path) == []
    places.clear_unfinished(tmp_path)
    assert (tmp_path / ".step-000000010.damaged.tmp").is_dir()
    a_checkpoint(tmp_path, 9)
    places.retain(tmp_path, keep=3, newest=9)
    assert not (tmp_path / ".step-000000010.damaged.tmp").exists()


def test_leftovers_of_a_killed_writer_are_cleared_and_nothing_else(tmp_path):
    places.workplace(tmp_path, 3)
    (tmp_path / ".LATEST.tmp").write_text("x")
    (tmp_path / ".mine.tmp").write_text("x")
    a_checkpoint(tmp_path, 4)
    places.clear_unfinished(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".mine.tmp", "LATEST", "step-000000004"]
