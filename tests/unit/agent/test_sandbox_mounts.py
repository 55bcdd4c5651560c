"""How a directory appears where the host has none."""

from __future__ import annotations

from pathlib import Path

from windfall.agent.sandbox_mounts import WHOLE_ROOT, is_within, plan_mounts


def test_a_directory_that_is_there_is_only_covered(tmp_path: Path):
    mounts = plan_mounts([("/real", str(tmp_path))], ())
    assert mounts == (WHOLE_ROOT, (), ("--bind", "/real", str(tmp_path)))


def test_a_missing_one_appears_in_a_copy_of_its_surroundings(tmp_path: Path):
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("file")
    seen = f"{tmp_path}/deep/er/ml"
    mounts = plan_mounts([("/real", seen)], ())
    assert mounts.root == WHOLE_ROOT
    assert mounts.covers == (
        *("--tmpfs", str(tmp_path)),
        *("--dev-bind", f"{tmp_path}/directory", f"{tmp_path}/directory"),
        *("--dev-bind", f"{tmp_path}/file", f"{tmp_path}/file"),
        *("--symlink", "file", f"{tmp_path}/link"),
    )
    assert mounts.binds == (
        "--dir",
        f"{tmp_path}/deep",
        "--dir",
        f"{tmp_path}/deep/er",
        "--bind",
        "/real",
        seen,
    )


def test_two_below_one_directory_need_one_cover(tmp_path: Path):
    mounts = plan_mounts([("/a", f"{tmp_path}/a"), ("/b", f"{tmp_path}/b")], ())
    assert mounts.covers.count("--tmpfs") == 1


def test_below_a_private_place_nothing_is_covered(tmp_path: Path):
    mounts = plan_mounts([("/real", f"{tmp_path}/x/y")], (str(tmp_path),))
    assert mounts.covers == ()
    assert mounts.binds == ("--dir", f"{tmp_path}/x", "--bind", "/real", f"{tmp_path}/x/y")


def test_directly_below_the_root_the_root_is_put_together_from_its_parts():
    mounts = plan_mounts([("/real", "/no-such-directory/x")], ())
    assert mounts.root != WHOLE_ROOT
    shown = {mounts.root[at + 2] for at in range(0, len(mounts.root), 3)}
    assert shown == {str(path) for path in Path("/").iterdir()}
    assert mounts.covers == ()


def test_within_is_by_whole_names():
    assert is_within("/data/x", "/data")
    assert is_within("/data/", "/data")
    assert not is_within("/data-of-others", "/data")
