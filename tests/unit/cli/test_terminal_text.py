"""Logs are other people's text: nothing in them steers the terminal that shows them."""

from __future__ import annotations

import io

import pytest

from windfall.cli.terminal_text import for_terminal, wants_colours

RED, RESET = "\x1b[31m", "\x1b[0m"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("step 1, loss 0.5", "step 1, loss 0.5"),
        ("a\tb 50%\r100%", "a\tb 50%\r100%"),
        ("\x1b]0;title\x07done", "\u241b]0;title\u2407done"),
        ("\x1b]52;c;ZXZpbA==\x1b\\", "\u241b]52;c;ZXZpbA==\u241b\\"),
        ("\x1bP$q\x1b\\", "\u241bP$q\u241b\\"),
        ("one\x1b[1A\x1b[2Ktwo", "onetwo"),
        ("\x1b[?1049hhidden", "hidden"),
        ("\x9b2Jtwo", "two"),
        ("\x9d0;title\x9c", "\ufffd0;title\ufffd"),
        ("\x1b[6n", ""),
        ("\x1bc", "\u241bc"),
        ("del\x7f", "del\u2421"),
        ("bidi\u202eexe", "bidi\ufffdexe"),
        ("\x1b[" + "1;" * 500 + "m", "\u241b[" + "1;" * 500 + "m"),
        (f"{RED}loss{RESET}", "loss"),
        ("Grüße 日本 🎉", "Grüße 日本 🎉"),
    ],
)
def test_nothing_that_steers_a_terminal_is_left(written, shown):
    assert for_terminal(written, colours=False) == shown


def test_colours_are_kept_where_they_are_wanted_and_end_with_the_line():
    assert for_terminal(f"{RED}loss", colours=True) == f"{RED}loss{RESET}"
    assert for_terminal(f"\x1b]0;x\x07{RED}loss", colours=True).startswith("\u241b]0;x\u2407")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_whose_users_want_them():
    assert wants_colours(Terminal(), {})
    assert not wants_colours(Terminal(), {"NO_COLOR": "1"})
    assert not wants_colours(io.StringIO(), {})
