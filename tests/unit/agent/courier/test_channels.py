"""Which objects a channel names and what its pipes say."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import pytest

from tests.unit.agent.courier.moody_store import Mood
from windfall.agent.courier.channels import bring_channel, pieces_of
from windfall.agent.courier.errors import CannotBring
from windfall.agent.courier.pipes import epoch, record
from windfall.agent.courier.tree import Tree
from windfall.jobs.staging import Channel


@pytest.fixture
def mood(tmp_path: Path) -> Mood:
    return Mood(tmp_path / "store")


def fill(mood: Mood, **objects: str | bytes) -> None:
    for name, content in objects.items():
        path = mood.root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def names(mood: Mood, uri: str, **fields: object) -> list[str]:
    return [piece.name for piece in pieces_of(Channel("train", uri, **fields), mood.open)]  # type: ignore[arg-type]  # any field


def test_a_prefix_is_a_directory_an_object_or_the_beginning_of_names(mood: Mood):
    fill(mood, data__train__b="", data__train__a__c="", data__train2="", data__train3__x="")
    assert names(mood, "mood://data/train") == ["a/c", "b"]
    assert names(mood, "mood://data/train/") == ["a/c", "b"]
    assert names(mood, "mood://data/train2") == ["train2"]
    assert names(mood, "mood://data/tr") == ["train/a/c", "train/b", "train2", "train3/x"]
    with pytest.raises(CannotBring, match='no objects are found under "mood://data/none"'):
        names(mood, "mood://data/none")


def test_a_manifest_names_its_objects(mood: Mood):
    fill(mood, m=json.dumps([{"prefix": "mood://data/tr"}, "ain/b", "ain2"]), bad='{"prefix": 1}')
    pieces = pieces_of(Channel("train", "mood:///m", kind="ManifestFile"), mood.open)
    assert [(piece.store.uri, piece.key, piece.name) for piece in pieces] == [
        ("mood://data", "train/b", "ain/b"),
        ("mood://data", "train2", "ain2"),
    ]
    with pytest.raises(CannotBring, match="is no manifest"):
        names(mood, "mood:///bad", kind="ManifestFile")


def test_a_divided_channel_gives_every_object_to_one_node(mood: Mood):
    fill(mood, **{f"data__{letter}": "" for letter in "abcdefg"})
    parts = [names(mood, "mood://data", part=(number, 3)) for number in range(3)]
    assert parts == [["a", "d", "g"], ["b", "e"], ["c", "f"]]
    fill(mood, m=json.dumps([{"prefix": "mood://data/"}, "a", "b", "c"]))
    assert names(mood, "mood:///m", kind="ManifestFile", part=(1, 2)) == ["b"]
    # More nodes than objects: the last ones have none, which is no error.
    assert names(mood, "mood://data", part=(8, 9)) == []


def test_a_channel_becomes_files(mood: Mood, tmp_path: Path):
    fill(mood, train__a="1", train__deep__b="2")
    tree = Tree(str(tmp_path / "tree"), None)
    tree.empty()
    bring_channel(Channel("train", "mood://train"), mood.open, tree, lambda: None)
    data = tmp_path / "tree" / "input" / "data" / "train"
    assert {str(p.relative_to(data)): p.read_text() for p in data.rglob("*") if p.is_file()} == {
        "a": "1",
        "deep/b": "2",
    }
    with pytest.raises(CannotBring, match="cannot be the name of a channel"):
        bring_channel(Channel("../x", "mood://train"), mood.open, tree, lambda: None)


# --- pipes ------------------------------------------------------------------------------------------


def said(mood: Mood, number: int = 0, uri: str = "mood://train", **fields: object) -> bytes:
    channel = Channel("train", uri, "Pipe", **fields)  # type: ignore[arg-type]  # any field
    return b"".join(epoch(channel, mood.open, number))


def unframed(content: bytes) -> list[bytes]:
    records = []
    while content:
        magic, length = struct.unpack_from("<II", content)
        assert magic == 0xCED7230A
        records.append(content[8 : 8 + length])
        content = content[8 + length + (-length % 4) :]
    return records


def test_a_pipe_says_all_objects_in_their_order(mood: Mood):
    large = bytes(range(256)) * 20_000
    fill(mood, train__b="two", train__a=large)
    assert said(mood) == large + b"two"


def test_gzip_is_opened_also_in_several_members(mood: Mood):
    fill(
        mood,
        train__a=gzip.compress(b"one", mtime=0) + gzip.compress(b"two"),
        train__b=gzip.compress(b"three"),
    )
    assert said(mood, compression="Gzip") == b"onetwothree"


@pytest.mark.parametrize(
    ("content", "words"), [(b"plain", "not compressed"), (gzip.compress(b"x" * 99, mtime=0)[:-9], "cut off")]
)
def test_bad_gzip_is_an_error_and_not_an_early_end(mood: Mood, content: bytes, words: str):
    fill(mood, train__a=content)
    with pytest.raises(CannotBring, match=words):
        said(mood, compression="Gzip")


def test_each_object_is_a_record(mood: Mood):
    fill(mood, train__a="1234", train__b="12345", train__c="")
    assert unframed(said(mood, record_wrapper="RecordIO")) == [b"1234", b"12345", b""]
    assert b"".join(record(b"abc")) == struct.pack("<II", 0xCED7230A, 3) + b"abc\0"


def test_shuffling_is_by_seed_and_epoch(mood: Mood):
    fill(mood, **{f"train__{letter}": letter for letter in "abcdefgh"})
    orders = [said(mood, number, shuffle_seed=5) for number in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]
    assert sorted(orders[0]) == sorted(b"abcdefgh")


def test_an_augmented_manifest_says_its_attributes_line_by_line(mood: Mood):
    lines = [{"image-ref": "mood://images/1", "label": 3}, {"image-ref": "mood://images/2", "label": "cat"}]
    fill(mood, images__1="one", images__2="two", m="\n".join(json.dumps(line) for line in lines))
    fields = {
        "kind": "AugmentedManifestFile",
        "record_wrapper": "RecordIO",
        "attributes": ("image-ref", "label"),
    }
    assert unframed(said(mood, uri="mood:///m", **fields)) == [b"one", b"3", b"two", b"cat"]
    with pytest.raises(CannotBring, match="has no missing"):
        said(mood, uri="mood:///m", **{**fields, "attributes": ("missing",)})
