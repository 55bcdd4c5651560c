"""No link that a job could have made is followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import require_part
from windfall.agent.courier.errors import CannotBring
from windfall.agent.courier.tree import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(str(tmp_path / "tree"), None)
    made.empty()
    return made


def test_files_and_directories_are_made_below_it(tree: Tree):
    tree.make("output/data")
    tree.write("input/config/x.json", b"{}")
    root = Path(tree.root)
    assert (root / "output" / "data").is_dir()
    assert (root / "input" / "config" / "x.json").read_bytes() == b"{}"
    assert tree.read("input/config/x.json", 1) == b"{"
    with pytest.raises(CannotBring, match="twice"):
        tree.write("input/config/x.json", b"")
    tree.empty()
    assert list(root.iterdir()) == []


def test_links_are_not_followed_anywhere(tree: Tree, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    tree.link("link", str(outside))
    tree.link("file", str(outside / "secret"))
    assert tree.read("link/secret", 10) is None
    assert tree.read("file", 10) is None
    with pytest.raises(OSError, match="link"):
        tree.write("link/new", b"")
    with pytest.raises(OSError, match="link"):
        tree.make("link/deep")
    with pytest.raises(CannotBring, match="upwards"):
        tree.make("a/../../b")
    tree.empty()
    assert (outside / "secret").exists(), "emptying removes links, not what they lead to"


def test_a_pipe_in_place_of_a_file_holds_nobody_up(tree: Tree):
    os.mkfifo(Path(tree.root) / "pipe")
    assert tree.read("pipe", 10) is None


def test_what_is_kept_belongs_to_the_agent_and_what_is_given_to_the_job(tmp_path: Path):
    require_part(os.geteuid() == 0, "only root can give files away")
    tree = Tree(str(tmp_path / "tree"), (65534, 65534))
    tree.empty()
    tree.make("kept")
    tree.make_closed("closed")
    tree.give_directory("given", 0o755)
    tree.write("kept/file", b"x")

    def status(name: str) -> tuple[int, int, int]:
        found = (Path(tree.root) / name).stat()
        return found.st_mode & 0o7777, found.st_uid, found.st_gid

    assert status(".") == (0o700, 0, 65534), "nobody else comes in before it is open"
    with tree.passable():
        assert status(".")[0] == 0o710
    tree.open()
    assert status(".") == (0o1770, 0, 65534)
    assert status("kept") == (0o1770, 0, 65534)
    assert status("closed") == (0o750, 0, 65534)
    assert status("given") == (0o755, 65534, 65534)
    assert status("kept/file") == (0o644, 65534, 65534)
    os.chown(tmp_path / "tree" / "given", 65534, 65534)
    tree.keep("given")
    assert status("given") == (0o1770, 0, 65534)
