"""Short lines on stderr that say what is happening, kept apart from what a command prints."""

from __future__ import annotations

import click

from windfall.cli.terminal_text import for_terminal


def note(text: str) -> None:
    """Say one thing to the person at the terminal; what a job or a request put into it cannot steer the terminal."""
    lines = (for_terminal(line, colours=False) for line in text.split("\n"))
    click.echo("\n".join((f"windfall: {next(lines)}", *lines)), err=True)
