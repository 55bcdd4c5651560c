"""The keeper of a session as a real process, in the place of a process of this user."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.waiting import wait_until
from windfall.agent.inside.frames import (
    ENDED,
    ERRORS,
    INPUT,
    INPUT_END,
    OUTPUT,
    STARTED,
    FrameReader,
    frame,
    read_ended,
    window,
)
from windfall.agent.inside.keeper import GONE
from windfall.agent.processes import EXEC_VARIABLE, read_stat, snapshot, variables_of

SESSION = uuid.uuid4().hex


class KeptSession:
    """What the daemon and the agent have of a session."""

    def __init__(
        self, job: subprocess.Popen[bytes], command: list[str], before: str = "", **more: Any
    ) -> None:
        """`before` is run in the keeper before it begins."""
        self.line, theirs = socket.socketpair()
        self.agent, agents = socket.socketpair()
        self.line.settimeout(60)
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{before}\nfrom windfall.agent.inside.keeper import main; main()"],
            stdin=theirs,
            stdout=agents,
        )
        theirs.close()
        agents.close()
        stat = read_stat(job.pid)
        assert stat is not None
        orders = {
            "session": SESSION,
            "command": command,
            "shell": "/bin/no-such-shell",
            "tty": False,
            "rows": 24,
            "columns": 80,
            "term": "dumb",
            "pid": job.pid,
            "start_ticks": stat.start_ticks,
            "ticks_span": 0,
            "sandboxed": False,
            "user": None,
            "cgroup_files": [],
            "environment": {"PATH": os.defpath, "LEAST": "yes"},
            "container": None,
        }
        self.agent.sendall(json.dumps({**orders, **more}).encode() + b"\n")
        self._reader = FrameReader()

    def send(self, *frames: bytes) -> None:
        self.line.sendall(b"".join(frames))

    def to_the_end(self) -> tuple[dict[bytes, bytes], tuple[int | None, str | None]]:
        """What came of each kind, and how it ended."""
        found: dict[bytes, bytes] = {}
        while chunk := self.line.recv(1 << 16):
            for kind, content in self._reader.feed(chunk):
                found[kind] = found.get(kind, b"") + content
        return found, read_ended(found[ENDED])

    def until(self, kind: bytes, text: bytes = b"") -> None:
        seen = b""
        while True:
            chunk = self.line.recv(1 << 16)
            assert chunk, "the line is closed"
            for found, content in self._reader.feed(chunk):
                seen += content if found == kind else b""
                if found == kind and text in seen:
                    return

    def close(self) -> None:
        self.line.close()
        self.agent.close()
        self.process.wait(60)


def marked() -> list[int]:
    """The processes of the session."""
    mark = f"{EXEC_VARIABLE}={SESSION}".encode()
    return [pid for pid in snapshot() if mark in variables_of(pid)]


@pytest.fixture
def job(tmp_path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a job's."""
    environment = {"PATH": os.environ["PATH"], "WINDFALL_ATTEMPT": "job#1", "OWN": "variable"}
    with subprocess.Popen(["sleep", "600"], cwd=tmp_path, env=environment, umask=0o027) as process:
        yield process
        process.kill()


@pytest.fixture
def kept(job) -> Iterator[Any]:
    opened: list[KeptSession] = []

    def start(*command: str, **more: Any) -> KeptSession:
        opened.append(KeptSession(job, list(command), **more))
        return opened[-1]

    yield start
    for session in opened:
        session.close()


def test_a_command_has_the_place_of_the_job(kept, tmp_path):
    session = kept("sh", "-c", "pwd; echo $OWN $WINDFALL_EXEC; umask; echo err >&2; ls /proc/self/fd; exit 3")
    found, end = session.to_the_end()
    assert STARTED in found
    assert found[OUTPUT].decode().split() == [
        str(tmp_path),
        "variable",
        SESSION,
        "0027",
        "0",
        "1",
        "2",
        "3",
    ]
    assert (found[ERRORS], end) == (b"err\n", (3, None))


def test_input_and_its_end(kept):
    session = kept("cat")
    session.send(frame(INPUT, b"one\0"), window(1, 1), frame(INPUT, b"two"), frame(INPUT_END))
    found, end = session.to_the_end()
    assert (found[OUTPUT], end) == (b"one\0two", (0, None))


def test_a_terminal(kept):
    session = kept("sh", "-c", "stty size; read answer; echo got-$answer", tty=True, term="xterm")
    session.until(OUTPUT, b"24 80")
    session.send(frame(INPUT, b"42\r"))
    found, end = session.to_the_end()
    assert b"got-42" in found[OUTPUT]
    assert end == (0, None)


def test_no_such_program_and_no_such_job(kept, job):
    _, end = kept("no-such-program").to_the_end()
    assert end == (127, "there is no program 'no-such-program' inside the job")
    _, end = kept("/").to_the_end()
    assert end[0] == 126
    _, end = kept("true", start_ticks=1).to_the_end()
    assert end == (1, "the job has ended")


def test_without_a_command_there_is_a_shell(kept):
    session = kept()
    session.send(frame(INPUT, b"echo $OWN; exit 4\n"))
    found, end = session.to_the_end()
    assert (found[OUTPUT], end[0]) == (b"variable\n", 4)


def test_a_job_that_has_overwritten_its_environment(kept, job, tmp_path):
    with subprocess.Popen(["sleep", "600"], cwd=tmp_path, env={}) as bare:
        stat = read_stat(bare.pid)
        assert stat is not None
        session = kept("sh", "-c", "echo $LEAST", pid=bare.pid, start_ticks=stat.start_ticks)
        found, _ = session.to_the_end()
        bare.kill()
    assert found[OUTPUT] == b"yes\n"


@pytest.mark.parametrize("ending", ["daemon", "agent", "told"])
def test_its_processes_end_with_it(kept, ending):
    session = kept(
        "sh", "-c", "trap '' HUP TERM; (setsid sleep 601 &) ; sleep 602 & echo ready; wait; sleep 603"
    )
    session.until(OUTPUT, b"ready")
    if ending == "daemon":
        session.line.close()
        session.process.wait(60)
    elif ending == "agent":
        session.agent.close()
        assert session.to_the_end()[1] == (None, GONE)
    else:
        session.agent.sendall(b"the job has ended")
        assert session.to_the_end()[1] == (None, "the job has ended")
    assert not marked()


def test_output_that_nobody_takes_stays_with_the_command(kept):
    """The keeper holds little of what an endless command writes, and ends it when the daemon hangs up."""
    session = kept("yes")
    session.until(STARTED)
    seen = []

    def is_blocked() -> bool:
        writers = [stat for stat in map(read_stat, marked()) if stat is not None]
        stat = read_stat(session.process.pid)
        assert stat is not None
        seen.append(stat.resident_bytes)
        return any(stat.state == "S" for stat in writers)

    wait_until(is_blocked, "the command waits for somebody to read")
    assert max(seen) < 64 << 20
    session.line.close()
    session.process.wait(60)
    assert not marked()


def test_a_command_that_is_held_up_before_it_begins_is_given_up(kept, tmp_path):
    """As by a job that stops each process that appears in its place."""
    held_up = tmp_path / "nobody-reads-this"
    os.mkfifo(held_up)
    hurried = "import windfall.agent.inside.local_command as local; local._STARTS_WITHIN_S = 0.2"
    session = kept("true", before=hurried, cgroup_files=[str(held_up)])
    found, (code, message) = session.to_the_end()
    assert (STARTED in found, code) == (False, 1)
    assert "has not begun" in str(message)
    session.process.wait(60)
    assert [stat for stat in snapshot().values() if stat.ppid == session.process.pid] == []
