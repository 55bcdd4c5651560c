"""Which objects a channel names and what its pipes say."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import pytest

from tests.unit.agent.courier.moody_store import Mood
from windfall.agent.courier import channels, pipes
from windfall.agent.courier.channels import bring_channel, pieces_of
from windfall.agent.courier.errors import CannotBring
from windfall.agent.courier.pipes import epoch, record
from windfall.agent.courier.tree import Tree
from windfall.jobs.staging import Channel
from windfall.jobs.storage import Grant, StorageAccess
from windfall.objects.errors import BadUri, NotFound, ObjectsError, Refused


@pytest.fixture
def mood(tmp_path: Path) -> Mood:
    return Mood(tmp_path / "store")


def fill(mood: Mood, **objects: str | bytes) -> None:
    for name, content in objects.items():
        path = mood.root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def names(mood: Mood, uri: str, **fields: object) -> list[str]:
    return [piece.name for piece in pieces_of(Channel("train", uri, **fields), mood.stores())]  # type: ignore[arg-type]  # any field


def test_a_prefix_is_a_directory_an_object_or_the_beginning_of_names(mood: Mood):
    fill(mood, data__train__b="", data__train__a__c="", data__train2="", data__train3__x="")
    assert names(mood, "s3://data/train") == ["a/c", "b"]
    assert names(mood, "s3://data/train/") == ["a/c", "b"]
    assert names(mood, "s3://data/train2") == ["train2"]
    assert names(mood, "s3://data/tr") == ["train/a/c", "train/b", "train2", "train3/x"]
    with pytest.raises(CannotBring, match='no objects are found under "s3://data/none"'):
        names(mood, "s3://data/none")


def test_a_manifest_names_its_objects(mood: Mood):
    fill(
        mood,
        manifests__m=json.dumps([{"prefix": "s3://data/tr"}, "ain/b", "ain2"]),
        manifests__bad='{"prefix": 1}',
    )
    pieces = pieces_of(Channel("train", "s3://manifests/m", kind="ManifestFile"), mood.stores())
    assert [(piece.store.uri, piece.key, piece.name) for piece in pieces] == [
        ("s3://data", "train/b", "ain/b"),
        ("s3://data", "train2", "ain2"),
    ]
    with pytest.raises(CannotBring, match="is not a manifest"):
        names(mood, "s3://manifests/bad", kind="ManifestFile")


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'[{"prefix": "s3://data/"}, {"key": 1}]',
        b'[{"prefix": 5}]',
        b"\xff\xfe[\0]\0",
        b"null",
    ],
)
def test_what_is_no_manifest_is_told_in_one_line(mood: Mood, content: bytes):
    fill(mood, manifests__m=content)
    with pytest.raises(CannotBring, match="is not a manifest: it must read"):
        names(mood, "s3://manifests/m", kind="ManifestFile")
    augmented = Channel("c", "s3://manifests/m", "Pipe", "AugmentedManifestFile", attributes=("x",))
    with pytest.raises(CannotBring, match="a line of s3://manifests/m is not a JSON object"):
        list(epoch(augmented, mood.stores(), 0))


def test_a_mark_of_the_encoding_is_no_part_of_a_manifest(mood: Mood):
    text = json.dumps([{"prefix": "s3://data/"}, "a"])
    fill(mood, manifests__m=b"\xef\xbb\xbf" + text.encode(), manifests__a=b'\xef\xbb\xbf{"x": "y"}')
    assert names(mood, "s3://manifests/m", kind="ManifestFile") == ["a"]
    assert said(mood, uri="s3://manifests/a", kind="AugmentedManifestFile", attributes=("x",)) == b"y"


def test_a_manifest_that_memory_should_not_hold_is_refused(mood: Mood, monkeypatch):
    monkeypatch.setattr(channels, "_MANIFEST_BYTES", 1 << 20)
    monkeypatch.setattr(pipes, "_MANIFEST_BYTES", 1 << 20)
    fill(mood, manifests__m=b" " * ((1 << 20) + 1))
    with pytest.raises(CannotBring, match="is larger than 1 MiB"):
        names(mood, "s3://manifests/m", kind="ManifestFile")
    with pytest.raises(CannotBring, match="is larger than 1 MiB"):
        said(mood, uri="s3://manifests/m", kind="AugmentedManifestFile", attributes=("x",))


def test_after_a_failure_not_all_the_rest_is_brought(mood: Mood, tmp_path: Path):
    keys = ["missing", *(f"k{number}" for number in range(2000))]
    fill(mood, data__k="x", manifests__m=json.dumps([{"prefix": "s3://data/"}, *keys]))
    for key in keys[1:]:
        (mood.root / "data" / key).write_bytes(b"x")
    tree = Tree(str(tmp_path / "tree"), None)
    tree.empty()
    with pytest.raises(NotFound):
        bring_channel(
            Channel("train", "s3://manifests/m", kind="ManifestFile"), mood.stores(), tree, str(tmp_path)
        )
    brought = list((tmp_path / "tree" / "input" / "data" / "train").iterdir())
    assert len(brought) < len(keys) // 2


def test_a_divided_channel_gives_every_object_to_one_node(mood: Mood):
    fill(mood, **{f"data__{letter}": "" for letter in "abcdefg"})
    parts = [names(mood, "s3://data", part=(number, 3)) for number in range(3)]
    assert parts == [["a", "d", "g"], ["b", "e"], ["c", "f"]]
    fill(mood, manifests__m=json.dumps([{"prefix": "s3://data/"}, "a", "b", "c"]))
    assert names(mood, "s3://manifests/m", kind="ManifestFile", part=(1, 2)) == ["b"]
    # More nodes than objects: the last ones have none, which is no error.
    assert names(mood, "s3://data", part=(8, 9)) == []


def test_a_channel_becomes_files(mood: Mood, tmp_path: Path):
    fill(mood, train__a="1", train__deep__b="2")
    tree = Tree(str(tmp_path / "tree"), None)
    tree.empty()
    bring_channel(Channel("train", "s3://train"), mood.stores(), tree, str(tmp_path))
    data = tmp_path / "tree" / "input" / "data" / "train"
    assert {str(p.relative_to(data)): p.read_text() for p in data.rglob("*") if p.is_file()} == {
        "a": "1",
        "deep/b": "2",
    }
    with pytest.raises(CannotBring, match="cannot be the name of a channel"):
        bring_channel(Channel("../x", "s3://train"), mood.stores(), tree, str(tmp_path))


MINE = StorageAccess((Grant("s3://mine", write=True),))


def test_a_manifest_names_nothing_but_what_the_job_may_read(mood: Mood):
    fill(mood, mine__a="1", other__b="2", srv__keys="secret")
    manifest = Channel("c", "s3://mine/m", kind="ManifestFile")
    for prefix, key in (("s3://other/", "b"), ("s3://", "other/b"), ("s3://mine/../other/", "b")):
        fill(mood, mine__m=json.dumps([{"prefix": prefix}, key]))
        with pytest.raises((Refused, BadUri)):
            pieces_of(manifest, mood.stores(MINE))
    fill(mood, mine__m=json.dumps([{"prefix": "s3://mine/"}, "a"]))
    assert [piece.store.get(piece.key) for piece in pieces_of(manifest, mood.stores(MINE))] == [b"1"]
    fill(mood, mine__m=json.dumps([{"prefix": "s3://mine/"}, "../other/b"]))
    (piece,) = pieces_of(manifest, mood.stores(MINE))
    with pytest.raises(BadUri):
        piece.store.get(piece.key)


@pytest.mark.parametrize("access", [MINE, StorageAccess()])
def test_a_manifest_names_no_files_of_the_host(mood: Mood, access: StorageAccess):
    fill(
        mood,
        mine__m=json.dumps([{"prefix": "file:///srv/windfall/"}, "keys.json"]),
        mine__a='{"x-ref": "file:///k"}',
    )
    with pytest.raises(
        CannotBring, match='names "file:///srv/windfall/"; a manifest may name s3:// objects alone'
    ):
        pieces_of(Channel("c", "s3://mine/m", kind="ManifestFile"), mood.stores(access))
    augmented = Channel("c", "s3://mine/a", "Pipe", "AugmentedManifestFile", attributes=("x-ref",))
    with pytest.raises(CannotBring, match='names "file:///k"; a manifest may name s3:// objects alone'):
        list(epoch(augmented, mood.stores(access), 0))


def test_an_augmented_manifest_names_nothing_but_what_the_job_may_read(mood: Mood):
    fill(mood, mine__m='{"x-ref": "s3://other/b"}', other__b="2")
    channel = Channel("c", "s3://mine/m", "Pipe", "AugmentedManifestFile", attributes=("x-ref",))
    with pytest.raises(Refused, match="may not read s3://other/b"):
        list(epoch(channel, mood.stores(MINE), 0))


#: What a line of an augmented manifest may say in the place of an object of the job's own.
HOSTILE_REFERENCES = (
    '"file:///etc/passwd"',
    '"FILE:///etc/passwd"',
    '"/etc/passwd"',
    '"s3:/other/b"',
    '"s3:///other/b"',
    '"s3://other/b"',
    '"S3://other/b"',
    '"s3://mine/../other/b"',
    '"s3://mine/./../other/b"',
    '"s3://mine/%2e%2e/other/b"',
    '"s3://mine//../../other/b"',
    '"s3://mine@other/b"',
    '"s3://mine"',
    '"s3://mine/"',
    '"s3://mine/a\\u0000b"',
    '"s3://mine/\\ud800"',
    '"s3://mine/' + "x" * 100_000 + '"',
    '""',
    "null",
    "5",
    '["s3://other/b"]',
    '{"uri": "s3://other/b"}',
)


@pytest.mark.parametrize("reference", HOSTILE_REFERENCES, ids=lambda text: text[:24])
def test_no_spelling_in_an_augmented_manifest_leads_elsewhere(mood: Mood, reference: str):
    fill(mood, mine__m=f'{{"x-ref": {reference}}}', other__b="not for you", mine__a="1")
    channel = Channel("c", "s3://mine/m", "Pipe", "AugmentedManifestFile", attributes=("x-ref",))
    with pytest.raises((CannotBring, ObjectsError)) as refused:
        list(epoch(channel, mood.stores(MINE), 0))
    assert "not for you" not in str(refused.value)


def test_half_a_character_in_a_manifest_is_refused_in_words(mood: Mood):
    fill(mood, mine__m='{"x": "\\ud800"}', mine__n=json.dumps([{"prefix": "s3://mine/"}, "\ud800"]))
    channel = Channel("c", "s3://mine/m", "Pipe", "AugmentedManifestFile", attributes=("x",))
    with pytest.raises(CannotBring, match="s3://mine/m has a text that is not valid Unicode"):
        list(epoch(channel, mood.stores(MINE), 0))
    with pytest.raises(CannotBring, match="s3://mine/n is not a manifest"):
        pieces_of(Channel("c", "s3://mine/n", kind="ManifestFile"), mood.stores(MINE))


def test_buckets_in_manifests_are_the_tenants_directories(mood: Mood):
    fill(mood, buckets__b__m=json.dumps([{"prefix": "s3://b/"}, "x"]), buckets__b__x="1")
    access = StorageAccess((Grant("file:///buckets", write=True),), "file:///buckets")
    channel = Channel("c", "file:///buckets/b/m", kind="ManifestFile")
    assert [piece.store.get(piece.key) for piece in pieces_of(channel, mood.stores(access))] == [b"1"]


def test_names_that_begin_like_a_prefix_are_looked_for_only_where_the_job_may_look(mood: Mood):
    fill(mood, data__teams__secret="x", data__team="plain")
    access = StorageAccess((Grant("s3://data/team"),))
    assert [piece.name for piece in pieces_of(Channel("c", "s3://data/team"), mood.stores(access))] == [
        "team"
    ]
    (mood.root / "data" / "team").unlink()
    with pytest.raises(CannotBring, match="no objects are found"):
        pieces_of(Channel("c", "s3://data/team"), mood.stores(access))


# --- pipes ------------------------------------------------------------------------------------------


def said(mood: Mood, number: int = 0, uri: str = "s3://train", **fields: object) -> bytes:
    channel = Channel("train", uri, "Pipe", **fields)  # type: ignore[arg-type]  # any field
    return b"".join(epoch(channel, mood.stores(), number))


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


@pytest.mark.parametrize("size", [4 << 20, (4 << 20) + 1, (8 << 20) - 1, 40 << 20])
def test_what_was_compressed_well_comes_in_portions(mood: Mood, size: int):
    """A few kilobytes can become gigabytes, which no memory has to hold."""
    fill(mood, train__a=gzip.compress(bytes(size)) + gzip.compress(b"end"))
    channel = Channel("c", "s3://train", "Pipe", compression="Gzip")
    pieces = list(epoch(channel, mood.stores(), 0))
    assert max(map(len, pieces)) <= 4 << 20
    assert b"".join(pieces) == bytes(size) + b"end"


def test_a_very_long_record_comes_in_parts(monkeypatch):
    monkeypatch.setattr(pipes, "_MOST_BYTES", 4)
    framed = b"".join(record([b"abcdef", b"ghij"]))
    heads = [struct.unpack_from("<II", framed, at)[1] for at in (0, 12, 24)]
    assert [(head >> 29, head & 0xFF) for head in heads] == [(1, 4), (2, 4), (3, 2)]
    assert [framed[at : at + 4] for at in (8, 20, 32)] == [b"abcd", b"efgh", b"ij\0\0"]
    assert b"".join(record([b"abcd"])) == struct.pack("<II", 0xCED7230A, 4) + b"abcd"


def test_each_object_is_a_record(mood: Mood):
    fill(mood, train__a="1234", train__b="12345", train__c="")
    assert unframed(said(mood, record_wrapper="RecordIO")) == [b"1234", b"12345", b""]
    assert b"".join(record([b"ab", b"c"])) == struct.pack("<II", 0xCED7230A, 3) + b"abc\0"


def test_shuffling_is_by_seed_and_epoch(mood: Mood):
    fill(mood, **{f"train__{letter}": letter for letter in "abcdefgh"})
    orders = [said(mood, number, shuffle_seed=5) for number in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]
    assert sorted(orders[0]) == sorted(b"abcdefgh")


def test_an_augmented_manifest_says_its_attributes_line_by_line(mood: Mood):
    lines = [{"image-ref": "s3://images/1", "label": 3}, {"image-ref": "s3://images/2", "label": "cat"}]
    fill(mood, images__1="one", images__2="two", manifests__m="\n".join(json.dumps(line) for line in lines))
    fields = {
        "kind": "AugmentedManifestFile",
        "record_wrapper": "RecordIO",
        "attributes": ("image-ref", "label"),
    }
    assert unframed(said(mood, uri="s3://manifests/m", **fields)) == [b"one", b"3", b"two", b"cat"]
    with pytest.raises(CannotBring, match="has no missing"):
        said(mood, uri="s3://manifests/m", **{**fields, "attributes": ("missing",)})
