"""What an agent's log says of one that ends at once: told when it is certain, in the agent's own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from windfall.agent.launching import last_line, last_words, log_size

NOW = "2026-11-16T10:00:00Z "
ENDED = "windfall warden: the agent ended with {} after 0.1 s; starting it again in 0.20 s\n"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("", None),
        ("windfall agent: a GPU has fallen ill\n", None),
        ("windfall agent: cannot serve: there is no user x\n", "cannot serve: there is no user x"),
        (f"{NOW}windfall agent: cannot serve: there is no user x\n", "cannot serve: there is no user x"),
        (NOW + ENDED.format(-9) + NOW + ENDED.format(-9), "the agent ended with -9"),
        (ENDED.format(-9), None),
        (ENDED.format(-9) + ENDED.format(-9), "the agent ended with -9"),
        (f"Traceback\n  line\nKeyError: 'x'\n{ENDED.format(1)}" * 2, "KeyError: 'x'"),
        (
            "windfall warden: the agent cannot be started: [Errno 2] gone; starting it again in 0.20 s\n" * 2,
            "the agent cannot be started: [Errno 2] gone",
        ),
    ],
)
def test_only_what_is_certain_is_told(tmp_path: Path, said: str, words: str | None):
    log = tmp_path / "agent.log"
    log.write_text("windfall agent: cannot serve: an old trouble\n")
    since = log_size(str(log))
    with log.open("a") as file:
        file.write(said)
    assert last_words(str(log), since) == words


def test_what_was_said_last_is_the_end_of_a_long_text(tmp_path: Path):
    log = tmp_path / "agent.log"
    log.write_text("x\n" * 100_000 + "the end\n\n")
    assert last_line(str(log), 0) == "the end"
    assert last_line(str(tmp_path / "none"), log_size(str(tmp_path / "none"))) == ""


def test_a_log_that_was_begun_anew_is_read_from_its_start(tmp_path: Path):
    log = tmp_path / "agent.log"
    log.write_text(f"{NOW}windfall agent: all is well\n")
    assert last_line(str(log), 10_000_000) == "windfall agent: all is well"
