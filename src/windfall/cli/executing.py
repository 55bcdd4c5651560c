"""`windfall exec`: a shell, or a command, inside a running job."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from windfall.cli.client import connect
from windfall.cli.errors import BadUsage
from windfall.cli.listing import job_id
from windfall.cli.options import data_option, job_argument


class _WithCommand(click.Command):
    """Takes every word after the command's first one as the command's, also without `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the `--` where it is meant."""
        valued = {name for option in self.params if not _is_flag(option) for name in option.opts}
        words, place = 0, 0
        while place < len(args) and args[place] != "--":
            if args[place] in valued:
                place += 1
            elif not args[place].startswith("-"):
                words += 1
                if words == 2:
                    args = [*args[:place], "--", *args[place:]]
                    break
            place += 1
        return super().parse_args(ctx, args)


def _is_flag(option: click.Parameter) -> bool:
    return not isinstance(option, click.Option) or option.is_flag


@click.command("exec", cls=_WithCommand)
@click.option(
    "--node", type=click.IntRange(min=0), metavar="N", help="The node of a multi-node job (the main one)."
)
@click.option(
    "-t/-T",
    "--tty/--no-tty",
    default=None,
    help="With a terminal, or without (default: with one where stdin and stdout are terminals).",
)
@job_argument
@click.argument("command", metavar="[-- CMD ...]", nargs=-1, type=click.UNPROCESSED)
@data_option
def execute(node: int | None, tty: bool | None, job: str, command: tuple[str, ...], data: Path | None) -> int:
    """Run a shell, or a command, inside a running job.

    It has the job's working directory, environment, user, limits and GPUs, and is in its sandbox or container. The exit
    code is the command's. What it leaves running ends with it, and it ends with the job.
    """
    from windfall.cli.exec_session import SessionRequest, TerminalSession

    client = connect(data)
    entered = job_id(client, job)
    if node is not None:
        if "#" in entered:
            raise BadUsage(f"{entered} names a node itself; leave --node out")
        entered = f"{entered}#{node}"
    size = shutil.get_terminal_size()
    wanted = SessionRequest(
        entered,
        command,
        os.environ.get("SHELL", ""),
        tty if tty is not None else sys.stdin.isatty() and sys.stdout.isatty(),
        os.environ.get("TERM", "dumb"),
        (size.lines, size.columns),
    )
    return TerminalSession(client, data, wanted).run()
