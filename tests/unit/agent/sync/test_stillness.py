"""Which files are at rest, from successive looks."""

from __future__ import annotations

from windfall.agent.sync.scanning import Found, Stamp
from windfall.agent.sync.stillness import Stillness


def a_file(inode: int, version: int = 0) -> Found:
    return Found(Stamp(1, inode, 10, version, version), 0o644)


def test_a_file_is_still_when_two_looks_far_enough_apart_agree():
    stillness = Stillness(0.5, 20, lambda _files: set())
    assert stillness.judge({"a": a_file(1)}, ["a"], 0.0).unsettled == {"a"}
    assert stillness.judge({"a": a_file(1)}, ["a"], 0.4).still == frozenset()
    assert stillness.judge({"a": a_file(1)}, ["a"], 0.5).still == {"a"}
    assert stillness.judge({"a": a_file(1, version=1)}, ["a"], 0.6).unsettled == {"a"}


def test_only_quiet_files_are_asked_about_and_open_ones_wait():
    asked = []

    def writers(files):
        asked.append(set(files))
        return {(1, 1)}

    stillness = Stillness(0.5, 20, writers)
    files = {"a": a_file(1), "b": a_file(2), "committed": a_file(3)}
    stillness.judge(files, ["a", "b"], 0.0)
    judged = stillness.judge(files, ["a", "b"], 1.0)
    assert asked == [set(), {(1, 1), (1, 2)}]
    assert (judged.still, judged.unsettled) == ({"b"}, {"a"})


def test_what_never_rests_stops_holding_others_back_until_it_rests():
    stillness = Stillness(0.5, 20, lambda _files: set())
    for second in range(20):
        assert stillness.judge({"log": a_file(1, second)}, ["log"], float(second)).unsettled == {"log"}
    judged = stillness.judge({"log": a_file(1, 20)}, ["log"], 20.0)
    assert (judged.unsettled, judged.restless) == (frozenset(), {"log"})
    judged = stillness.judge({"log": a_file(1, 20)}, ["log"], 21.0)
    assert (judged.still, judged.restless) == ({"log"}, frozenset())
    assert stillness.judge({"log": a_file(1, 22)}, ["log"], 22.0).unsettled == {"log"}


def test_a_name_that_has_just_vanished_is_waited_for():
    stillness = Stillness(0.5, 20, lambda _files: set())
    stillness.judge({"a": a_file(1), "b": a_file(2)}, [], 0.0)
    assert stillness.judge({"b": a_file(2)}, [], 1.0).unsettled == {"a"}
    assert stillness.judge({"b": a_file(2)}, [], 1.4).unsettled == {"a"}
    assert stillness.judge({"b": a_file(2)}, [], 1.5).unsettled == frozenset()
    stillness.judge({"a": a_file(3), "b": a_file(2)}, ["a"], 1.6)
    assert stillness.judge({"b": a_file(2)}, [], 1.7).unsettled == {"a"}


def replaced(version: int) -> Found:
    """Another file of the same name at every version."""
    return Found(Stamp(1, 100 + version, 10, version, version), 0o644)


def test_what_is_replaced_again_and_again_by_finished_files_is_taken_after_a_moment():
    stillness = Stillness(0.5, 20, lambda _files: set())
    for tenth in range(15):
        assert stillness.judge({"a": replaced(tenth)}, ["a"], tenth / 10).unsettled == {"a"}
    assert stillness.judge({"a": replaced(15)}, ["a"], 1.5).still == {"a"}
    assert stillness.judge({"a": replaced(16)}, ["a"], 1.6).unsettled == {"a"}, (
        "and then again after a moment"
    )


def test_what_is_replaced_in_the_rhythm_of_the_looks_has_the_same_number_and_is_taken_too():
    """A file system gives a number that has become free to the next file: every second one has the same."""
    stillness = Stillness(0.5, 20, lambda _files: set())
    for second in range(3):
        again = Found(Stamp(1, 7, 10, second, second), 0o644, born_ns=1 + second)
        judged = stillness.judge({"a": again}, ["a"], float(second))
    assert judged.still == {"a"}
    assert set(stillness.replaced) == {"a"}


def test_what_is_written_in_place_is_not_taken_for_replaced():
    stillness = Stillness(0.5, 20, lambda _files: set())
    for second in range(10):
        same = Found(Stamp(1, 7, 10, second, second), 0o644, born_ns=1)
        assert stillness.judge({"a": same}, ["a"], float(second)).unsettled == {"a"}
    assert not stillness.replaced


def test_what_is_replaced_waits_while_it_is_open_for_writing():
    stillness = Stillness(0.5, 20, set)
    for tenth in range(30):
        assert stillness.judge({"a": replaced(tenth)}, ["a"], tenth / 10).still == frozenset()
