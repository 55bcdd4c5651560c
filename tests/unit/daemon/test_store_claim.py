"""A data directory belongs to one store: any other one is refused before anything is touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from windfall.daemon.errors import DaemonError
from windfall.daemon.serving import Ready, serve
from windfall.daemon.settings import read_settings
from windfall.daemon.store_claim import CLAIM_NAME, keep_claim, open_own_store, read_claim


def used(data: Path, **options: object) -> str:
    """Use a data directory as a daemon does at its start; the answer is the identity of its store."""
    settings = read_settings({"data": data, **options}, environment={})
    (data / "store").mkdir(parents=True, exist_ok=True)
    store = open_own_store(settings)
    try:
        keep_claim(data, store)
        return store.identity
    finally:
        store.close()


def refusal(data: Path, **options: object) -> str:
    """What a daemon says that does not start there, and that it has left everything as it was."""
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*") if path.is_file()}
    settings = read_settings({"data": data, "port": 0, **options}, environment={})

    def unexpected(_: Ready) -> None:
        pytest.fail("it has started")

    with pytest.raises(DaemonError) as refused:
        serve(settings, unexpected)
    text = str(refused.value)
    assert "\n" not in text
    after = {path: path.stat().st_mtime_ns for path in data.rglob("*") if path.is_file()}
    after.pop(data / "daemon.lock", None)
    before.pop(data / "daemon.lock", None)
    assert after == before
    return text


def test_a_directory_takes_the_first_store_and_keeps_it(tmp_path: Path):
    first = used(tmp_path)
    claim = read_claim(tmp_path)
    assert claim is not None
    assert (claim.identity, claim.where) == (first, str(tmp_path / "store" / "windfall.db"))
    assert (tmp_path / CLAIM_NAME).stat().st_mode & 0o777 == 0o600
    assert used(tmp_path) == first
    assert used(tmp_path, store=f"sqlite:///{tmp_path}/store/windfall.db") == first


def test_a_store_that_was_moved_is_the_same(tmp_path: Path):
    first = used(tmp_path)
    (tmp_path / "store" / "windfall.db").rename(tmp_path / "moved.db")
    assert used(tmp_path, store=str(tmp_path / "moved.db")) == first
    claim = read_claim(tmp_path)
    assert claim is not None
    assert claim.where == str(tmp_path / "moved.db")


def test_another_store_is_refused_and_its_own_is_named(tmp_path: Path):
    data = tmp_path / "data"
    data.mkdir()
    used(data)
    used(tmp_path / "other")
    text = refusal(data, store=f"sqlite:///{tmp_path}/other/store/windfall.db")
    assert f"belongs to the store {data}/store/windfall.db" in text
    assert "leave out --store" in text
    assert "--data DIR" in text
    assert "//" not in text


def test_a_new_store_is_not_begun_in_a_directory_that_has_one(tmp_path: Path):
    data = tmp_path / "data"
    data.mkdir()
    used(data, store=str(tmp_path / "own.db"))
    text = refusal(data)
    assert f"belongs to the store {tmp_path}/own.db" in text
    assert "name it with --store" in text
    assert not (data / "store" / "windfall.db").exists()
    assert not (data / "keys.json").exists()


@pytest.mark.parametrize("harm", ["removed", "emptied"])
def test_a_store_that_is_gone_is_missed(tmp_path: Path, harm: str):
    used(tmp_path)
    file = tmp_path / "store" / "windfall.db"
    if harm == "removed":
        file.unlink()
    else:
        os.truncate(file, 0)
    text = refusal(tmp_path)
    assert f"{file} of the data directory {tmp_path} is missing or empty" in text
    assert f"remove {tmp_path / CLAIM_NAME}" in text
    (tmp_path / CLAIM_NAME).unlink()
    assert used(tmp_path)


def test_a_directory_whose_note_cannot_be_read_is_not_guessed_about(tmp_path: Path):
    used(tmp_path)
    (tmp_path / CLAIM_NAME).write_text("{")
    assert f"{tmp_path / CLAIM_NAME} is damaged" in refusal(tmp_path)
