"""`windfall completion`: the script that makes a shell complete commands, options, jobs and queues."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script for your shell.

    For bash: `eval "$(windfall completion bash)"` in ~/.bashrc.
    """
    from click.shell_completion import get_completion_class

    from windfall.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "windfall", "_WINDFALL_COMPLETE").source())
