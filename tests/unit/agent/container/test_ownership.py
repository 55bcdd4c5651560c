"""What is staged becomes the container's user's, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import require_part
from windfall.agent.container.ownership import hand_over

OWNER = (1_234, 1_235)


@pytest.fixture(autouse=True)
def only_root() -> None:
    require_part(os.geteuid() == 0, "only root gives files away")


def owner_of(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid


def test_all_is_given_but_what_is_our_own_and_pipes(tmp_path: Path):
    for name in ("deep/er", ".windfall/progress"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("deep/er/x", ".windfall/notice", ".windfall/progress/p"):
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "deep/pipe")
    hand_over(str(tmp_path), ".windfall", [".windfall/progress", "missing"], OWNER)
    given = {
        name: owner_of(tmp_path / name)
        for name in ("", "deep", "deep/er", "deep/er/x", ".windfall/progress", ".windfall/progress/p")
    }
    assert set(given.values()) == {OWNER}
    assert owner_of(tmp_path / ".windfall") == (0, OWNER[1])
    assert owner_of(tmp_path / ".windfall/notice") == owner_of(tmp_path / "deep/pipe") == (0, 0)


def test_no_link_is_followed(tmp_path: Path):
    others, root = tmp_path / "others", tmp_path / "root"
    (others / "below").mkdir(parents=True)
    (others / "below" / "file").touch()
    root.mkdir()
    (root / "directory").symlink_to(others)
    (root / "file").symlink_to(others / "below" / "file")
    (root / ".windfall").symlink_to(others / "below")
    (root / "kept").symlink_to(others / "below")
    hand_over(str(root / "directory"), "", [], OWNER)
    hand_over(str(root), ".windfall", ["kept"], OWNER)
    assert owner_of(root / "directory") == owner_of(root / "file") == OWNER
    assert {owner_of(path) for path in (others, others / "below", others / "below" / "file")} == {(0, 0)}


def test_a_directory_that_becomes_a_link_meanwhile_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As another job of the same user could do it between any two steps."""
    others, root = tmp_path / "others", tmp_path / "root"
    others.mkdir()
    (others / "file").touch()
    (root / "inner").mkdir(parents=True)
    given = os.chown

    def swap_then_give(path: str, *arguments: int, **options: int) -> None:
        if path == "inner" and not (root / "inner").is_symlink():
            (root / "inner").rmdir()
            (root / "inner").symlink_to(others)
        given(path, *arguments, **options)

    monkeypatch.setattr(os, "chown", swap_then_give)
    hand_over(str(root), "", [], OWNER)
    assert (root / "inner").is_symlink()
    assert {owner_of(others), owner_of(others / "file")} == {(0, 0)}
