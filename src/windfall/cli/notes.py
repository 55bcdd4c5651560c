"""Short lines on stderr that say what is happening, kept apart from what a command prints."""

from __future__ import annotations

import shutil
import sys
import textwrap

import click

from windfall.cli.terminal_text import for_terminal


def note(text: str) -> None:
    """Say one thing to the person at the terminal; what a job or a request put into it cannot steer the terminal."""
    click.echo(fitted(f"windfall: {text}"), err=True)


def fitted(text: str) -> str:
    """A text for stderr: harmless for a terminal, and cut between words where it is one."""
    lines = [for_terminal(line, colours=False) for line in text.split("\n")]
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        lines = [part for line in lines for part in wrapped(line, width)]
    return "\n".join(lines)


def wrapped(line: str, width: int) -> list[str]:
    """A line cut between words to fit the width; a word that is wider stays whole, so that it can be copied."""
    return textwrap.wrap(
        line,
        max(width - 1, 20),
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    ) or [line]
