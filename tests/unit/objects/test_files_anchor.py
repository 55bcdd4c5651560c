"""A directory that is not mounted is no empty store."""

from __future__ import annotations

import pytest

from windfall.objects.errors import NotFound, Unreachable
from windfall.objects.opening import ANCHOR_VARIABLE, open_objects


@pytest.fixture
def anchor(tmp_path):
    return tmp_path / "objects"


@pytest.fixture
def store(anchor):
    anchor.mkdir()
    return open_objects((anchor / "job").as_uri(), environment={ANCHOR_VARIABLE: str(anchor)})


@pytest.mark.parametrize("instead", ["nothing", "a file"])
def test_nothing_is_read_or_made_where_the_store_was(store, anchor, instead):
    store.put("one", b"1")
    anchor.rename(anchor.with_name("away"))
    if instead == "a file":
        anchor.write_text("")
    for attempt in (
        lambda: store.put("two", b"2"),
        lambda: store.get("one"),
        lambda: list(store.list()),
        lambda: store.head("one"),
    ):
        with pytest.raises(Unreachable, match="not there"):
            attempt()
    assert not anchor.is_dir()


def test_it_is_the_same_store_when_it_is_back(store, anchor):
    store.put("one", b"1")
    anchor.rename(anchor.with_name("away"))
    anchor.with_name("away").rename(anchor)
    assert store.get("one") == b"1"
    with pytest.raises(NotFound):
        store.get("two")


def test_a_store_elsewhere_has_no_anchor(tmp_path, anchor):
    elsewhere = open_objects((tmp_path / "x" / "y").as_uri(), environment={ANCHOR_VARIABLE: str(anchor)})
    elsewhere.put("one", b"1")
    assert elsewhere.get("one") == b"1"
