"""What a backup holds, that it is whole, and that a restore changes nothing unless it succeeds."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
from pathlib import Path

import pytest

from tests.conformance.store_builders import a_job, a_round
from windfall.aws_api.protocol.keys import ensure_keys_file, load_keys
from windfall.daemon.backups import make_backup, read_backup, restore_backup
from windfall.daemon.directory import DataDirectory
from windfall.daemon.errors import AlreadyRunning, DaemonError
from windfall.daemon.settings import Settings
from windfall.daemon.store_claim import CLAIM_NAME, keep_claim, open_own_store


@pytest.fixture
def used(tmp_path) -> DataDirectory:
    """A data directory with one of everything, whose daemon has the store open."""
    directory = DataDirectory(tmp_path / "data")
    directory.prepare()
    ensure_keys_file(directory.keys, now=1)
    (directory.root / "windfall.toml").write_text('region = "eu-west-1"\n')
    (directory.secrets / "@lab").mkdir(mode=0o700)
    for name in ("token", "@lab/token"):
        (directory.secrets / name).write_text(f"secret of {name}")
    (directory.root / "s3").mkdir()
    (directory.root / "s3" / "secrets.json").write_text("{}")
    (directory.logs / "a.log").write_text("a log")
    store = open_own_store(Settings(directory.root))
    store.commit(a_round(a_job()))
    keep_claim(directory.root, store)
    yield directory
    store.close()


@pytest.fixture
def made(used, tmp_path) -> Path:
    make_backup(used, tmp_path / "b.tgz", with_store=True, now=5_000)
    return tmp_path / "b.tgz"


def jobs_in(root: Path) -> list[str]:
    store = open_own_store(Settings(root))
    try:
        return [job.id for job in store.load().jobs]
    finally:
        store.close()


def tree(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def test_everything_comes_back_and_nobody_else_can_read_it(used, made, tmp_path):
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert sorted(tmp_path.iterdir()) == [made, used.root]
    elsewhere = DataDirectory(tmp_path / "elsewhere")
    assert restore_backup(elsewhere, made, replace=False) == []
    assert jobs_in(elsewhere.root) == jobs_in(used.root)
    assert load_keys(elsewhere.keys) == load_keys(used.keys)
    for name in ("windfall.toml", "secrets/token", "secrets/@lab/token", "s3/secrets.json", CLAIM_NAME):
        restored = elsewhere.root / name
        assert restored.read_bytes() == (used.root / name).read_bytes()
        assert stat.S_IMODE(restored.stat().st_mode) == 0o600
    assert stat.S_IMODE((elsewhere.root / "secrets").stat().st_mode) == 0o700
    assert not any(elsewhere.logs.iterdir())
    assert not list(elsewhere.root.glob(".restoring*"))


def test_a_directory_that_is_used_is_refused_and_with_force_put_aside(used, made, tmp_path):
    other = DataDirectory(tmp_path / "other")
    other.prepare()
    (other.root / "keys.json").write_text("mine")
    (other.root / "store" / "windfall.db").write_text("mine")
    before = tree(other.root)
    with pytest.raises(DaemonError, match=r"is not empty .*keys\.json.*--force"):
        restore_backup(other, made, replace=False)
    assert tree(other.root) == before
    aside = restore_backup(other, made, replace=True)
    assert [Path(path).name for path in aside] == ["keys.json", "store"]
    assert Path(aside[0]).read_text() == Path(aside[1], "windfall.db").read_text() == "mine"
    assert jobs_in(other.root) == jobs_in(used.root)


def test_a_directory_whose_daemon_runs_is_refused(made, tmp_path):
    other = DataDirectory(tmp_path / "other")
    other.prepare()
    lock = other.lock()
    with pytest.raises(AlreadyRunning, match=f"pid {os.getpid()}"):
        restore_backup(other, made, replace=True)
    os.close(lock)


def rewritten(source: Path, target: Path, **changed: bytes | None) -> Path:
    """A backup in which files are exchanged or left out."""
    with tarfile.open(source) as old, tarfile.open(target, "w:gz") as new:
        for entry in old:
            content = old.extractfile(entry).read()
            if entry.name in changed:
                content = changed.pop(entry.name)
            if content is not None:
                entry.size = len(content)
                new.addfile(entry, io.BytesIO(content))
        for name, content in changed.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            new.addfile(entry, io.BytesIO(content))
    return target


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"keys.json": None}, "is incomplete: keys.json missing"),
        ({"store/windfall.db": b"not a database" * 100}, "store in .* is damaged"),
        ({"../evil": b"x"}, "which is never part of a backup"),
        ({"/etc/evil": b"x"}, "which is never part of a backup"),
        ({"secrets/../../evil": b"x"}, "which is never part of a backup"),
        ({"secrets/..": b"x"}, "which is never part of a backup"),
        ({"agent/journal": b"x"}, "which is never part of a backup"),
        ({"windfall-backup.json": b"{}"}, "not a complete backup"),
        ({"windfall-backup.json": None}, "is not a backup of Windfall"),
    ],
)
def test_a_backup_that_is_damaged_or_made_up_changes_nothing(made, tmp_path, changed, text):
    bad = rewritten(made, tmp_path / "bad.tgz", **changed)
    target = DataDirectory(tmp_path / "target")
    with pytest.raises(DaemonError, match=text):
        restore_backup(target, bad, replace=False)
    assert not target.root.exists()
    target.root.mkdir()
    with pytest.raises(DaemonError, match=text):
        restore_backup(target, bad, replace=False)
    assert list(target.root.iterdir()) == []
    restore_backup(target, made, replace=False)
    assert target.keys.exists(), "a good backup can be restored there at once"


def test_what_is_cut_off_or_no_backup_at_all_is_said_so(made, tmp_path):
    cut = tmp_path / "cut.tgz"
    cut.write_bytes(made.read_bytes()[:-200])
    with pytest.raises(DaemonError):
        restore_backup(DataDirectory(tmp_path / "t"), cut, replace=False)
    cut.write_text("hello")
    with pytest.raises(DaemonError, match="not a complete backup"):
        read_backup(cut)
    with pytest.raises(DaemonError, match="there is no file"):
        read_backup(tmp_path / "none")


def test_one_of_a_newer_version_is_left_to_that(made, tmp_path):
    with tarfile.open(made) as archive:
        said = json.loads(archive.extractfile("windfall-backup.json").read())
    said |= {"format": 99, "version": "9.9"}
    newer = rewritten(made, tmp_path / "n.tgz", **{"windfall-backup.json": json.dumps(said).encode()})
    with pytest.raises(DaemonError, match=r"newer Windfall \(9\.9\)"):
        read_backup(newer)


def test_a_file_that_is_no_backup_is_not_overwritten(used, made, tmp_path):
    mine = tmp_path / "thesis.tex"
    mine.write_text("years of work")
    with pytest.raises(DaemonError, match="is not a backup of Windfall"):
        make_backup(used, mine, with_store=True, now=1)
    assert mine.read_text() == "years of work"
    make_backup(used, made, with_store=True, now=9_000)
    assert read_backup(made).created_at == 9_000


def test_a_disk_that_cannot_be_written_is_named_and_nothing_is_left(used, tmp_path):
    with pytest.raises(DaemonError, match=r"nowhere is not a directory: make it with `mkdir -p`"):
        make_backup(used, tmp_path / "nowhere" / "b.tgz", with_store=True, now=1)
    empty = DataDirectory(tmp_path / "empty")
    with pytest.raises(DaemonError, match="there is no store in"):
        make_backup(empty, tmp_path / "b.tgz", with_store=True, now=1)
    assert not (tmp_path / "b.tgz").exists()


def test_of_a_postgresql_store_everything_else_is_kept(used, tmp_path):
    (used.root / CLAIM_NAME).write_text(
        json.dumps({"identity": "x", "where": "PostgreSQL database windfall on db"})
    )
    with pytest.raises(DaemonError, match=r"pg_dump --format=custom .*--no-store"):
        make_backup(used, tmp_path / "b.tgz", with_store=True, now=1)
    made = make_backup(used, tmp_path / "b.tgz", with_store=False, now=1)
    assert ("store/windfall.db" in made.files, made.has_store) == (False, False)
    assert "keys.json" in made.files
