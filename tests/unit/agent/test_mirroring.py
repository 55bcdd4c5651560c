"""Which bytes of an attempt's log travel when, and that its end travels behind the last of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.unit.agent.stories import attempt_of, story_of
from windfall.agent.attempt import Attempt
from windfall.agent.messages import Exited
from windfall.agent.mirror_messages import LogHave, LogPiece
from windfall.agent.mirroring import PIECE_BYTES, WINDOW_BYTES, Mirror
from windfall.agent.records import Intended
from windfall.agent.settings import AgentSettings

ENDED = Exited("a#1", 0, None, 1, 2, "process")


class Machine:
    """One attempt with a log, and the mirror of its agent."""

    def __init__(self, root: Path, *, mirror: bool = True) -> None:
        self.log = root / "task.log"
        intended = Intended("a#1", "task", str(self.log), [], 64, 1.0, sandboxed=False, at=1)
        self.attempt: Attempt = attempt_of(story_of(intended))
        self.attempts: dict[str, Attempt] = {}
        self.now = 0.0
        settings = AgentSettings(str(root / "agent"), str(root / "attempts"), logs_directory=str(root))
        settings = msgspec.structs.replace(settings, mirror=mirror, machine_samples=None)
        self.mirror = Mirror(settings, self.attempts, lambda: self.now)

    def starts(self, text: bytes) -> None:
        """The attempt is ordered over this connection, and has said something."""
        self.mirror.begin_connection([], [])
        self.mirror.note_start("a#1")
        self.attempts["a#1"] = self.attempt
        self.log.write_bytes(text)

    def sends(self, *outbox: Exited) -> list[object]:
        self.now += 1.0
        return list(self.mirror.sift(outbox, is_connected=True))

    def has(self, offset: int, wait_s: float = 0.0) -> None:
        self.mirror.on_have(LogHave("task", "log", offset, wait_s))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def data(messages: list[object]) -> bytes:
    return b"".join(message.data for message in messages if isinstance(message, LogPiece))


def test_a_log_is_sent_as_it_grows_and_once(machine: Machine):
    machine.starts(b"one ")
    assert machine.sends() == [LogPiece("task", "log", 0, b"one ", 4)]
    assert machine.sends() == []
    with machine.log.open("ab") as log:
        log.write(b"two")
    assert machine.sends() == [LogPiece("task", "log", 4, b"two", 7)]


def test_the_end_comes_behind_the_last_byte(machine: Machine):
    machine.starts(b"last words")
    assert machine.sends(ENDED) == [LogPiece("task", "log", 0, b"last words", 10), ENDED]


def test_no_more_is_under_way_than_the_window(machine: Machine):
    size = WINDOW_BYTES + PIECE_BYTES
    machine.starts(b"x" * size)
    first = machine.sends(ENDED)
    assert len(data(first)) == WINDOW_BYTES
    assert ENDED not in first
    assert machine.sends() == [], "nothing more until the daemon has it"
    machine.has(WINDOW_BYTES)
    assert machine.sends() == [LogPiece("task", "log", WINDOW_BYTES, b"x" * PIECE_BYTES, size), ENDED]


def test_the_next_daemon_is_asked_what_it_has(machine: Machine):
    machine.starts(b"whole log")
    machine.sends(ENDED)
    _, told = machine.mirror.begin_connection([], [ENDED])
    assert told == [], "it may lack the log"
    assert machine.sends() == [LogPiece("task", "log", 0, b"", 9)]
    machine.has(6)
    assert machine.sends() == [LogPiece("task", "log", 6, b"log", 9), ENDED]


def test_a_daemon_without_room_is_given_time(machine: Machine):
    machine.starts(b"text")
    machine.sends()
    machine.has(0, wait_s=10)
    assert machine.sends() == []
    machine.now += 10
    assert data(machine.sends()) == b"text"


def test_this_machines_copy_goes_when_the_daemon_is_done_with_it(machine: Machine, tmp_path: Path):
    machine.starts(b"text")
    machine.sends()
    assert machine.log.exists()
    machine.mirror.forget(machine.attempt)
    assert not machine.log.exists()
    for name in ("gone.log", "gone.log.times", "gone.samples", "kept.log"):
        (tmp_path / name).touch()
    machine.mirror.tidy(["kept"])
    assert [path.name for path in tmp_path.glob("*.*")] == ["kept.log"]


def test_an_agent_on_the_daemons_disk_sends_nothing_of_it(tmp_path: Path):
    machine = Machine(tmp_path, mirror=False)
    machine.starts(b"text")
    assert machine.sends(ENDED) == [ENDED]
    machine.mirror.forget(machine.attempt)
    machine.mirror.tidy([])
    assert machine.log.exists()
