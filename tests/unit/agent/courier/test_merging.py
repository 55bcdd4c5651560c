"""What several nodes leave becomes one: every part is in what is stored last, whoever dies in between."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from windfall.agent.courier.merging import MergedOutput
from windfall.jobs.staging import Output


class Side:
    """The outputs of a job's nodes on one host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.attempts = root / "attempts"
        self.attempts.mkdir()

    def left(self, node: int, **files: str) -> Path:
        """What a node left; `__` stands for a slash."""
        directory = self.root / f"node-{node}"
        directory.mkdir(exist_ok=True)
        for name, content in files.items():
            path = directory / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return directory

    def stored(
        self, directory: Path, node: int, *, number: int = 1, fails: bool = False
    ) -> dict[str, str] | None:
        """What would be stored when a node has ended; None when nothing would."""
        output = Output("/opt/ml/model", "s3://b/m", merged_as=f"training-t#{number}.17", merged_of=3)
        merging = MergedOutput(str(self.attempts), output)
        fd = os.open(directory, os.O_RDONLY)
        try:
            with merging.joined(fd, f"token-{node}") as whole:
                if whole is None:
                    return None
                base = Path(f"/proc/self/fd/{whole}")
                found = {
                    path.relative_to(base).as_posix(): path.read_text()
                    for path in base.rglob("*")
                    if path.is_file()
                }
                if fails:
                    raise ConnectionError("the store is away")
                return found
        finally:
            os.close(fd)


@pytest.fixture
def side(tmp_path: Path) -> Side:
    return Side(tmp_path)


def test_what_is_stored_last_has_the_parts_of_all(side: Side):
    assert side.stored(side.left(1, a="1", deep__a="1"), 1) == {"a": "1", "deep/a": "1"}
    assert side.stored(side.left(2, b="2", deep__b="2"), 2) == {
        "a": "1",
        "b": "2",
        "deep/a": "1",
        "deep/b": "2",
    }
    assert len(side.stored(side.left(3, c="3"), 3) or {}) == 5


def test_a_node_that_left_nothing_stores_nothing_again(side: Side):
    assert side.stored(side.left(1), 1) == {}
    assert side.stored(side.left(2, model="w"), 2) == {"model": "w"}
    assert side.stored(side.left(3), 3) is None


def test_what_could_not_be_stored_is_stored_with_the_next(side: Side):
    with pytest.raises(ConnectionError):
        side.stored(side.left(1, a="1"), 1, fails=True)
    assert side.stored(side.left(1), 1) == {"a": "1"}
    with pytest.raises(ConnectionError):
        side.stored(side.left(2, b="2"), 2, fails=True)
    assert side.stored(side.left(3), 3) == {"a": "1", "b": "2"}


def test_an_order_that_comes_again_after_the_last_one_stores_nothing(side: Side):
    for node in (1, 2, 3):
        side.stored(side.left(node, **{f"f{node}": "x"}), node)
    assert side.stored(side.left(3), 3) is None


def test_a_link_of_one_node_leads_nothing_of_another_outside(side: Side, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    first = side.left(1)
    (first / "x").symlink_to(outside)
    side.stored(first, 1)
    assert side.stored(side.left(2, x__file="2"), 2) == {"x/file": "2"}
    assert not list(outside.iterdir())


def test_the_next_try_begins_anew_and_the_last_one_is_removed(side: Side):
    side.stored(side.left(1, a="1"), 1)
    assert side.stored(side.left(2, b="2"), 2, number=2) == {"b": "2"}
    assert len(list(side.attempts.iterdir())) == 1
