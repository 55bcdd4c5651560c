"""Short lines on stderr that say what is happening, kept apart from what a command prints."""

from __future__ import annotations

import click


def note(text: str) -> None:
    """Say one thing to the person at the terminal."""
    click.echo(f"windfall: {text}", err=True)
