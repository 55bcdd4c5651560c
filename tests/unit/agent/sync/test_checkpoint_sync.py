"""Passes, flushes and restores over a store in memory, with a clock that only moves when told."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest

from tests.deep import deep_directory
from tests.unit.agent.sync.memory_objects import MemoryObjects
from tests.unit.agent.sync.trees import Harness, contents, snapshot
from tests.waiting import wait_until
from windfall.agent.sync import SupersededError
from windfall.agent.sync.manifests import CHUNKS, DAMAGED, FENCE, MANIFESTS
from windfall.agent.sync.scanning import look_through
from windfall.agent.walking import removed
from windfall.objects.errors import Full, Refused, Unreachable
from windfall.objects.opening import open_objects


@pytest.fixture
def store():
    return MemoryObjects()


@pytest.fixture
def job(tmp_path, store):
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    return Harness(directory, store)


def test_a_directory_at_rest_is_committed_and_comes_back_as_it_was(job, tmp_path):
    job.write("model.bin", b"0123456789abcdef-and-more")
    job.write("deep/er/optimizer.bin", b"")
    (job.directory / "model.bin").chmod(0o640)
    (job.directory / "empty").mkdir()
    synced = job.settle()
    assert (synced.pending_files, synced.lag_s, synced.alarm) == (0, 0.0, None)
    assert synced.mark is not None
    assert (synced.mark.name, synced.mark.bytes) == ("deep/er/optimizer.bin", 25)
    restored = job.another(2, tmp_path / "next").restore()
    assert restored.mark == synced.mark
    assert (restored.files, restored.bytes, restored.passed_over) == (2, 25, ())
    assert snapshot(tmp_path / "next") == snapshot(job.directory)
    assert (tmp_path / "next" / "empty").is_dir()


def test_nothing_is_committed_before_it_is_at_rest(job, store):
    job.write("a", b"1")
    assert job.pass_once().mark is None
    job.write("a", b"2")
    assert job.pass_once(after_s=0.1).mark is None
    assert store.below(MANIFESTS) == []
    assert job.pass_once().mark is not None
    assert job.restored() == {"a": b"2"}


def test_a_file_that_is_open_for_writing_waits(job):
    written: set[str] = {"a"}

    def writers(files):
        inodes = {(job.directory / name).stat().st_ino for name in written}
        return {file: False for file in files if file[1] in inodes}

    job.options["writers"] = writers
    job.sync = job.another(1)
    job.write("a", b"1")
    job.write("b", b"1")
    job.settle()
    assert job.settle().mark is not None
    assert job.restored() == {"b": b"1"}, "it keeps no other file waiting for long"
    written.clear()
    job.pass_once()
    assert job.restored() == {"a": b"1", "b": b"1"}


def test_unfinished_names_are_not_looked_at(job):
    for name in ("x.tmp", "x.part", "x~", ".tmp-x", ".step-1.tmp/inside", "whole"):
        job.write(name, b"1")
    job.settle()
    assert job.restored() == {"whole": b"1"}


def test_a_log_that_never_rests_does_not_hold_checkpoints_back(job):
    job.write("train.log", b"first")
    job.settle()
    log = (job.directory / "train.log").stat().st_ino
    job.options["writers"] = lambda files: {file: False for file in files if file[1] == log}
    job.sync = job.another(1)
    for turn in range(25):
        job.write("train.log", b"line" * (30 - turn))
        job.pass_once()
    job.write("model", b"weights")
    for turn in range(4):
        job.write("train.log", b"more" * turn)
        job.pass_once()
    assert job.restored() == {"train.log": b"first", "model": b"weights"}
    assert ["never at rest" in text for text in job.said("left-out")] == [True]
    job.flush()
    assert job.restored() == contents(job.directory)


def test_a_file_that_vanished_is_waited_for_and_then_gone_from_the_next_picture(job):
    job.write("a", b"1")
    job.write("b", b"2")
    job.settle()
    (job.directory / "a").unlink()
    assert job.pass_once().pending_files == 1
    assert job.restored() == {"a": b"1", "b": b"2"}
    job.pass_once()
    assert job.restored() == {"b": b"2"}


def test_a_directory_that_is_gone_is_not_a_directory_that_is_empty(job):
    job.write("a", b"1")
    job.settle()
    (job.directory / "a").unlink()
    job.directory.rmdir()
    job.settle()
    job.flush()
    assert job.restored() == {"a": b"1"}


def test_pieces_are_not_uploaded_twice_by_this_process_the_next_or_the_next_attempt(job):
    job.write("frozen", b"same old weights")
    job.write("step-1", b"A" * 20)
    assert job.settle().uploaded_bytes == 16 + 8 + 4  # two pieces of step-1 are alike
    job.write("copy-of-frozen", b"same old weights")
    assert job.settle().uploaded_bytes == 0
    job.sync = job.another(1)
    job.write("another-copy", b"same old weights")
    assert job.settle().uploaded_bytes == 0
    job.sync = job.another(2)
    job.sync.restore()
    job.write("and-another", b"same old weights!")
    assert job.settle().uploaded_bytes == 1


def test_a_restarted_process_does_not_read_again_what_is_committed(job, store):
    job.write("a", b"1")
    job.settle()
    commits = len(store.below(MANIFESTS))
    job.sync = job.another(1)
    assert job.settle().pending_files == 0
    assert len(store.below(MANIFESTS)) == commits


def test_old_manifests_and_their_pieces_go_the_newest_never(job, store):
    for turn in range(6):
        job.write("state", bytes([65 + turn]) * 8)
        job.settle()
    assert len(store.below(MANIFESTS)) == 3
    assert len(store.below(CHUNKS)) == 3
    assert job.restored() == {"state": b"F" * 8}


def test_data_comes_before_the_manifest_and_deletions_last(job, store):
    for turn in range(4):
        job.write("state", bytes([65 + turn]) * 16)
        store.calls.clear()
        job.settle()
    order = [(call, key.split("/")[1]) for call, key in store.calls if call in ("put", "delete")]
    assert order == [("put", "chunks"), ("put", "manifests"), ("delete", "chunks"), ("delete", "manifests")]


def test_a_version_that_changes_while_it_is_read_is_thrown_away(job, store):
    job.write("a", b"before!!" * 4)
    job.pass_once()

    def rewrite(call: str, key: str) -> None:
        if call == "put" and key.startswith(CHUNKS):
            store.fail = lambda _call, _key: None
            job.write("a", b"after!!!" * 4)

    store.fail = rewrite
    assert job.pass_once().mark is None
    assert job.settle().mark is not None
    assert job.restored() == {"a": b"after!!!" * 4}


def test_a_version_that_was_read_in_full_is_committed_though_it_is_written_over_since(job, store):
    job.write("a", b"before!!")
    job.pass_once()

    def rewrite(call: str, key: str) -> None:
        if call == "put" and key.startswith(CHUNKS):
            store.fail = lambda _call, _key: None
            job.write("a", b"aft")

    store.fail = rewrite
    assert job.pass_once().mark is not None
    assert job.restored() == {"a": b"before!!"}
    job.settle()
    assert job.restored() == {"a": b"aft"}


def seconds(job, count, act, every_s=1.0):
    """Let a program act once before each of so many looks."""
    for number in range(count):
        act(number)
        synced = job.pass_once(every_s)
    return synced


@pytest.mark.parametrize("below", ["", "known/", "new/", "new/deep/"])
def test_a_program_that_adds_a_file_before_every_look_has_all_but_the_last_ones_stored(job, below):
    job.write("known/first", b"1")
    job.settle()
    synced = seconds(job, 30, lambda number: job.write(f"{below}file-{number}", b"%d" % number))
    stored = job.restored()
    assert {f"{below}file-{number}" for number in range(25)} <= stored.keys()
    assert synced.alarm is None
    assert not job.said("alarm")


@pytest.mark.parametrize("every_s", [0.1, 0.3, 0.6, 5.0])
def test_a_new_directory_that_is_filled_without_end_is_stored_however_often_it_is_looked_at(job, every_s):
    seconds(job, int(20 / every_s), lambda number: job.write(f"new/file-{number}", b"%d" % number), every_s)
    assert "new/file-0" in job.restored()


def test_a_program_that_keeps_its_last_files_has_them_stored(job):
    def rotate(number):
        job.write(f"file-{number}", b"%d" % number)
        if number >= 3:
            (job.directory / f"file-{number - 3}").unlink()

    assert seconds(job, 30, rotate).alarm is None
    stored = job.restored()
    assert "file-26" in stored
    assert len(stored) <= 6, "what is deleted is gone from the store soon"


def test_a_program_whose_files_live_shorter_than_from_look_to_look_has_some_stored(job):
    def rotate(number):
        for path in job.directory.iterdir():
            path.unlink()
        for part in range(3):
            job.write(f"file-{3 * number + part}", b"%d" % number)

    assert seconds(job, 10, rotate).alarm is None
    stored = job.restored()
    assert stored
    assert {name.partition("-")[0] for name in stored} == {"file"}


def test_files_that_are_written_over_are_stored_together_and_new_ones_do_not_wait(job):
    job.write("model", b"one")
    job.write("optimizer", b"one")
    job.settle()
    job.write("model", b"two")

    def work(number):
        job.write("optimizer", b"half of two %d" % number)
        job.write(f"new-{number}", b"1")

    seconds(job, 10, work)
    stored = job.restored()
    assert (stored["model"], stored["optimizer"]) == (b"one", b"one")
    assert {f"new-{number}" for number in range(6)} <= stored.keys()
    job.write("optimizer", b"two")
    job.settle()
    stored = job.restored()
    assert (stored["model"], stored["optimizer"]) == (b"two", b"two")


def test_what_is_deleted_stays_while_the_pointer_to_it_is_being_written(job):
    job.write("step-1", b"weights")
    job.write("pointer", b"step-1")
    job.settle()
    job.write("step-2", b"weights")
    (job.directory / "step-1").unlink()
    seconds(job, 8, lambda number: job.write("pointer", b"step-%d" % number))
    assert job.restored() == {"step-1": b"weights", "step-2": b"weights", "pointer": b"step-1"}
    job.write("pointer", b"step-2")
    job.settle()
    assert job.restored() == {"step-2": b"weights", "pointer": b"step-2"}


def test_a_new_directory_is_stored_when_all_of_it_is_finished(job):
    job.write("epoch-1/model", b"1")
    job.settle()
    job.write("epoch-2/model", b"2")

    def work(number):
        job.write("epoch-2/optimizer", b"2" * number)
        job.write(f"metrics-{number}", b"%d" % number)

    seconds(job, 15, work)
    stored = job.restored()
    assert "metrics-9" in stored
    assert not any(path.startswith("epoch-2/") for path in stored)
    job.settle()
    assert {"epoch-2/model", "epoch-2/optimizer"} <= job.restored().keys()


def test_a_large_file_does_not_keep_small_ones_waiting(job, store):
    """What one look cannot take the next goes on with, also of a file that is replaced in the meantime."""
    job.write("large", b"".join(b"%08d" % number for number in range(40)))
    puts = []

    def slow(call: str, key: str) -> None:
        if call == "put" and key.startswith(CHUNKS):
            puts.append(key)
            if len(puts) % 10 == 0:
                job.sync._called_off.set()  # as a flush does that begins

    job.pass_once()
    store.fail = slow
    for number in range(8):
        job.write(f"small-{number}", b"%d" % number)
        job.pass_once()
        job.sync._called_off.clear()
    store.fail = lambda _call, _key: None
    assert len(puts) < 40 + 8 + 8, "no piece is put twice"
    job.settle()
    job.settle()
    assert "large" in job.restored()


@pytest.mark.parametrize("target", ["epoch-2", "./epoch-2", "epoch-2/model"])
def test_a_link_inside_of_the_directory_is_kept(job, tmp_path, target):
    job.write("epoch-2/model", b"2")
    (job.directory / "latest").symlink_to(target)
    (job.directory / "epoch-2" / "up").symlink_to("../latest")
    assert job.settle().alarm is None
    job.another(2, tmp_path / "next").restore()
    assert (tmp_path / "next" / "latest").readlink() == Path(target)
    assert (tmp_path / "next" / "epoch-2" / "up").readlink() == Path("../latest")
    assert not job.said("left-out")
    job.sync = job.another(2)
    job.sync.restore()
    (job.directory / "latest").unlink()
    (job.directory / "latest").symlink_to("epoch-3")
    job.settle()
    job.another(2, tmp_path / "next").restore()
    assert (tmp_path / "next" / "latest").readlink() == Path("epoch-3")
    (job.directory / "latest").unlink()
    job.settle()
    job.another(2, tmp_path / "next").restore()
    assert not (tmp_path / "next" / "latest").is_symlink()


def test_a_link_to_what_is_not_stored_yet_stays_as_it_was(job, tmp_path):
    job.write("epoch-1/model", b"1")
    (job.directory / "latest").symlink_to("epoch-1")
    job.settle()
    (job.directory / "latest").unlink()
    (job.directory / "latest").symlink_to("epoch-2")

    def work(number):
        job.write("epoch-2/model", b"2" * number)
        job.write(f"metrics-{number}", b"%d" % number)

    seconds(job, 10, work)
    job.another(1, tmp_path / "next").restore()
    assert (tmp_path / "next" / "latest").readlink() == Path("epoch-1")
    job.settle()
    job.another(1, tmp_path / "next").restore()
    assert (tmp_path / "next" / "latest").readlink() == Path("epoch-2")


def test_holes_are_neither_read_nor_restored_as_zeros(tmp_path, store):
    job = Harness(tmp_path / "checkpoints", store, chunk_bytes=1 << 20, keep=1)
    job.directory.mkdir()
    with (job.directory / "sparse").open("wb") as file:
        file.seek(60 << 30)
        file.write(b"end")
        file.seek(7 << 30)
        file.write(b"middle")
    uploaded = job.settle().uploaded_bytes
    wait_until(lambda: job.pass_once().pending_files == 0, "all of it in the store")
    assert uploaded < 4 << 20
    job.another(2, tmp_path / "next").restore()
    copy = tmp_path / "next" / "sparse"
    assert copy.stat().st_size == (60 << 30) + 3
    assert copy.stat().st_blocks * 512 < 4 << 20
    with copy.open("rb") as file:
        file.seek(7 << 30)
        assert file.read(8) == b"middle\0\0"
        file.seek(60 << 30)
        assert file.read() == b"end"


def test_a_deep_directory_is_stored_and_comes_back(job, tmp_path):
    with deep_directory(job.directory) as path:
        job.settle()
        try:
            assert job.another(2, tmp_path / "next").restore().files == 1
            look = look_through(str(tmp_path / "next"))
            assert list(look.files) == [f"{path}/leaf"]
        finally:
            removed(str(tmp_path / "next"))


def test_a_file_that_cannot_be_read_is_told_and_keeps_nothing_waiting(store, require):
    require(os.geteuid() == 0, "only root can become another user and come back")
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        job = Harness(Path(place) / "checkpoints", store)
        job.write("secret", b"1")
        job.write("open", b"1")
        (job.directory / "secret").chmod(0)
        os.seteuid(65534)
        try:
            seconds(job, 5, lambda _number: None)
            synced = job.flush()
        finally:
            os.seteuid(0)
        assert job.restored() == {"open": b"1"}
    assert synced.alarm == "secret cannot be read (Permission denied); it is not stored"
    assert any("cannot be read" in text for text in job.said("left-out"))


RECORDED = Path(__file__).parent / "recorded" / "first-release"


def test_a_store_that_the_release_before_has_written_is_read_and_gone_on_with(tmp_path):
    shutil.copytree(RECORDED, tmp_path / "store")
    objects = open_objects(f"file://{tmp_path}/store")
    job = Harness(tmp_path / "checkpoints", objects, fence=1_763_270_000_001)
    restored = job.sync.restore()
    assert (restored.files, restored.passed_over) == (4, ())
    assert restored.mark is not None
    assert (restored.mark.name, restored.mark.step) == ("step-000000007", 7)
    assert contents(job.directory)["model.bin"] == b"another version"
    assert (job.directory / "model.bin").stat().st_mode & 0o777 == 0o640
    assert (job.directory / "empty").is_dir()
    commits = len(job.said("committed"))
    job.settle()
    assert len(job.said("committed")) == commits, "what is there is known again"
    job.write("more", b"1")
    job.settle()
    assert job.restored(1_763_270_000_002) == contents(job.directory)


@pytest.mark.parametrize("damage", ["missing", "short", "changed"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(job, store, damage):
    job.write("state", b"old one!")
    job.settle()
    before = set(store.below(CHUNKS))
    job.write("state", b"new one!")
    job.settle()
    (newest,) = set(store.below(CHUNKS)) - before
    if damage == "missing":
        del store.objects[newest]
    else:
        store.objects[newest] = b"new" if damage == "short" else b"NEW ONE!"
    restored = job.another(2).restore()
    assert contents(job.directory) == {"state": b"old one!"}
    assert len(restored.passed_over) == 1
    assert job.said("passed-over")
    assert restored.mark is not None
    assert restored.mark.bytes == 8


def test_a_piece_that_does_not_verify_is_put_anew_even_by_a_restarted_process(job, store):
    job.write("state", b"old one!")
    job.settle()
    (piece,) = store.below(CHUNKS)
    store.objects[piece] = b"rotten!!"
    job.sync = job.another(2)
    assert job.sync.restore().mark is None
    assert store.below(DAMAGED)
    job.sync = job.another(2)
    job.write("state", b"old one!")
    assert job.settle().uploaded_bytes == 8
    assert job.restored() == {"state": b"old one!"}


@pytest.mark.parametrize("bad", [b"", b"{}", b'{"version":1}', b"not json at all"])
def test_a_manifest_that_is_not_whole_is_passed_over(job, store, bad):
    job.write("state", b"1")
    job.settle()
    job.write("state", b"2")
    job.settle()
    store.objects[store.below(MANIFESTS)[-1]] = bad
    assert job.restored() == {"state": b"1"}


def test_a_superseded_attempt_stops_writing(job, store, tmp_path):
    job.write("a", b"old attempt")
    job.settle()
    newer = Harness(tmp_path / "newer", store, fence=2)
    newer.sync.restore()
    newer.write("a", b"new attempt")
    newer.settle()
    job.write("a", b"ghost")
    before = dict(store.objects)
    with pytest.raises(SupersededError, match="fence 2"):
        job.settle()
    with pytest.raises(SupersededError):
        job.flush()
    changed = {key for key in store.objects if store.objects[key] != before.get(key)}
    assert all(key.startswith(CHUNKS) for key in changed)
    assert newer.restored() == {"a": b"new attempt"}
    with pytest.raises(SupersededError):
        job.another(1).restore()


def test_a_fence_that_an_older_attempt_wrote_late_is_put_right(job, store):
    job.write("a", b"1")
    job.settle()
    store.objects[FENCE] = b"0"
    job.write("a", b"2")
    job.settle()
    assert store.objects[FENCE] == b"1"


def test_an_unanswered_commit_is_not_made_twice(job, store):
    job.write("a", b"1")
    job.pass_once()
    real_put = store.put

    def put_and_lose_the_answer(key, content, *, create_only=False):
        real_put(key, content, create_only=create_only)
        if key.startswith(MANIFESTS):
            store.put = real_put
            raise Unreachable("the answer was lost")

    store.put = put_and_lose_the_answer
    assert job.pass_once().mark is None
    assert job.pass_once(after_s=20).mark is not None
    assert len(store.below(MANIFESTS)) <= 2
    assert job.restored() == {"a": b"1"}


def test_a_store_that_fails_and_comes_back(job, store):
    def away(call: str, key: str) -> None:
        raise Unreachable("nobody there; start it")

    job.write("a", b"1")
    job.pass_once()
    store.fail = away
    assert job.pass_once().alarm is None
    assert job.said("failing") == ["nobody there; start it"]
    synced = job.pass_once(after_s=40)
    assert synced.alarm is not None
    assert "nobody there" in synced.alarm
    assert synced.lag_s > 30
    asked = len(store.calls)
    job.pass_once(after_s=0.01)
    assert len(store.calls) == asked, "a failing store is left alone for a while"
    store.fail = lambda _call, _key: None
    synced = job.pass_once(after_s=30)
    assert (synced.alarm, synced.pending_files) == (None, 0)
    assert job.said("recovered")
    assert job.restored() == {"a": b"1"}


@pytest.mark.parametrize("error", [Refused("wrong keys"), Full("no room; make some")])
def test_what_waiting_does_not_cure_is_an_alarm_at_once(job, store, error):
    def refuse(call: str, key: str) -> None:
        raise error

    job.write("a", b"1")
    store.fail = refuse
    alarm = job.settle().alarm
    assert alarm is not None
    assert str(error) in alarm


def test_restore_waits_for_the_store_until_its_deadline(job, store):
    job.write("a", b"1")
    job.settle()
    left = [3]

    def away_for_a_while(call: str, key: str) -> None:
        if left[0]:
            left[0] -= 1
            raise Unreachable("not yet")

    store.fail = away_for_a_while
    assert job.another(2).restore(deadline=job.clock.now + 60).files == 1
    left[0] = 1_000_000
    with pytest.raises(Unreachable, match="not yet"):
        job.another(3).restore(deadline=job.clock.now + 60)


def test_flush_takes_everything_as_it_is_and_tries_again(job, store):
    job.options["writers"] = lambda files: dict.fromkeys(files, False)
    job.sync = job.another(1)
    job.write("a", b"1")
    left = [2]

    def away_for_a_while(call: str, key: str) -> None:
        if left[0]:
            left[0] -= 1
            raise Unreachable("not yet")

    store.fail = away_for_a_while
    synced = job.flush()
    assert (synced.pending_files, synced.alarm) == (0, None)
    assert job.restored() == {"a": b"1"}


def test_flush_comes_back_at_its_deadline_from_a_store_that_hangs(tmp_path, store):
    from windfall.agent.sync.clocks import Clocks

    answers = threading.Event()
    job = Harness(tmp_path / "checkpoints", store)
    job.options["clocks"] = Clocks()
    job.sync = job.another(1)
    job.write("a", b"1")
    store.fail = lambda _call, _key: answers.wait(60) and None
    synced = job.sync.flush(Clocks().monotonic() + 0.2)
    assert synced.mark is None
    assert synced.alarm is not None
    answers.set()
    assert job.sync.flush(Clocks().monotonic() + 60).alarm is None
    assert job.restored() == {"a": b"1"}


def test_a_running_pass_ends_early_when_the_flush_begins(tmp_path, store):
    from windfall.agent.sync.clocks import Clocks

    job = Harness(tmp_path / "checkpoints", store, threads=1, settle_s=0.0)
    job.options["clocks"] = Clocks()
    job.sync = job.another(1)
    for number in range(50):
        job.write(f"f{number}", b"%08d" % number)
    began, go_on = threading.Event(), threading.Event()

    def first_piece(call: str, key: str) -> None:
        if call == "put" and key.startswith(CHUNKS) and not began.is_set():
            began.set()
            go_on.wait(60)

    store.fail = first_piece
    passing = threading.Thread(target=job.sync.pass_once)
    passing.start()
    assert began.wait(60)
    (job.directory / "f7").unlink()
    flushing = threading.Thread(target=job.sync.flush, args=(Clocks().monotonic() + 60,))
    flushing.start()
    while not job.sync._called_off.is_set():
        pass
    go_on.set()
    passing.join(60)
    flushing.join(60)
    assert len(store.below(MANIFESTS)) == 1
    assert job.restored() == contents(job.directory)


def test_links_and_special_files_are_told_once_and_left_alone(job):
    job.write("a", b"1")
    (job.directory / "link").symlink_to("/etc/passwd")
    (job.directory / "linked").symlink_to("/etc")
    os.mkfifo(job.directory / "pipe")
    job.write(".windfall/chunks/x", b"not ours")
    job.settle()
    job.settle()
    assert len(job.said("left-out")) == 4
    assert job.restored() == {"a": b"1"}


def test_a_step_of_the_library_gives_name_step_and_moment(job):
    for step in (7, 12):
        manifest = json.dumps({"step": step, "saved_at": 1_700_000_000_000 + step}).encode()
        job.write(f"step-{step:09d}/manifest.json", manifest)
        job.write(f"step-{step:09d}/0.bin", b"x")
    job.write("LATEST", b"newest of all")
    mark = job.settle().mark
    assert mark is not None
    assert (mark.name, mark.step, mark.state_at) == ("step-000000012", 12, 1_700_000_000_012)


def test_what_was_in_the_directory_is_replaced_by_a_restore(job, tmp_path):
    job.write("a", b"1")
    job.settle()
    job.write("a", b"half of what nobody comm")
    job.write("b", b"more")
    job.another(2).restore()
    assert contents(job.directory) == {"a": b"1"}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def test_a_job_without_checkpoints_begins_with_an_empty_directory(tmp_path, store):
    restored = Harness(tmp_path / "new" / "checkpoints", store).sync.restore()
    assert (restored.mark, restored.files) == (None, 0)
    assert list((tmp_path / "new" / "checkpoints").iterdir()) == []


def test_files_belong_to_the_job_and_keep_no_special_bits(job, require):
    require(os.geteuid() == 0, "only root gives files away")
    job.write("sub/a", b"1")
    (job.directory / "sub" / "a").chmod(0o4755)
    job.settle()
    job.options.update(uid=65534, gid=65534)
    job.another(2).restore()
    for path in (job.directory, job.directory / "sub", job.directory / "sub" / "a"):
        assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534)
    assert (job.directory / "sub" / "a").stat().st_mode & 0o7777 == 0o755


def test_lag_is_the_age_of_the_oldest_change_that_is_not_stored(job, store):
    job.write("a", b"1")
    job.pass_once()
    job.write("a", b"2")
    job.pass_once(after_s=4)
    job.write("a", b"3")
    assert job.pass_once(after_s=4).lag_s == 8
    assert job.settle().lag_s == 0


def test_what_a_killed_process_was_writing_in_place_does_not_replace_the_checkpoint_before(job):
    job.write("model", b"whole one")
    job.write("optimizer", b"whole one")
    job.settle()
    job.write("model", b"whole two")
    (job.directory / "optimizer").write_bytes(b"half of tw")  # its last change is this write, just now
    now = (job.directory / "optimizer").stat().st_mtime_ns // 1_000_000
    synced = job.sync.flush(job.clock.now + 60, killed_at=now)
    assert (
        synced.alarm
        == "optimizer was being written when the process was killed; what was written over since the checkpoint before "
        "stands as it was there"
    )
    assert synced.pending_files == 2
    assert job.restored() == {"model": b"whole one", "optimizer": b"whole one"}
    assert job.flush().alarm is None, "a process that ended by itself is taken at its word"
    assert job.restored() == contents(job.directory)


def test_what_a_killed_process_had_finished_is_kept(job):
    job.write("model", b"one")
    job.settle()
    (job.directory / "new.tmp").write_bytes(b"two")
    now = (job.directory / "new.tmp").stat().st_mtime_ns
    os.utime(job.directory / "new.tmp", ns=(now, now - 1))  # finished a moment before it was renamed
    (job.directory / "new.tmp").rename(job.directory / "model")
    (job.directory / "step-000000001").mkdir()
    for name in ("0.bin", "manifest.json"):
        (job.directory / "step-000000001" / name).write_bytes(b"{}")
    assert job.sync.flush(job.clock.now + 60, killed_at=now // 1_000_000).alarm is None
    assert job.restored() == contents(job.directory)
    (job.directory / "model").write_bytes(b"three")
    later = (job.directory / "model").stat().st_mtime_ns // 1_000_000 + 5000
    assert job.sync.flush(job.clock.now + 60, killed_at=later).alarm is None
    assert job.restored()["model"] == b"three"


def test_a_file_that_is_replaced_all_the_time_is_committed_while_the_job_runs(job):
    """Each version is complete when it is moved to its place, so any of them is a checkpoint."""
    versions = []
    for number in range(40):
        content = b"version %d" % number
        versions.append(content)
        job.write("state.new.tmp", content)
        (job.directory / "state.new.tmp").rename(job.directory / "state")
        synced = job.pass_once(after_s=0.1)
    assert synced.mark is not None
    assert job.restored()["state"] in versions


def test_what_was_renamed_into_place_just_before_a_kill_is_whole(job):
    """A file that is written in place at that moment may be half; one that was given the name of another is not."""
    job.write("replaced", b"old")
    job.write("in-place", b"old")
    job.settle()
    now_ns = 1_800_000_000_000_000_000
    job.write("replaced.new.tmp", b"new")
    (job.directory / "replaced.new.tmp").rename(job.directory / "replaced")
    os.utime(job.directory / "replaced", ns=(now_ns, now_ns))
    assert job.sync.flush(job.clock.now + 60, killed_at=now_ns // 1_000_000).alarm is None
    assert job.restored() == {"replaced": b"new", "in-place": b"old"}


def test_a_second_name_for_a_committed_file_does_not_make_it_look_unsaved(job):
    """Linking changes a file's times and not its content, as programs do that keep a `latest` beside their steps."""
    job.write("step-1.pt", b"weights")
    job.settle()
    (job.directory / "latest.tmp").hardlink_to(job.directory / "step-1.pt")
    synced = job.flush()
    assert (synced.pending_files, synced.alarm) == (0, None)
    assert job.restored() == {"step-1.pt": b"weights"}
