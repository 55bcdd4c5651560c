"""kill -9 at every stage of a sync and of a restore: a fresh process finds a whole checkpoint and finishes the work."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.agent.sync.trees import contents, snapshot, write
from windfall.agent.sync import CheckpointSync
from windfall.agent.sync.clocks import Clocks
from windfall.objects.opening import open_objects

ROOT = Path(__file__).resolve().parents[2]
CHILD = ROOT / "tests/unit/agent/sync/killed_child.py"
CHUNK_BYTES, KEEP = 1 << 16, 2
FLUSH_STAGES = [
    ("looked", 1),
    ("piece-put", 1),
    ("piece-put", 3),
    ("uploaded", 1),
    ("before-commit", 1),
    ("committed", 1),
    ("name-published", 1),
    ("name-published", 2),
    ("published", 1),
    ("names-removed", 1),
    ("pieces-deleted", 1),
    ("manifest-deleted", 1),
]
RESTORE_STAGES = [
    ("piece-restored", 1),
    ("piece-restored", 4),
    ("restored-beside", 1),
    ("between-renames", 1),
    ("restored", 1),
]


class Job:
    """A job's directory with three committed states and a fourth one that is not."""

    def __init__(self, root: Path, uri: str, environment: dict[str, str]) -> None:
        self.directory = root / "checkpoints"
        self.directory.mkdir()
        self.uri = uri
        self.environment = environment
        sync = self.sync(1)
        for step in range(3):
            write(self.directory, "model.bin", os.urandom(3 * CHUNK_BYTES + step))
            write(self.directory, f"steps/{step}", b"%d" % step)
            sync.flush(Clocks().monotonic() + 60)
        self.committed = snapshot(self.directory)
        write(self.directory, "model.bin", os.urandom(4 * CHUNK_BYTES))
        write(self.directory, "steps/3", b"3")
        (self.directory / "steps/0").unlink()
        self.newest = snapshot(self.directory)

    def sync(self, fence: int, directory: Path | None = None) -> CheckpointSync:
        objects = open_objects(self.uri, environment=self.environment)
        place = str(directory or self.directory)
        return CheckpointSync(objects, place, fence, publish=True, chunk_bytes=CHUNK_BYTES, keep=KEEP)

    def kill_at(self, work: str, stage: str, count: int, directory: Path, fence: int = 1) -> None:
        order = {
            "work": work,
            "stage": stage,
            "count": count,
            "uri": self.uri,
            "directory": str(directory),
            "fence": fence,
            "chunk_bytes": CHUNK_BYTES,
            "keep": KEEP,
        }
        done = subprocess.run(
            [sys.executable, str(CHILD), json.dumps(order)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **self.environment},
            timeout=100,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == -9, f"was not killed at {stage}: {done.stderr}"

    def plain(self) -> dict[str, bytes]:
        objects = open_objects(self.uri, environment=self.environment)
        return {
            entry.key: objects.get(entry.key) for entry in objects.list() if not entry.key.startswith(".w")
        }


@pytest.fixture(params=["file", "s3"])
def job(request, tmp_path) -> Job:
    if request.param == "file":
        return Job(tmp_path, f"file://{tmp_path}/store", {})
    running = request.getfixturevalue("s3_server")
    return Job(tmp_path, f"s3://{running.bucket}/{tmp_path.name}", running.environment)


@pytest.mark.parametrize(("stage", "count"), FLUSH_STAGES)
def test_a_sync_that_is_killed_leaves_a_whole_checkpoint_and_is_finished_by_the_next(
    job, tmp_path, stage, count
):
    job.kill_at("flush", stage, count, job.directory)
    names = [stage for stage, _ in FLUSH_STAGES]
    expected = job.newest if names.index(stage) >= names.index("committed") else job.committed
    # The machine was lost with its disk: a new attempt elsewhere begins with the newest committed state.
    shutil.copytree(job.directory, tmp_path / "spared", copy_function=shutil.copy2)
    elsewhere = tmp_path / "elsewhere"
    job.sync(2, elsewhere).restore()
    assert snapshot(elsewhere) == expected
    # Only the courier was lost: the next one finishes what the killed one began.
    synced = job.sync(3, tmp_path / "spared").flush(Clocks().monotonic() + 60)
    assert (synced.pending_files, synced.alarm) == (0, None)
    job.sync(4, elsewhere).restore()
    assert contents(elsewhere) == {path: content for path, (_, _, content) in job.newest.items()}
    assert job.plain() == contents(elsewhere)


@pytest.mark.parametrize(("stage", "count"), RESTORE_STAGES)
def test_a_restore_that_is_killed_leaves_nothing_half_and_is_done_again(job, tmp_path, stage, count):
    place = tmp_path / "attempt" / "checkpoints"
    place.mkdir(parents=True)
    write(place, "stale", b"of another life")
    job.kill_at("restore", stage, count, place, fence=2)
    if place.exists():
        found = snapshot(place)
        assert found == job.committed or set(found) == {"stale"}
    job.sync(2, place).restore()
    assert snapshot(place) == job.committed
    assert [path.name for path in place.parent.iterdir()] == ["checkpoints"]
