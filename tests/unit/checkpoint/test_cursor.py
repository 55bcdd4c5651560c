from __future__ import annotations

import pytest

from windfall.checkpoint import Cursor
from windfall.checkpoint.errors import Mismatch, WrongUse


@pytest.mark.parametrize("length", [1, 2, 3, 10, 97, 1000, 4096])
def test_an_epoch_holds_every_sample_once(length):
    cursor = Cursor(length, batch_size=7, seed=1)
    seen = [index for batch in cursor for index in batch]
    assert sorted(seen) == list(range(length))
    assert (cursor.epoch, cursor.position) == (1, 0)


def test_the_order_depends_on_seed_and_epoch_alone():
    def order(seed: int) -> list[list[int]]:
        cursor = Cursor(100, batch_size=10, seed=seed)
        return [[index for batch in cursor for index in batch] for _ in range(2)]

    first, second = order(1)
    assert order(1) == [first, second]
    assert first != second
    assert order(2)[0] != first
    assert first != sorted(first)


def test_without_shuffling_the_order_is_that_of_the_data():
    assert list(Cursor(5, batch_size=2, shuffle=False)) == [[0, 1], [2, 3], [4]]
    assert list(Cursor(5, batch_size=2, shuffle=False, drop_last=True)) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("stop_after", range(11))
def test_a_resumed_epoch_goes_on_where_it_stopped(stop_after):
    straight = Cursor(50, batch_size=5, seed=4)
    whole = [batch for _ in range(2) for batch in straight]
    first = Cursor(50, batch_size=5, seed=4)
    done = []
    for batch in first:
        if len(done) == stop_after:
            break
        done.append(batch)
        state = first.state_dict()
    if stop_after == 0:
        state = Cursor(50, batch_size=5, seed=4).state_dict()
    second = Cursor(50, batch_size=5, seed=99)
    second.load_state_dict(state)
    while second.epoch < 2:
        done += list(second)
    assert done == whole


def test_a_loader_that_reads_ahead_does_not_move_the_position():
    cursor = Cursor(40, batch_size=4, seed=2)
    ahead = list(cursor.ahead())
    assert cursor.position == 0
    assert len(ahead) == len(cursor) == 10
    got = []
    for batch in cursor.through(ahead):
        got.append(batch)
        if len(got) == 3:
            break
    assert cursor.position == 12
    rest = list(cursor.ahead())
    assert got + rest == ahead


def test_another_data_set_is_refused():
    with pytest.raises(Mismatch, match="40 samples"):
        Cursor(41).load_state_dict(Cursor(40).state_dict())


def test_nothing_to_read_is_refused():
    with pytest.raises(WrongUse):
        Cursor(0)
