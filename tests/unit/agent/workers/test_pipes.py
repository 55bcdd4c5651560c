"""The keeper's ends of a worker's pipes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from windfall.agent.workers.pipes import WorkerPipes


@pytest.fixture
def ends() -> Iterator[tuple[WorkerPipes, int, int, int]]:
    """The pipes, and the process's ends of them."""
    tasks, output, answers = os.pipe(), os.pipe(), os.pipe()
    pipes = WorkerPipes(tasks[1], output[0], answers[0], os.pidfd_open(os.getpid()))
    yield pipes, tasks[0], output[1], answers[1]
    pipes.close()
    for fd in (tasks[0], output[1], answers[1]):
        os.close(fd)


def test_answers_are_lines_and_the_output_is_all_that_is_there(ends):
    pipes, _, output, answers = ends
    os.write(output, b"some\nwords")
    os.write(answers, b"one\ntw")
    assert (pipes.output(), pipes.answer(), pipes.answer()) == (b"some\nwords", b"one", None)
    os.write(answers, b"o\n")
    assert (pipes.output(), pipes.answer()) == (b"", b"two")
    assert not pipes.ended


@pytest.mark.parametrize("size", [5, 300_000])
def test_a_line_counts_as_read_with_its_first_byte(ends, size):
    pipes, tasks, _, _ = ends
    pipes.tell(b"x" * size)
    assert not pipes.has_read, "also where it does not fit into the pipe"
    os.read(tasks, 1)
    assert pipes.has_read
