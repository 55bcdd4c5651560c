"""The warden when the world around it breaks: real processes, a log on a full disk, a directory that is removed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.waiting import wait_until
from windfall.agent import warden

#: An agent that notes that it was started, and fails.
FAILING = 'echo started >> "$0"; exit 1'


def a_warden(directory: Path, notes: Path, script: str, stderr: object) -> subprocess.Popen[bytes]:
    directory.mkdir(exist_ok=True)
    command = [sys.executable, "-I", "-S", warden.__file__, str(directory)]
    return subprocess.Popen([*command, "/bin/sh", "-c", script, str(notes)], stderr=stderr)  # type: ignore[call-overload] # any kind of file


def test_it_lives_on_when_not_a_word_can_be_written(tmp_path: Path):
    notes = tmp_path / "notes"
    with open("/dev/full", "wb") as full:
        guard = a_warden(tmp_path / "agent", notes, FAILING, full)
    try:
        wait_until(
            lambda: notes.exists() and len(notes.read_text().split()) >= 3, "an agent that is started again"
        )
        assert guard.poll() is None
    finally:
        guard.kill()
        guard.wait()


def test_it_ends_when_its_directory_was_removed(tmp_path: Path):
    notes, directory = tmp_path / "notes", tmp_path / "agent"
    waits = 'echo started >> "$0"; while test -e "$0.stay"; do sleep 0.01; done; exit 1'
    (tmp_path / "notes.stay").touch()
    guard = a_warden(directory, notes, waits, subprocess.DEVNULL)
    try:
        wait_until(notes.exists, "an agent")
        shutil.rmtree(directory)
        (tmp_path / "notes.stay").unlink()
        assert guard.wait(60) == 0
        assert notes.read_text().split() == ["started"]
    finally:
        guard.kill()
        guard.wait()


def test_one_that_fails_again_and_again_is_not_hurried_and_ends_when_told_to(tmp_path: Path):
    notes = tmp_path / "notes"
    # It asks for the next one itself, as a daemon does that waits for an agent.
    guard = a_warden(
        tmp_path / "agent", notes, 'echo started >> "$0"; kill -HUP $PPID; exit 1', subprocess.PIPE
    )
    assert guard.stderr is not None
    try:
        told = [guard.stderr.readline().decode() for _ in range(2)]
        assert [line.rpartition(" in ")[2].strip() for line in told] == ["0.20 s", "0.40 s"]
        guard.terminate()
        assert guard.wait(60) == 0
    finally:
        guard.kill()
        guard.wait()
        guard.stderr.close()


def test_an_agent_that_dies_of_being_told_to_end_is_not_started_again(tmp_path: Path):
    notes = tmp_path / "notes"
    guard = a_warden(tmp_path / "agent", notes, 'echo started >> "$0"; exec sleep 60', subprocess.DEVNULL)
    try:
        wait_until(notes.exists, "an agent")
        guard.terminate()
        assert guard.wait(60) == 0
        assert notes.read_text().split() == ["started"]
    finally:
        guard.kill()
        guard.wait()
