"""Real programs that write in every way into a checkpoint directory, ended with and without notice."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.unit.agent.sync.trees import contents
from tests.waiting import wait_until
from windfall.agent.sync import CheckpointSync, Synced
from windfall.objects.opening import open_objects

#: A file is in the store by then, whatever else is written.
SOON_S = 20.0
EVERY_S = 0.3

#: Each writes a line for what it has finished, after it has.
HEAD = """
import os, sys, time
def put(name, content=None):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "wb") as file:
        file.write((content or name).encode())
def moved(name, content=None):
    put(name + ".tmp", content or name)
    os.rename(name + ".tmp", name)
def said(name):
    print(name, flush=True)
n = 0
"""
WRITERS = {
    "20 a second": "while True:\n put(f'f-{n}'); said(f'f-{n}'); n += 1; time.sleep(0.05)",
    "1 a second": "while True:\n put(f'f-{n}'); said(f'f-{n}'); n += 1; time.sleep(1)",
    "below a directory": "while True:\n put(f'd/f-{n}'); said(f'd/f-{n}'); n += 1; time.sleep(0.05)",
    "moved to their names": "while True:\n moved(f'f-{n}'); said(f'f-{n}'); n += 1; time.sleep(0.05)",
    "beside a log": (
        "log = open('train.log', 'a')\n"
        "while True:\n"
        " print('line', n, file=log, flush=True); moved(f'f-{n}'); said(f'f-{n}'); n += 1; time.sleep(0.05)"
    ),
    "beside a file that is always open": (
        "log = open('events', 'w')\n"
        "while True:\n"
        " print('line', n, file=log, flush=True); moved(f'f-{n}'); said(f'f-{n}'); n += 1; time.sleep(0.05)"
    ),
    "beside one that is replaced": (
        "while True:\n moved('state', f'{n}'); moved(f'f-{n}'); said(f'f-{n}'); n += 1; time.sleep(0.05)"
    ),
}


class Program:
    """A process that writes, what it has said, and the syncing of its directory."""

    def __init__(self, directory: Path, store: str, script: str) -> None:
        directory.mkdir()
        self.directory = directory
        self.store = store
        self.sync = CheckpointSync(open_objects(store), str(directory), 1)
        self.finished: dict[str, float] = {}
        self.alarms: set[str] = set()
        self._ends = threading.Event()
        self.process = subprocess.Popen(
            [sys.executable, "-c", HEAD + script], cwd=directory, stdout=subprocess.PIPE, text=True
        )
        self._threads = [threading.Thread(target=work) for work in (self._listen, self._pass)]
        for thread in self._threads:
            thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.finished[line.strip()] = time.monotonic()

    def _pass(self) -> None:
        while not self._ends.wait(EVERY_S):
            synced = self.sync.pass_once()
            if synced.alarm is not None:
                self.alarms.add(synced.alarm)

    def kill(self) -> int:
        """End it at once; the answer is when, in milliseconds."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)
        killed_at = time.time_ns() // 1_000_000
        self._ends.set()
        for thread in self._threads:
            thread.join(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return killed_at

    def flush(self, notice_s: float, killed_at: int | None) -> Synced:
        return self.sync.flush(time.monotonic() + notice_s, killed_at)

    def stored(self) -> dict[str, bytes]:
        """What the next attempt would begin with."""
        place = self.directory.parent / "next"
        # As the attempt itself, so that looking does not take the prefix over.
        CheckpointSync(open_objects(self.store), str(place), 1).restore()
        found = contents(place)
        shutil.rmtree(place)
        return found


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[[str], Program]]:
    running: list[Program] = []

    def start(script: str) -> Program:
        running.append(Program(tmp_path / "checkpoints", f"file://{tmp_path}/store", script))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.kill()


@pytest.mark.parametrize("writer", WRITERS)
def test_what_a_program_has_finished_is_stored_soon_while_it_goes_on(program, writer: str):
    running = program(WRITERS[writer])
    wait_until(lambda: running.finished, "the first file")
    first = next(iter(running.finished))
    wait_until(lambda: first in running.stored(), "the first file in the store", deadline_s=SOON_S)
    later = list(running.finished)[-1]
    wait_until(lambda: later in running.stored(), "a later one in the store", deadline_s=SOON_S)
    running.kill()
    stored = running.stored()
    known = [name for name in running.finished if name in stored]
    assert known == list(running.finished)[: len(known)], "nothing was passed over"
    assert all(stored[name] == name.encode() for name in known)
    assert running.alarms == set()


@pytest.mark.parametrize("notice_s", [5, 20])
@pytest.mark.parametrize("writer", ["moved to their names", "beside a log", "beside one that is replaced"])
def test_with_notice_everything_that_was_moved_to_its_name_is_stored(program, writer: str, notice_s: int):
    running = program(WRITERS[writer])
    wait_until(lambda: len(running.finished) > 40, "files")
    killed_at = running.kill()
    synced = running.flush(notice_s, killed_at)
    stored = running.stored()
    assert [name for name in running.finished if name not in stored] == []
    if writer == "beside one that is replaced":
        assert int(stored["state"]) >= len(running.finished) - 1
    if synced.alarm is not None:
        assert "was being written when the process was killed" in synced.alarm


def test_a_plain_writer_loses_at_most_what_it_wrote_in_its_last_second(program):
    running = program(WRITERS["20 a second"])
    wait_until(lambda: len(running.finished) > 60, "files")
    killed_at = running.kill()
    running.flush(5, killed_at)
    stored = running.stored()
    last = max(running.finished.values())
    assert [name for name, at in running.finished.items() if at < last - 2 and name not in stored] == []


def test_files_that_live_for_a_moment_are_stored_too(program):
    running = program(
        "while True:\n"
        " put(f'f-{n}'); said(f'f-{n}'); n += 1; time.sleep(0.05)\n"
        " if n > 3: os.unlink(f'f-{n - 4}')"
    )
    wait_until(running.stored, "some of them in the store", deadline_s=SOON_S)
    running.kill()
    assert all(content == name.encode() for name, content in running.stored().items())


def test_a_log_is_stored_as_far_as_it_has_come(program):
    running = program(WRITERS["beside a log"])
    wait_until(lambda: running.stored().get("train.log"), "a part of the log", deadline_s=SOON_S)
    running.kill()
    log = running.stored()["train.log"]
    assert (running.directory / "train.log").read_bytes().startswith(log)


DATABASE = """
import sqlite3
base = sqlite3.connect("jobs.db", isolation_level=None)
base.execute("pragma journal_mode = {mode}")
base.execute("create table if not exists t (n integer, body text)")
while True:
    base.execute("begin"); base.execute("insert into t values (?, ?)", (n, "x" * 3000))
    base.execute("insert into t values (?, ?)", (-n, "x" * 3000)); base.execute("commit")
    said(str(n)); n += 1; time.sleep({pause})
"""


@contextmanager
def database(files: dict[str, bytes], place: Path) -> Iterator[sqlite3.Connection]:
    """A stored database, as the next attempt opens it."""
    place.mkdir()
    for name, content in files.items():
        (place / name).write_bytes(content)
    with closing(sqlite3.connect(place / "jobs.db")) as base:
        yield base
    shutil.rmtree(place)


@pytest.mark.parametrize("mode", ["wal", "delete"])
@pytest.mark.parametrize("pause", [0.01, 0.7])
def test_a_database_is_never_damaged_and_whole_after_a_notice(program, tmp_path, mode: str, pause: float):
    running = program(DATABASE.format(mode=mode, pause=pause))
    wait_until(lambda: len(running.finished) > 8, "transactions")
    killed_at = running.kill()
    before = running.stored()
    if "jobs.db" in before:
        with database(before, tmp_path / "look") as base:
            assert base.execute("pragma integrity_check").fetchall() == [("ok",)]
    assert running.flush(20, killed_at).alarm is None
    with database(running.stored(), tmp_path / "look") as base:
        assert base.execute("pragma integrity_check").fetchall() == [("ok",)]
        (count, balance) = base.execute("select count(*), sum(n) from t").fetchone()
    assert (count >= 2 * len(running.finished), balance) == (True, 0)


def test_sixty_gigabytes_of_hole_are_stored_and_restored_as_one(program, tmp_path):
    running = program(
        "with open('sparse', 'wb') as file:\n"
        "    file.truncate(60 << 30); file.seek(30 << 30); file.write(b'middle')\n"
        "said('sparse')\n"
        "time.sleep(600)"
    )
    wait_until(lambda: "sparse" in running.finished, "the file")
    killed_at = running.kill()
    assert running.flush(20, killed_at + 5000).alarm is None
    place = tmp_path / "next"
    CheckpointSync(open_objects(running.store), str(place), 1).restore()
    status = (place / "sparse").stat()
    assert status.st_size == 60 << 30
    assert status.st_blocks * 512 < 1 << 20
    descriptor = os.open(place / "sparse", os.O_RDONLY)
    assert os.pread(descriptor, 6, 30 << 30) == b"middle"
    os.close(descriptor)
