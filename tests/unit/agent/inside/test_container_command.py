"""A command in a container: what the engine is asked for, and what becomes of its answers."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from windfall.agent.inside.container_command import ContainerCommand
from windfall.agent.inside.frames import ERRORS, OUTPUT
from windfall.agent.inside.local_command import CannotRun

Answer = tuple[int, Any]


class PlayedEngine:
    """An engine that gives prepared answers, and remembers what it was asked."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.asked: list[tuple[str, Any]] = []
        self.answers: dict[str, Answer] = {
            "/containers/job/exec": (201, {"Id": "e1"}),
            "/exec/e1/json": (200, {"Running": True, "Pid": os.getpid()}),
            "/exec/e1/resize": (200, {}),
        }
        #: What goes over the line of a command that is started, before it ends.
        self.streams = b""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(8)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            line, _ = self._listener.accept()
            with line, line.makefile("rb") as file:
                words = file.readline().split()
                if not words:
                    return
                headers = dict(row.lower().split(b": ", 1) for row in iter(file.readline, b"\r\n"))
                content = file.read(int(headers.get(b"content-length", 0)))
                self._answer(line, words[1].decode(), json.loads(content) if content else None)

    def _answer(self, line: socket.socket, target: str, body: Any) -> None:
        path = "/" + target.partition("?")[0].split("/", 2)[2]  # Without the version.
        self.asked.append((path, body))
        if path.endswith("/start"):
            line.sendall(
                b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n" + self.streams
            )
            return
        status, value = self.answers.get(path, (404, {"message": "no such thing"}))
        content = json.dumps(value).encode()
        line.sendall(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(content), content))

    def bodies_of(self, path: str) -> list[Any]:
        return [body for asked, body in self.asked if asked == path]

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(self.path)
        self._thread.join(120)
        self._listener.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[PlayedEngine]:
    played = PlayedEngine(str(tmp_path / "engine.sock"))
    yield played
    played.close()


@pytest.fixture
def start(engine: PlayedEngine) -> Iterator[Callable[..., ContainerCommand]]:
    begun: list[ContainerCommand] = []

    def begin(*command: str, tty: bool = False) -> ContainerCommand:
        orders = {
            "session": "5e55",
            "command": list(command),
            "shell": "/bin/zsh",
            "tty": tty,
            "rows": 5,
            "columns": 7,
            "term": "vt100",
            "container": {"socket": engine.path, "api": "1.41", "name": "job"},
        }
        begun.append(ContainerCommand(orders))
        return begun[-1]

    yield begin
    for command in begun:
        command._line.close()


def piece(stream: int, content: bytes) -> bytes:
    return struct.pack(">BxxxI", stream, len(content)) + content


def all_of(command: ContainerCommand) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = []

    def has_ended() -> bool:
        for fd in list(command.outputs):
            found.extend(command.take(fd))
        return not command.outputs

    wait_until(has_ended, "the end of its output")
    return found


def test_a_command_is_asked_for_as_the_containers_own_user(engine, start):
    start("ls", "-l")
    (body,) = engine.bodies_of("/containers/job/exec")
    assert (body["Cmd"], body["Tty"], body["Env"]) == (["ls", "-l"], False, ["WINDFALL_EXEC=5e55"])
    assert not {"User", "Privileged"} & set(body)
    assert not engine.bodies_of("/exec/e1/resize")


def test_a_shell_at_a_terminal(engine, start):
    start(tty=True)
    (body,) = engine.bodies_of("/containers/job/exec")
    assert (body["Cmd"][0], body["Cmd"][-1]) == ("/bin/sh", "/bin/zsh")
    assert body["Env"] == ["WINDFALL_EXEC=5e55", "TERM=vt100"]
    assert len(engine.bodies_of("/exec/e1/resize")) == 1


def test_output_and_errors_are_apart(engine, start):
    engine.streams = piece(1, b"out") + piece(2, b"err") + piece(1, b"more")
    command = start("x")
    assert all_of(command) == [(OUTPUT, b"out"), (ERRORS, b"err"), (OUTPUT, b"more")]
    engine.answers["/exec/e1/json"] = (200, {"Running": False, "ExitCode": 5})
    assert wait_until(command.exit_code, "its exit code") == 5


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ('exec: "x": executable file not found in $PATH', 127),
        ("x: permission denied", 126),
        ("container job is paused", 1),
    ],
)
def test_what_the_engine_refuses(engine, start, words, code):
    engine.answers["/containers/job/exec"] = (400, {"message": words})
    with pytest.raises(CannotRun) as refused:
        start("x")
    assert refused.value.code == code


def test_a_command_that_never_began_is_told_in_the_place_of_its_output(engine, start):
    engine.answers["/exec/e1/json"] = (200, {"Running": False, "ExitCode": 127, "Pid": 0})
    engine.streams = b'OCI runtime exec failed: "x": executable file not found in $PATH'
    with pytest.raises(CannotRun, match="there is no program 'x' inside the container"):
        start("x")


def test_a_container_that_is_gone(engine, start):
    command = start("x")
    all_of(command)
    del engine.answers["/exec/e1/json"]
    assert wait_until(command.exit_code, "its exit code") == 1
    assert (command.failure, command.place_is_gone()) == ("the container is gone", True)


def test_what_is_not_ours_to_kill_is_killed_inside_without_rights_of_root(engine, start, monkeypatch):
    """The container's own `kill` does it, and what that is, the job may have decided."""
    command = start("x")

    def refuse(*_: int) -> None:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", refuse)
        command.kill(os.getpid(), signal.SIGTERM)
        command.kill(os.getpid(), signal.SIGKILL)
    _, body = engine.bodies_of("/containers/job/exec")
    assert body["Cmd"][:2] == ["kill", "-KILL"]
    assert "User" not in body
