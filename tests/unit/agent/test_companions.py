"""A process beside the agent: started, told, replaced, let go."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.waiting import wait_until
from windfall.agent.companions import Companion

ECHO = "import socket\ns=socket.socket(fileno=0)\nwhile (c := s.recv(4096)): s.sendall(c)"
CHATTER = "import socket\ns=socket.socket(fileno=0)\nwhile True: s.sendall(b'x' * 65536)"


class Loop:
    """The agent's loop as far as a companion sees it."""

    def __init__(self) -> None:
        self.callbacks: dict[int, Callable[[], None]] = {}
        self.pids: list[int] = []

    def on_readable(self, fd: int, callback: Callable[[], None] | None) -> None:
        if callback is None:
            del self.callbacks[fd]
        else:
            self.callbacks[fd] = callback

    def turn(self, companion: Companion) -> None:
        companion.tick()
        ready, _, _ = select.select(list(self.callbacks), [], [], 0.02)
        for fd in ready:
            self.callbacks[fd]()


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    for pid in made.pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def a_companion(loop: Loop, program: str = ECHO) -> Companion:
    return Companion(
        "the echo",
        [sys.executable, "-c", program],
        lambda: {"PATH": "/usr/bin"},
        loop.on_readable,
        loop.pids.append,
    )


def test_it_is_started_when_there_is_something_to_say_and_told_everything(loop: Loop):
    companion, heard = a_companion(loop), []
    companion.on_lines = heard.append
    companion.on_new = lambda: companion.send(b"all\n")
    assert companion.next_due is None
    companion.send(b"lost, because it is part of all\n")

    def echoed() -> bool:
        loop.turn(companion)
        return b"".join(heard) == b"all\n"

    wait_until(echoed, "it answers")
    assert companion.running
    companion.retire()
    assert not companion.running
    assert companion.next_due is None


def test_a_dead_one_is_replaced(loop: Loop):
    companion, news = a_companion(loop), []
    companion.on_new = lambda: news.append(1)
    companion.send(b"x\n")

    def is_new(times: int) -> bool:
        loop.turn(companion)
        return len(news) == times

    wait_until(lambda: is_new(1), "it is there")
    os.kill(loop.pids[0], signal.SIGKILL)
    wait_until(lambda: is_new(2), "another is there")
    assert len(loop.pids) == 2
    companion.retire()


def test_one_that_never_ends_its_line_is_ended(loop: Loop):
    companion = a_companion(loop, CHATTER)
    companion.send(b"x\n")

    def replaced() -> bool:
        loop.turn(companion)
        return len(loop.pids) == 2

    wait_until(replaced, "it was too much")
    companion.retire()
