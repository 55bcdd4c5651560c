"""Tables fit the terminal, ids stay usable, and other people's texts cannot steer it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windfall.cli.tables import GAP, Column, bar, fitted, plain, print_table, shown_ids

COLUMNS = [
    Column("JOB"),
    Column("NAME", shrinks=True),
    Column("QUEUE", optional=True),
    Column("NOTE", shrinks=True),
]
ROW = ["0123456789", "a-name-that-is-long", "queue", "[bold]a note\x1b[2J that is longer still[/bold]"]


def test_all_is_shown_where_there_is_room(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    print_table(COLUMNS, [ROW])
    title, line = capsys.readouterr().out.splitlines()
    assert title.split() == ["JOB", "NAME", "QUEUE", "NOTE"]
    assert line == "0123456789  a-name-that-is-long  queue  [bold]a note [2J that is longer still[/bold]"


def test_a_narrow_terminal_cuts_what_may_be_cut(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    print_table(COLUMNS, [ROW])
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 50 for line in lines)
    assert lines[1].startswith("0123456789  ")
    assert lines[1].count("…") == 2


def test_optional_columns_go_last(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "32")
    print_table(COLUMNS, [ROW])
    assert "QUEUE" not in capsys.readouterr().out


@pytest.mark.parametrize(("room", "beside"), [(200, True), (60, True), (40, False), (20, False)])
def test_a_text_that_folds_is_shown_whole(capsys, monkeypatch, room, beside):
    monkeypatch.setenv("COLUMNS", str(room))
    why = "checkpoints cannot be stored for 20 s now: links are not followed here"
    print_table([Column("JOB"), Column("TYPE"), Column("WHY", folds=True)], [["0123456789", "local", why]])
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.split() == (["JOB", "TYPE", "WHY"] if beside else ["JOB", "TYPE"])
    assert " ".join(" ".join(lines).split()) == f"0123456789 local {why}"
    assert all(len(line) <= max(room, 32) for line in lines)


def test_output_for_programs_is_never_cut(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(COLUMNS, [ROW])
    assert "…" not in capsys.readouterr().out


@given(st.lists(st.integers(1, 60), min_size=4, max_size=4), st.integers(1, 200))
def test_fitting_never_cuts_what_must_stay(widths, room):
    kept = fitted(COLUMNS, widths, room)
    assert kept[0] == widths[0]
    assert all(width <= widths[number] for number, width in kept.items())
    assert all(width >= min(8, widths[number]) for number, width in kept.items())
    fits = sum(kept.values()) + len(GAP) * (len(kept) - 1) <= room
    assert fits or (2 not in kept and all(kept[n] <= 8 for n in (1, 3)))


def test_short_ids_tell_jobs_apart_and_keep_the_index():
    ids = ["aaaaaaaa-1111", "aaaaaaaa-1222", "bbbbbbbb-0000:17"]
    assert shown_ids(ids, room=True) == ids
    assert shown_ids(ids[1:], room=False) == ["aaaaaaaa", "bbbbbbbb:17"]
    assert shown_ids(ids, room=False) == ["aaaaaaaa-11", "aaaaaaaa-12", "bbbbbbbb-00:17"]
    assert shown_ids(["aaaaaaaa-1", "aaaaaaaa-1"], room=False) == ["aaaaaaaa", "aaaaaaaa"]


def test_steering_characters_are_blanks():
    assert plain("a\x1b[31m\r\nb\tc") == "a [31m  b c"


def test_the_bar_is_full_when_all_children_are_counted():
    assert bar({"SUCCEEDED": 1, "FAILED": 1, "RUNNABLE": 1}, width=9).plain == "██████···"
    assert bar({}, width=9).plain == ""
