"""What a job puts where its next pipe should be, or where a failure is told, is never written to."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from windfall.agent.courier.errors import CannotBring
from windfall.agent.courier.feeder import FAILED, make_pipe, open_pipe, tell_failure
from windfall.agent.courier.tree import Tree
from windfall.jobs.staging import Channel


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(str(tmp_path / "tree"), None)
    tree.empty()
    tree.make("input/data")
    return tree


def test_a_link_in_the_place_of_the_next_pipe_is_refused(tree: Tree, tmp_path: Path):
    target = tmp_path / "precious"
    target.write_text("as it was")
    (Path(tree.root) / "input" / "data" / "c_1").symlink_to(target)
    with pytest.raises(CannotBring, match="is no longer a pipe"):
        open_pipe(tree, make_pipe(tree, Channel("c", "s3://b"), 1))
    (Path(tree.root) / "input" / "data" / "c_2").write_text("a file")
    with pytest.raises(CannotBring, match="is no longer a pipe"):
        open_pipe(tree, make_pipe(tree, Channel("c", "s3://b"), 2))
    assert target.read_text() == "as it was"


def test_a_pipe_is_opened_when_somebody_reads_it(tree: Tree):
    name = make_pipe(tree, Channel("c", "s3://b"), 0)
    read: list[bytes] = []
    reader = threading.Thread(
        target=lambda: read.append((Path(tree.root) / "input" / "data" / name).read_bytes()), daemon=True
    )
    reader.start()
    fd = open_pipe(tree, name)
    os.write(fd, b"said")
    os.close(fd)
    reader.join(30)
    assert read == [b"said"]


def test_a_link_where_a_failure_is_told_overwrites_nothing(tree: Tree, tmp_path: Path):
    target = tmp_path / "precious"
    target.write_text("as it was")
    told = Path(tree.root) / FAILED
    told.parent.mkdir(parents=True)
    for name in (told, told.with_name(f"{told.name}.new")):
        name.symlink_to(target)
    tell_failure(tree, "why")
    assert (target.read_text(), told.read_text(), told.is_symlink()) == ("as it was", "why", False)


def test_a_link_in_the_place_of_the_directory_for_it_is_not_followed(tree: Tree, tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = (Path(tree.root) / FAILED).parent
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(elsewhere)
    tell_failure(tree, "why")
    assert list(elsewhere.iterdir()) == []
