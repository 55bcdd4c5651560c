"""Which files are at rest, from successive looks."""

from __future__ import annotations

from windfall.agent.sync.scanning import Found, Stamp
from windfall.agent.sync.stillness import Stillness


def a_file(inode: int, version: int = 0) -> Found:
    return Found(Stamp(1, inode, 10, version, version), 0o644)


def open_by_somebody(files):
    return dict.fromkeys(files, False)


def test_a_file_is_still_when_two_looks_far_enough_apart_agree():
    stillness = Stillness(0.5, 20, lambda _files: {})
    assert stillness.judge({"a": a_file(1)}, ["a"], 0.0).moving == {"a"}
    assert stillness.judge({"a": a_file(1)}, ["a"], 0.4).still == frozenset()
    assert stillness.judge({"a": a_file(1)}, ["a"], 0.5).still == {"a"}
    assert stillness.judge({"a": a_file(1, version=1)}, ["a"], 0.6).moving == {"a"}


def test_only_changed_files_are_asked_about_and_open_ones_wait():
    asked = []

    def writers(files):
        asked.append(set(files))
        return {(1, 1): False}

    stillness = Stillness(0.5, 20, writers)
    files = {"a": a_file(1), "b": a_file(2), "committed": a_file(3)}
    stillness.judge(files, [], 0.0)
    judged = stillness.judge(files, ["a", "b"], 1.0)
    assert asked == [{(1, 1), (1, 2)}]
    assert (judged.still, judged.moving) == ({"b"}, {"a"})


def test_a_file_that_is_old_by_its_own_time_is_still_at_the_first_look():
    stillness = Stillness(0.5, 20, lambda _files: {})
    files = {"old": a_file(1, version=1_000_000_000), "young": a_file(2, version=1_400_000_000)}
    judged = stillness.judge(files, ["old", "young"], 0.0, clock_ns=1_500_000_000)
    assert (judged.still, judged.moving) == ({"old"}, {"young"})


def test_what_is_never_at_rest_is_told_and_read_when_it_is_closed():
    stillness = Stillness(0.5, 20, lambda _files: {})
    for second in range(20):
        judged = stillness.judge({"log": a_file(1, second)}, ["log"], float(second))
        assert (judged.moving, judged.restless) == ({"log"}, frozenset())
    assert stillness.judge({"log": a_file(1, 20)}, ["log"], 20.0).still == {"log"}
    stillness = Stillness(0.5, 20, open_by_somebody)
    for second in range(21):
        judged = stillness.judge({"log": a_file(1, second)}, ["log"], float(second))
    assert (judged.still, judged.restless) == (frozenset(), {"log"})


def test_what_is_open_and_unchanged_for_long_is_read():
    stillness = Stillness(0.5, 20, open_by_somebody)
    assert stillness.judge({"events": a_file(1)}, ["events"], 0.0).moving == {"events"}
    assert stillness.judge({"events": a_file(1)}, ["events"], 19.0).moving == {"events"}
    assert stillness.judge({"events": a_file(1)}, ["events"], 20.0).still == {"events"}


def test_a_log_is_read_while_it_grows_if_everybody_appends():
    stillness = Stillness(0.5, 20, lambda files: dict.fromkeys(files, True))
    judged = stillness.judge({"log": a_file(1)}, ["log"], 0.0)
    assert (judged.still, judged.appended, judged.moving) == ({"log"}, {"log"}, frozenset())


def test_a_write_that_goes_on_is_not_one_that_never_rests():
    stillness = Stillness(0.5, 20, open_by_somebody)
    for second in range(60):
        growing = Found(Stamp(1, 1, second, second, second), 0o644)
        judged = stillness.judge({"a": growing}, ["a"], float(second))
    assert (judged.lasting, judged.restless) == ({"a"}, frozenset())


def test_files_that_live_from_one_look_to_the_next_are_read_at_once():
    """A program that keeps its last three files and makes twenty a second never has one that is half a second old."""
    stillness = Stillness(0.5, 20, lambda _files: {})
    taken = set()
    for second in range(4):
        names = {f"d/step-{3 * second + number}": a_file(second * 3 + number, second) for number in range(3)}
        taken |= stillness.judge(names, list(names), float(second)).still
    assert "d/step-11" in taken
    assert "other" in stillness.judge({"other": a_file(99, 99)}, ["other"], 4.0).moving, (
        "a directory of its own"
    )


def test_the_files_of_a_database_are_read_together():
    stillness = Stillness(0.5, 20, lambda _files: {})
    files = {"x.db": a_file(1), "x.db-wal": a_file(2), "y": a_file(3)}
    stillness.judge(files, list(files), 0.0)
    files["x.db-wal"] = a_file(2, version=1)
    judged = stillness.judge(files, list(files), 1.0)
    assert (judged.still, judged.moving) == ({"y"}, {"x.db", "x.db-wal"})


def test_a_name_that_has_just_vanished_is_waited_for():
    stillness = Stillness(0.5, 20, lambda _files: {})
    stillness.judge({"a": a_file(1), "b": a_file(2)}, [], 0.0)
    assert stillness.judge({"b": a_file(2)}, [], 1.0).gone == {"a"}
    assert stillness.judge({"b": a_file(2)}, [], 1.4).gone == {"a"}
    assert stillness.judge({"b": a_file(2)}, [], 1.5).gone == frozenset()
    stillness.judge({"a": a_file(3), "b": a_file(2)}, ["a"], 1.6)
    assert stillness.judge({"b": a_file(2)}, [], 1.7).gone == {"a"}


def replaced(version: int) -> Found:
    """Another file of the same name at every version."""
    return Found(Stamp(1, 100 + version, 10, version, version), 0o644)


def test_what_is_replaced_again_and_again_by_finished_files_is_taken_after_a_moment():
    stillness = Stillness(0.5, 20, lambda _files: {})
    for tenth in range(15):
        assert stillness.judge({"a": replaced(tenth)}, ["a"], tenth / 10).moving == {"a"}
    assert stillness.judge({"a": replaced(15)}, ["a"], 1.5).still == {"a"}
    assert stillness.judge({"a": replaced(16)}, ["a"], 1.6).moving == {"a"}, "and then again after a moment"


def test_what_is_replaced_in_the_rhythm_of_the_looks_has_the_same_number_and_is_taken_too():
    """A file system gives a number that has become free to the next file: every second one has the same."""
    stillness = Stillness(0.5, 20, lambda _files: {})
    for second in range(3):
        again = Found(Stamp(1, 7, 10, second, second), 0o644, born_ns=1 + second)
        judged = stillness.judge({"a": again}, ["a"], float(second))
    assert judged.still == {"a"}
    assert set(stillness.replaced) == {"a"}


def test_what_is_written_in_place_is_not_taken_for_replaced():
    stillness = Stillness(0.5, 20, lambda _files: {})
    for second in range(10):
        same = Found(Stamp(1, 7, 10, second, second), 0o644, born_ns=1)
        assert stillness.judge({"a": same}, ["a"], float(second)).moving == {"a"}
    assert not stillness.replaced


def test_what_is_replaced_waits_while_it_is_open_for_writing():
    stillness = Stillness(0.5, 20, open_by_somebody)
    for tenth in range(30):
        assert stillness.judge({"a": replaced(tenth)}, ["a"], tenth / 10).still == frozenset()
