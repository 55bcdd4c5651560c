"""One suite over both kinds of object storage, files and a real S3 server, each opened here and by a steward."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.small_disk import mounted_at
from tests.steward_process import StewardProcess
from windfall.jobs.storage import Grant
from windfall.objects.credentials import ObjectOptions
from windfall.objects.errors import AlreadyThere, BadUri, NotFound, Refused, Unreachable
from windfall.objects.opening import open_objects
from windfall.objects.port import Entry, ObjectStore


@pytest.fixture(params=["file", "s3", "file by steward", "s3 by steward"])
def objects(request, tmp_path, tmp_path_factory) -> Iterator[ObjectStore]:
    kind, _, by_steward = request.param.partition(" by ")
    uri, variables = f"file://{tmp_path}/not/there yet", {}
    if kind == "s3":
        server = request.getfixturevalue("s3_server")
        uri, variables = f"s3://{server.bucket}/objects/{tmp_path.name}", server.environment
    if not by_steward:
        yield open_objects(uri, environment={**os.environ, **variables})
        return
    steward = StewardProcess(tmp_path_factory.mktemp("steward"), variables)
    yield steward.admit("t", Grant(uri, write=True)).open(uri)
    steward.close()


def keys(objects: ObjectStore, prefix: str = "") -> list[str]:
    return sorted(entry.key for entry in objects.list(prefix))


def test_what_is_put_comes_back(objects):
    for content in (b"", b"x", bytes(range(256)) * 4096):
        objects.put("a/b", content)
        assert objects.get("a/b") == content
        entry = objects.head("a/b")
        assert entry is not None
        assert (entry.key, entry.bytes) == ("a/b", len(content))
        assert entry.changed_at > 1_600_000_000_000
    objects.put("a/c", memoryview(b"a view"))
    assert objects.get("a/c") == b"a view"


def test_names_are_taken_as_they_are(objects):
    names = ["with space", "per%20cent", "ünïcode/✓", "q?x=1&y#z", "plus+and:colon", ".hidden/.file"]
    for name in names:
        objects.put(name, name.encode())
    assert keys(objects) == sorted(names)
    assert [objects.get(name) for name in names] == [name.encode() for name in names]


@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/..", ".", "a/", "x\0y"])
def test_a_name_that_leads_elsewhere_is_refused(objects, key):
    with pytest.raises(BadUri):
        objects.put(key, b"x")
    with pytest.raises(BadUri):
        objects.get(key)


def test_ranges(objects):
    objects.put("a", b"0123456789")
    assert objects.get_range("a", 2, 5) == b"234"
    assert objects.get_range("a", 8, 99) == b"89"
    assert objects.get_range("a", 10, 12) == b""
    assert objects.get_range("a", 3, 3) == b""
    with pytest.raises(NotFound):
        objects.get_range("b", 0, 1)


def test_create_only_lets_exactly_one_of_many_through(objects):
    barrier = threading.Barrier(8)

    def create(number: int) -> bool:
        barrier.wait(60)
        try:
            objects.put("one", b"%d" % number, create_only=True)
        except AlreadyThere:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))
    assert won.count(True) == 1
    assert objects.get("one") == b"%d" % won.index(True)


def test_what_is_not_there(objects):
    with pytest.raises(NotFound):
        objects.get("nothing")
    with pytest.raises(NotFound):
        objects.copy("nothing", "something")
    assert objects.head("nothing") is None
    assert keys(objects, "nothing") == []
    objects.delete(["nothing", "nothing/at/all"])


def test_lists_whole_segments_only(objects):
    for key in ("a/b", "a/c/d", "ab/e", "a.b"):
        objects.put(key, b"1")
    assert keys(objects, "a") == ["a/b", "a/c/d"]
    assert keys(objects, "a/") == ["a/b", "a/c/d"]
    assert keys(objects) == ["a.b", "a/b", "a/c/d", "ab/e"]
    assert all(isinstance(entry, Entry) and entry.bytes == 1 for entry in objects.list())


def test_many_are_deleted_at_once(objects):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: objects.put(f"many/{number}", b"x"), range(1100)))
    objects.delete([f"many/{number}" for number in range(1099)])
    assert keys(objects, "many") == ["many/1099"]


def test_large_files_go_and_come_in_parts(objects, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    content = os.urandom(1 << 20) * 40 + b"tail"
    source.write_bytes(content)
    assert objects.put_file("large", source) == len(content)
    objects.copy("large", "copied")
    assert objects.get_file("copied", target) == len(content)
    assert target.read_bytes() == content
    with pytest.raises(NotFound):
        objects.get_file("nothing", target)
    with pytest.raises(FileNotFoundError):
        objects.put_file("x", tmp_path / "missing")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["source", "target"]


def test_pieces_make_one_object_or_none(objects):
    objects.put_pieces("whole", iter([b"a" * 10_000_000, b"", b"b" * 10_000_000]))
    assert objects.get("whole") == b"a" * 10_000_000 + b"b" * 10_000_000

    def broken():
        yield b"a" * 20_000_000
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="broke"):
        objects.put_pieces("half", broken())
    assert objects.head("half") is None


def test_wrong_keys_are_refused_with_advice(s3_server):
    objects = open_objects("s3://windfall/x", ObjectOptions(s3_server.url, "AKIAWINDFALLTESTS000", "wrong"))
    with pytest.raises(Refused, match="check the keys"):
        objects.put("a", b"1")
    with pytest.raises(Refused):
        list(objects.list())


def test_a_missing_bucket_is_told(s3_server):
    objects = open_objects("s3://no-such-bucket/x", s3_server.options)
    with pytest.raises(NotFound, match="make the bucket first"):
        list(objects.list())
    with pytest.raises(NotFound, match="make the bucket first"):
        objects.get("a")


def test_nobody_there_is_worth_another_try():
    objects = open_objects("s3://windfall/x", ObjectOptions("http://127.0.0.1:9", "a", "b"))
    with pytest.raises(Unreachable, match="see that the address is right"):
        objects.get("a")


def test_keys_come_from_the_shared_credentials_file(s3_server, tmp_path):
    keys = s3_server.options
    (tmp_path / "credentials").write_text(
        f"[tests]\naws_access_key_id = {keys.access_key_id}\naws_secret_access_key = {keys.secret_access_key}\n"
    )
    environment = {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_PROFILE": "tests",
        "AWS_ENDPOINT_URL": s3_server.url,
    }
    objects = open_objects(f"s3://windfall/{tmp_path.name}", environment=environment)
    objects.put("a", b"1")
    assert objects.get("a") == b"1"


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, small_disk):
    objects = open_objects(f"file://{small_disk}/store")
    objects.put("fits", b"x" * 1000)
    from windfall.objects.errors import Full

    with pytest.raises(Full, match="make room"):
        objects.put("too/large", b"x" * (8 << 20))
    assert keys(objects) == ["fits"]
    assert [path.name for path in Path(small_disk).rglob("*") if path.is_file()] == ["fits"]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    with mounted_at(place):
        yield place
