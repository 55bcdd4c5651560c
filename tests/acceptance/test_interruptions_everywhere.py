"""A few runs of the drill (`make drill` plays hundreds): whatever happens when, the final bits are the same."""

from __future__ import annotations

import pytest

from tests.drill.drill import Drill


@pytest.mark.long
def test_trainings_that_are_struck_at_every_stage_end_as_if_nothing_had_happened():
    with Drill() as drill:
        told: list[str] = []
        wrong = drill.play(range(100, 112), at_once=4, say=told.append)
        assert not wrong, "\n".join(wrong)
        assert len(told) == 12
        assert drill.blows >= 24, "every run is struck at least twice"
