"""Read connections are kept for the next reader, thrown away after an error, and all closed at the end."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from windfall.store.errors import ReadFailed
from windfall.store.readers import KEPT, Readers


class FakeConnection:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def made() -> list[FakeConnection]:
    return []


@pytest.fixture
def readers(made) -> Readers[FakeConnection]:
    def connect() -> FakeConnection:
        made.append(FakeConnection())
        return made[-1]

    return Readers(connect)


def test_a_connection_is_used_again(readers, made):
    for _ in range(3):
        with readers.borrowed() as connection:
            assert connection is made[0]
    assert [it.closed for it in made] == [0]


def test_readers_at_once_have_one_each_and_a_few_are_kept(readers, made):
    with ExitStack() as stack:
        borrowed = [stack.enter_context(readers.borrowed()) for _ in range(KEPT + 3)]
        assert len({id(it) for it in borrowed}) == KEPT + 3
    assert sum(it.closed for it in made) == 3


def test_after_an_error_a_connection_is_not_used_again(readers, made):
    with pytest.raises(ZeroDivisionError), readers.borrowed():
        raise ZeroDivisionError
    assert made[0].closed == 1
    with readers.borrowed() as connection:
        assert connection is made[1]


def test_forgetting_closes_the_idle_ones_and_reading_goes_on(readers, made):
    with readers.borrowed():
        pass
    readers.forget()
    assert made[0].closed == 1
    with readers.borrowed() as connection:
        assert connection is made[1]


def test_closing_closes_idle_ones_now_and_borrowed_ones_when_they_come_back(readers, made):
    with readers.borrowed(), readers.borrowed() as late:
        pass
    with readers.borrowed() as late:
        readers.close()
        assert late.closed == 0
    assert [it.closed for it in made] == [1, 1]
    with pytest.raises(ReadFailed, match="closed"), readers.borrowed():
        pass
