"""Ids are put together and taken apart in one way only."""

from __future__ import annotations

import pytest

from windfall.jobs.ids import JobId, attempt_token, child_id, split_child, task_id


@pytest.mark.parametrize("index", [0, 7, 10, 9999])
def test_a_childs_id_is_taken_apart_as_it_was_put_together(index):
    assert split_child(child_id(JobId("array"), index)) == ("array", index)


@pytest.mark.parametrize(
    "text", ["job", "job:", "job:x", "job:-1", "job:07", "job:1:2", "job:²", "job:٣", "job: 1"]
)
def test_what_is_no_childs_id_is_left_alone(text):
    assert split_child(JobId(text)) == (text, None)


def test_a_task_id_is_derived_from_the_attempt_and_differs_for_each():
    first, second = (task_id(attempt_token(JobId("job"), n), 7) for n in (1, 2))
    assert first == task_id(attempt_token(JobId("job"), 1), 7)
    assert first != second
    assert len(first) == 32
