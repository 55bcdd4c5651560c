"""What of object storage can be opened for an attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.agent.courier.moody_store import Mood
from windfall.jobs.storage import Grant, StorageAccess
from windfall.objects.errors import Refused

ACCESS = StorageAccess((Grant("s3://mine", write=True), Grant("s3://public"), Grant("s3://data/one.csv")))


@pytest.fixture
def mood(tmp_path: Path) -> Mood:
    return Mood(tmp_path / "store")


def test_every_uri_is_checked(mood: Mood):
    stores = mood.stores(ACCESS)
    stores.open("s3://mine/a", write=True).put("x", b"1")
    assert stores.open("s3://mine").get("a/x") == b"1"
    for uri, write in (
        ("s3://other", False),
        ("file:///etc", False),
        ("s3://public", True),
        ("s3://mine2", False),
    ):
        with pytest.raises(Refused, match="windfall storage add"):
            stores.open(uri, write=write)
    mood.stores(StorageAccess()).open("s3://other", write=True).put("x", b"1")


def test_what_is_opened_to_be_read_is_not_written(mood: Mood, tmp_path: Path):
    store = mood.stores(ACCESS).open("s3://mine")
    for write in (
        lambda: store.put("k", b""),
        lambda: store.put_pieces("k", [b""]),
        lambda: store.put_file("k", tmp_path / "f"),
        lambda: store.copy("a", "k"),
        lambda: store.delete(["k"]),
    ):
        with pytest.raises(Refused, match="may not write to s3://mine/k"):
            write()


def test_one_object_is_opened_for_itself_alone(mood: Mood, tmp_path: Path):
    mood.stores(StorageAccess()).open("s3://data", write=True).put("one.csv", b"1")
    mood.stores(StorageAccess()).open("s3://data", write=True).put("two.csv", b"2")
    store, name = mood.stores(ACCESS).open_object("s3://data/one.csv")
    assert store.get(name) == b"1"
    for read in (
        lambda: store.get("two.csv"),
        lambda: store.get_range("two.csv", 0, 1),
        lambda: store.get_file("two.csv", tmp_path / "f"),
        lambda: store.head("two.csv"),
        store.list,
    ):
        with pytest.raises(Refused):
            read()
    with pytest.raises(Refused):
        mood.stores(ACCESS).open_object("s3://data/two.csv")
