"""Syncing the directory of a real process, with stores that fill up, go away and come back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.s3_server import running_s3
from tests.small_disk import mounted_at
from tests.unit.agent.sync.trees import contents, snapshot, write
from tests.waiting import wait_until
from windfall.agent.sync import CheckpointSync, NoRoomError
from windfall.daemon.seaweedfs import S3ServerError, find_program
from windfall.objects.opening import open_objects

#: Writes checkpoints in place, without any care, in two files that belong together; holds them open while it does.
CARELESS = """
import os, sys, time
for step in range(1, 4):
    with open("model", "wb") as model, open("optimizer", "wb") as optimizer:
        for part in range(64):
            model.write(b"%08d" % step * 2048)
            optimizer.write(b"%08d" % -step * 2048)
            model.flush()
            time.sleep(0.005)
    print(step, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(params=["file", "s3"])
def objects(request, tmp_path):
    if request.param == "file":
        return open_objects(f"file://{tmp_path}/store")
    return request.getfixturevalue("s3_server").open(f"sync/{tmp_path.name}")


def test_a_real_process_never_has_half_a_file_or_half_a_pair_committed(objects, tmp_path):
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    sync = CheckpointSync(objects, str(directory), 1, settle_s=0.05, chunk_bytes=1 << 18)
    seen = []

    def look_back() -> None:
        place = tmp_path / "look" / str(len(seen))
        # As the attempt itself, so that looking does not take the prefix over.
        CheckpointSync(objects, str(place), 1).restore()
        found = contents(place)
        if found:
            (step,) = {int(found["model"][at : at + 8]) for at in range(0, 1 << 20, 8)}
            (other,) = {int(found["optimizer"][at : at + 8]) for at in range(0, 1 << 20, 8)}
            assert (len(found["model"]), step) == (1 << 20, -other)
            seen.append(step)

    with subprocess.Popen(
        [sys.executable, "-c", CARELESS],
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        os.set_blocking(process.stdout.fileno(), False)
        for step in range(1, 4):
            while not (line := process.stdout.readline()):
                sync.pass_once()
                look_back()
            assert line == f"{step}\n"
            process.stdin.write("\n")
            process.stdin.flush()
        process.stdin.close()
        process.wait(60)
    synced = sync.flush(time.monotonic() + 60)
    assert (synced.pending_files, synced.alarm) == (0, None)
    look_back()
    assert seen == sorted(seen)
    assert seen[-1] == 3


def test_a_store_that_is_killed_and_comes_back_loses_nothing(tmp_path, require):
    try:
        find_program()
    except S3ServerError as error:
        require(False, str(error))
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    events = []
    with running_s3() as running:
        objects = running.open("job")
        sync = CheckpointSync(objects, str(directory), 1, settle_s=0.0, say=events.append)
        write(directory, "a", b"before")
        wait_until(lambda: sync.pass_once().mark, "the first commit")
        pid = running.server.pid
        assert pid is not None
        os.kill(pid, 9)
        wait_until(lambda: running.server.pid is None, "the server to end")
        write(directory, "a", b"while it was away")
        synced = sync.flush(time.monotonic() + 2)
        assert synced.pending_files == 1
        assert synced.alarm is not None
        assert running.server.start(90) == running.url
        synced = sync.flush(time.monotonic() + 60)
        assert (synced.pending_files, synced.alarm) == (0, None)
        assert [event.kind.value for event in events if event.kind.value in ("failing", "recovered")] == [
            "failing",
            "recovered",
        ]
        elsewhere = tmp_path / "elsewhere"
        CheckpointSync(objects, str(elsewhere), 2).restore(time.monotonic() + 60)
        assert snapshot(elsewhere) == snapshot(directory)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    with mounted_at(place):
        yield place


def test_a_full_store_is_an_alarm_and_syncing_goes_on_when_there_is_room(tmp_path, small_disk):
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    objects = open_objects(f"file://{small_disk}/store")
    sync = CheckpointSync(objects, str(directory), 1, chunk_bytes=1 << 20)
    write(directory, "a", os.urandom(1 << 20))
    assert sync.flush(time.monotonic() + 60).alarm is None
    committed = snapshot(directory)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2 << 20))
    write(directory, "b", os.urandom(2 << 20))
    alarm = sync.flush(time.monotonic() + 5).alarm
    assert alarm is not None
    assert "make room" in alarm
    CheckpointSync(objects, str(tmp_path / "look"), 1).restore()
    assert snapshot(tmp_path / "look") == committed
    ballast.unlink()
    assert sync.flush(time.monotonic() + 60).alarm is None
    CheckpointSync(objects, str(tmp_path / "look"), 1).restore()
    assert snapshot(tmp_path / "look") == snapshot(directory)


def test_a_full_local_disk_is_told_before_the_job_starts_and_leaves_nothing(tmp_path, small_disk):
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    objects = open_objects(f"file://{tmp_path}/store")
    write(directory, "a", os.urandom(3 << 20))
    CheckpointSync(objects, str(directory), 1).flush(time.monotonic() + 60)
    place: Path = small_disk / "checkpoints"
    (small_disk / "ballast").write_bytes(bytes(2 << 20))
    with pytest.raises(NoRoomError, match=r"needs 3 MiB and 2 MiB are free .* make room"):
        CheckpointSync(objects, str(place), 2).restore()
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]
    (small_disk / "ballast").unlink()
    CheckpointSync(objects, str(place), 2).restore()
    assert snapshot(place) == snapshot(directory)
