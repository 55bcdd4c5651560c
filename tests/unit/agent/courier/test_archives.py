"""What may be unpacked, and that what is packed can be read by others."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from windfall.agent.courier.archives import packed, unpack
from windfall.agent.courier.errors import BadArchive
from windfall.agent.courier.tree import Tree


def an_archive(path: Path, *entries: tarfile.TarInfo | tuple[str, bytes]) -> str:
    with tarfile.open(path, "w:gz") as archive:
        for entry in entries:
            if isinstance(entry, tuple):
                name, content = entry
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
            else:
                archive.addfile(entry)
    return str(path)


def a_link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


def a_device(name: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.devmajor, entry.devminor = tarfile.CHRTYPE, 1, 3
    return entry


@pytest.fixture
def unpacked(tmp_path: Path) -> Callable[..., Path]:
    tree = Tree(str(tmp_path / "tree"), None)
    tree.empty()

    def run(*entries: tarfile.TarInfo | tuple[str, bytes]) -> Path:
        tree.give_directory("code")
        unpack(an_archive(tmp_path / "archive.tar.gz", *entries), tree, "code", lambda: None)
        return tmp_path / "tree" / "code"

    return run


def test_files_directories_and_links_inside_are_unpacked(unpacked: Callable[..., Path]):
    code = unpacked(
        ("./a/file", b"text"),
        a_link("a/soft", "file"),
        a_link("up", "a/../a/file"),
    )
    assert (code / "a" / "soft").read_text() == "text"
    assert (code / "up").read_text() == "text"


@pytest.mark.parametrize(
    "entries",
    [
        [("/etc/passwd", b"x")],
        [("../escape", b"x")],
        [("a/../../escape", b"x")],
        [a_link("out", "/etc")],
        [a_link("a/out", "../../etc")],
        [a_link("here", "."), ("here/../../x", b"x")],
        [a_link("a", "b"), ("a/file", b"x")],
        [a_link("hard", "../../etc/passwd", tarfile.LNKTYPE)],
        [a_link("hard", "nowhere", tarfile.LNKTYPE)],
        [a_device("null")],
    ],
    ids=lambda entries: str(getattr(entries[0], "name", entries[0])),
)
def test_what_leads_out_is_refused(unpacked: Callable[..., Path], entries: list[object], tmp_path: Path):
    with pytest.raises(BadArchive, match="in the archive"):
        unpacked(*entries)
    assert {path.name for path in tmp_path.iterdir()} <= {"tree", "archive.tar.gz"}


def test_what_is_no_archive_is_refused(tmp_path: Path):
    (tmp_path / "x").write_bytes(b"not a tar file")
    with pytest.raises(BadArchive, match="cannot be read"):
        unpack(str(tmp_path / "x"), Tree(str(tmp_path), None), "code", lambda: None)


def test_hard_links_become_files(unpacked: Callable[..., Path]):
    code = unpacked(("file", b"text"), a_link("hard", "file", tarfile.LNKTYPE))
    assert (code / "hard").read_text() == "text"


def test_what_is_packed_can_be_unpacked(tmp_path: Path):
    source = tmp_path / "model"
    (source / "deep").mkdir(parents=True)
    content = os.urandom(3_000_001)
    (source / "deep" / "weights").write_bytes(content)
    (source / "empty").touch()
    (source / "link").symlink_to("deep/weights")
    long_name = "n" * 180
    (source / long_name).write_text("long")
    os.mkfifo(source / "pipe")
    fd = os.open(source, os.O_RDONLY)
    try:
        pieces = list(packed(fd))
    finally:
        os.close(fd)
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces)), mode="r:gz") as archive:
        names = {member.name for member in archive}
        assert names == {"deep", "deep/weights", "empty", "link", long_name}
        weights = archive.extractfile("deep/weights")
        assert weights is not None
        assert weights.read() == content
        assert archive.getmember("link").linkname == "deep/weights"
