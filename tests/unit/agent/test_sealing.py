"""Directories that a job's user has filled, taken into the agent's hands and given back."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from windfall.agent.errors import CannotStart
from windfall.agent.sealing import seal, unseal

OWNER = (os.getuid(), os.getgid())
KEPT = [".windfall", ".windfall/progress", "output/data", "."]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "a.ml"
    for name in (".windfall/progress", "output/data", "input"):
        (made / name).mkdir(parents=True)
    return made


def modes(root: Path, *names: str) -> list[int]:
    return [(root / name).stat().st_mode & 0o7777 for name in names]


def test_what_is_kept_cannot_be_replaced_and_the_rest_stays_as_it_is(root: Path):
    before = modes(root, "input")
    seal(str(root), KEPT, ".windfall", OWNER)
    names = (".", "output", "output/data", ".windfall", ".windfall/progress")
    assert modes(root, *names) == [0o1770, 0o1770, 0o1770, 0o750, 0o1770]
    assert modes(root, "input") == before
    unseal(str(root), KEPT, OWNER)
    assert set(modes(root, *names)) == {0o700}
    assert modes(root, "input") == before


@pytest.mark.parametrize(("uid", "enters"), [(54_001, True), (54_002, False)])
def test_others_with_the_same_group_stay_out(require, uid: int, enters: bool):
    require(os.geteuid() == 0, "only root can become another user for this test")
    # Below a directory that everybody may pass through.
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        data = Path(above) / "a.ml" / "output" / "data"
        data.mkdir(parents=True)
        seal(f"{above}/a.ml", ["output/data"], ".windfall", (54_001, 54_000))
        write = ["/bin/sh", "-c", 'cd "$0" && : > mine && ! rmdir ../data', str(data)]
        looked = subprocess.run(
            write, user=uid, group=54_000, extra_groups=[], capture_output=True, check=False
        )
        assert (looked.returncode == 0) is enters, looked.stderr


def test_it_can_be_given_back_when_half_of_it_was_never_made(tmp_path: Path):
    root = tmp_path / "a.ml"
    root.mkdir()
    unseal(str(root), KEPT, OWNER)
    assert modes(root, ".") == [0o700]


@pytest.mark.parametrize("name", [".windfall", "output", "output/data"])
def test_a_link_is_not_followed(root: Path, tmp_path: Path, name: str):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "progress").mkdir(parents=True)
    (elsewhere / "data").mkdir()
    before = modes(elsewhere, ".", "progress", "data")
    (root / name).rename(tmp_path / "moved")
    (root / name).symlink_to(elsewhere)
    with pytest.raises(CannotStart, match="is not as it was prepared"):
        seal(str(root), KEPT, ".windfall", OWNER)
    unseal(str(root), KEPT, OWNER)
    assert modes(elsewhere, ".", "progress", "data") == before


def test_whoever_swaps_directories_meanwhile_gains_nothing(root: Path, tmp_path: Path):
    """Either the start is refused, or every kept name is the directory that was taken."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    ended = threading.Event()

    def swap() -> None:
        link, aside = root / "swap", root / "aside"
        while not ended.is_set():
            try:
                (root / ".windfall").rename(aside)
                link.symlink_to(elsewhere)
                link.rename(root / ".windfall")
                (root / ".windfall").unlink()
                aside.rename(root / ".windfall")
            except OSError:
                continue

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(300):
            try:
                seal(str(root), KEPT, ".windfall", OWNER)
            except CannotStart:
                continue
    finally:
        ended.set()
        thread.join()
    assert modes(elsewhere, ".") == [0o755]


def test_only_what_was_sealed_is_given_back(root: Path):
    """Somebody else's directory that a user has moved there stays somebody else's."""
    names = (".windfall", "output", "output/data")
    before = modes(root, *names)
    unseal(str(root), KEPT, OWNER)
    assert modes(root, *names) == before
