"""The `windfall` command: which commands there are, and how every failure is told.

A command's module is imported when that command is asked for, so that `windfall --help` and each command
start fast. Must not know what any command does.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from windfall import __version__
from windfall.cli.errors import CliError
from windfall.cli.notes import note

#: What a shell reports for a program that SIGPIPE ended, and for one that Ctrl-C ended.
BROKEN_PIPE, INTERRUPTED = 141, 130


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Where a command lives, and its line in the list of commands."""

    #: The heading in `windfall --help` that it stands under.
    group: str
    place: str
    summary: str
    #: Whether somebody waits for its lines one by one.
    streams: bool = False


RUN, LOOK, DECIDE, OPERATE, AWS = (
    "Run jobs",
    "Look at jobs and capacity",
    "Decide what to change",
    "Operate Windfall",
    "Work with AWS",
)
#: The headings of `windfall --help`, in their order.
GROUPS = (RUN, LOOK, DECIDE, OPERATE, AWS)

COMMANDS: dict[str, CommandEntry] = {
    "up": CommandEntry(OPERATE, "up:up", "Start the daemon in the foreground.", streams=True),
    "env": CommandEntry(AWS, "env:env", "Point AWS clients here: by a profile, or by variables of a shell."),
    "run": CommandEntry(
        RUN, "run:run", "Run a command as a job, follow its log, exit with its code.", streams=True
    ),
    "jobs": CommandEntry(LOOK, "jobs:jobs", "List jobs: live ones and those finished lately."),
    "logs": CommandEntry(LOOK, "logs:logs", "Show the log of a job, or follow it.", streams=True),
    "why": CommandEntry(LOOK, "why:why", "Explain why a job is where it is, and what would move it."),
    "describe": CommandEntry(LOOK, "describe:describe", "Show everything about a job."),
    "exec": CommandEntry(
        RUN, "executing:execute", "Run a shell, or a command, inside a running job.", streams=True
    ),
    "retry": CommandEntry(
        RUN, "retry:retry", "Run a job that has ended again; of an array, its failed children."
    ),
    "get": CommandEntry(RUN, "get:get", "Fetch a job's checkpoint, outputs and logs as files.", streams=True),
    "checkpoints": CommandEntry(LOOK, "checkpoints:checkpoints", "List the checkpoints of a job."),
    "top": CommandEntry(LOOK, "top:top", "Watch the host, its GPUs and what jobs use, live.", streams=True),
    "dashboard": CommandEntry(
        LOOK, "dashboard:dashboard", "Open Windfall's page in a browser; with JOB, at that job."
    ),
    "metrics": CommandEntry(
        LOOK, "metrics:metrics", "Plot what a job used: GPUs, CPU, memory, disk, network."
    ),
    "cancel": CommandEntry(RUN, "stopping:cancel", "Cancel jobs that have not started."),
    "terminate": CommandEntry(RUN, "stopping:terminate", "Stop jobs, running or not."),
    "hold": CommandEntry(RUN, "holding:hold", "Keep jobs that have not started from starting."),
    "release": CommandEntry(RUN, "holding:release", "Let held jobs start."),
    "priority": CommandEntry(RUN, "priority:priority", "Let a job go before or after others of its share."),
    "interrupt": CommandEntry(
        RUN, "interrupt:interrupt", "Interrupt a job with notice, as a spot market would."
    ),
    "advise": CommandEntry(
        DECIDE, "advise:advise", "Find what limits a job on its GPUs, and what would help."
    ),
    "cost": CommandEntry(DECIDE, "cost:cost", "Show what jobs cost, and what their time went into."),
    "what-if": CommandEntry(
        DECIDE, "what_if:what_if", "Ask what a change would mean for the jobs there are."
    ),
    "simulate": CommandEntry(DECIDE, "simulate:simulate", "Replay a trace of jobs by several policies."),
    "catalog": CommandEntry(
        AWS, "catalog:catalog", "List EC2 instance types with what they have and what they cost."
    ),
    "queues": CommandEntry(LOOK, "status:queues", "List job queues with their jobs by state."),
    "shares": CommandEntry(
        LOOK, "shares:shares", "Show the shares of queues: use, weight, score, waiting jobs."
    ),
    "schedule": CommandEntry(
        RUN, "schedule:schedule", "Run jobs by the calendar: create, list, pause, resume, delete."
    ),
    "schedules": CommandEntry(
        LOOK, "schedules:schedules", "List schedules with their next runs; show the history of one."
    ),
    "endpoints": CommandEntry(
        LOOK,
        "endpoints:endpoints",
        "List endpoints with their replicas; show one, and why it is not in service.",
    ),
    "gpus": CommandEntry(
        LOOK, "gpus:gpus", "List GPUs with their health and who has them; fence one by hand."
    ),
    "status": CommandEntry(LOOK, "status:status", "Show what the daemon has, what it runs and what waits."),
    "down": CommandEntry(OPERATE, "down:down", "Stop the daemon."),
    "service": CommandEntry(OPERATE, "service:service", "Run the daemon as a systemd service."),
    "backup": CommandEntry(
        OPERATE,
        "backup:backup",
        "Write the store, keys, settings and secrets to FILE, also while the daemon runs.",
    ),
    "restore": CommandEntry(
        OPERATE, "backup:restore", "Put back what `windfall backup` wrote, into an empty data directory."
    ),
    "image": CommandEntry(OPERATE, "images:image", "Map image names to directories of this host."),
    "secret": CommandEntry(OPERATE, "secret:secret", "Keep secrets for jobs, by name."),
    "hosts": CommandEntry(OPERATE, "hosts:hosts", "Run jobs on other machines, reached by ssh."),
    "storage": CommandEntry(OPERATE, "storage:storage", "Register object storage for jobs."),
    "keys": CommandEntry(OPERATE, "keys:keys", "Create, list and revoke access keys."),
    "doctor": CommandEntry(
        OPERATE, "doctor:doctor", "Check this host for GPU jobs, and say how to fix problems."
    ),
    "lint": CommandEntry(AWS, "lint:lint", "Find what is likely to go wrong with GPU job definitions."),
    "user-data": CommandEntry(
        AWS,
        "first_boot:user_data",
        "Print user data that prepares GPU instances of EC2.",
    ),
    "bench": CommandEntry(
        DECIDE,
        "bench.command:bench",
        "Measure this machine's CPU and GPU by jobs that run on it.",
        streams=True,
    ),
    "completion": CommandEntry(OPERATE, "completion:completion", "Print a completion script for your shell."),
}

#: Other names of commands, which people know from elsewhere.
ALIASES = {
    "ls": "jobs",
    "ps": "jobs",
    "list": "jobs",
    "kill": "terminate",
    "queue": "queues",
    "show": "describe",
    "explain": "why",
}

#: What people type for something that has another name here, or that could mean two things.
MEANT = {
    "submit": "`windfall run --detach -- CMD` submits a job and returns; without --detach it follows the log",
    "stop": "`windfall terminate JOB` stops a job, `windfall down` stops the daemon",
    "start": "`windfall run -- CMD` starts a job, `windfall up` starts the daemon",
    "server": "`windfall up` starts the daemon",
    "daemon": "`windfall up` starts the daemon, `windfall down` stops it",
    "rm": "`windfall terminate JOB` stops a job",
    "delete": "`windfall terminate JOB` stops a job",
    "nodes": "`windfall status` shows this host and its instances",
    "watch": "`windfall top` watches the host, `windfall logs --follow JOB` follows a log",
    "wait": "`windfall logs --follow JOB` follows a job until it ends",
    "price": "`windfall cost` shows what jobs cost, `windfall catalog` the prices of EC2",
    "config": "`windfall up --help` lists the options, docs/settings.md the settings of windfall.toml",
    "version": "`windfall --version` prints the version",
    "info": "`windfall describe JOB` shows a job, `windfall status` the daemon",
    "attach": "`windfall logs --follow JOB` follows a job until it ends",
    "launch": "`windfall run -- CMD` runs a job and follows its log",
    "upgrade": "`windfall backup FILE`, then install the new version and restart the daemon; jobs go on",
}
_SAME = {"serve": "server", "remove": "rm", "prices": "price", "settings": "config", "restart": "daemon"}
_SLURM = {
    "sbatch": "submit",
    "srun": "`windfall run -- CMD` runs a job and follows its log",
    "squeue": "`windfall jobs` lists the jobs",
    "scancel": "`windfall terminate JOB` stops a job",
    "sinfo": "`windfall status` shows this host and its instances",
}
MEANT |= {name: MEANT.get(text, text) for name, text in (_SAME | _SLURM).items()}


class LazyGroup(click.Group):
    """A group whose commands are imported one by one, when needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click passes it by name)
        """All commands, in the order in which a newcomer meets them."""
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 (click passes it by name)
        cmd_name: str,
    ) -> click.Command | None:
        """The command of that name or alias, imported now."""
        entry = COMMANDS.get(ALIASES.get(cmd_name, cmd_name))
        return None if entry is None else load(entry)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a closed pipe is told apart, because click would make it an exit code of 1."""
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
            return answer
        except BrokenPipeError:
            raise ReaderLeft from None

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 (click passes it by name)
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the commands under their headings without importing any."""
        for group in GROUPS:
            lines = [(name, entry.summary) for name, entry in COMMANDS.items() if entry.group == group]
            with formatter.section(group):
                formatter.write_dl([(name.ljust(_LONGEST_NAME), summary) for name, summary in lines])
        aliases = ", ".join(f"{alias} ({name})" for alias, name in ALIASES.items())
        with formatter.section("Other names"):
            formatter.write_text(aliases)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; one that does not exist is refused with what was probably meant."""
        if args[:1] == ["help"]:
            args = [*args[1:2], "--help"]
        if args == ["--help"]:
            click.echo(ctx.get_help())
            ctx.exit()
        if args and not args[0].startswith("-"):
            name = ALIASES.get(args[0], args[0])
            if name not in COMMANDS:
                raise CommandLineError(f"there is no command {name!r}; {_meant(name)}")
            args = [name, *args[1:]]
        resolved = super().resolve_command(ctx, args)
        if not sys.stdout.isatty() and not COMMANDS[resolved[0] or ""].streams:
            ctx.with_resource(_in_one_piece())
        return resolved


_LONGEST_NAME = max(map(len, COMMANDS))


def _meant(name: str) -> str:
    """What somebody who typed this name was looking for: by its meaning, else by its spelling."""
    if name in MEANT:
        return MEANT[name]
    from difflib import get_close_matches

    close = get_close_matches(name, [*COMMANDS, *ALIASES], n=1)
    return f"did you mean `windfall {close[0]}`?" if close else "`windfall --help` lists the commands"


class ReaderLeft(Exception):
    """The program that read our output has ended, as `head` does."""


@contextlib.contextmanager
def _in_one_piece() -> Iterator[None]:
    """Write what a command prints when it is done, all at once.

    In a script with `set -o pipefail`, `windfall jobs | grep -q NAME` would fail now and then otherwise: grep leaves at
    the first line that fits, and the next line would have nobody to read it.
    """
    stdout, sys.stdout = sys.stdout, io.StringIO()
    try:
        yield
    finally:
        printed, sys.stdout = sys.stdout.getvalue(), stdout
        try:
            stdout.write(printed)
            stdout.flush()
        except BrokenPipeError:
            raise ReaderLeft from None


class CommandLineError(click.UsageError):
    """A usage error whose text is complete: nothing is added to it."""


def load(entry: CommandEntry) -> click.Command:
    """Import a command."""
    module, _, name = entry.place.partition(":")
    command = getattr(importlib.import_module(f"windfall.cli.{module}"), name)
    assert isinstance(command, click.Command)
    return command


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="windfall", message="%(prog)s %(version)s")
def cli() -> None:
    """Run batch and training jobs on capacity that can be taken away, without losing their work.

    Start the daemon with `windfall up`. In another shell, `windfall run -- CMD` runs a job. Programs that speak to
    AWS Batch, SageMaker and EventBridge Scheduler can use it too: see `windfall env --help`.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    sys.exit(outcome(arguments))


def outcome(arguments: Sequence[str] | None) -> int:
    """The exit code of one command; every failure is one line on stderr."""
    try:
        code = cli.main(
            None if arguments is None else list(arguments), prog_name="windfall", standalone_mode=False
        )
        return code if isinstance(code, int) else 0
    except ReaderLeft:
        # Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help())
        return 2
    except click.UsageError as error:
        return _say(_usage_text(error), 2)
    except click.ClickException as error:
        return _say(error.format_message(), error.exit_code)
    except CliError as error:
        return _say(str(error), error.exit_code)
    except Exception as error:
        # The edge: a user gets a sentence, never a traceback.
        if os.environ.get("WINDFALL_DEBUG"):
            raise
        return _say(
            f"a fault of Windfall itself: {type(error).__name__}: {error}; "
            "run it again with WINDFALL_DEBUG=1 and report what it prints",
            1,
        )


#: click names the Python type that it expected, which tells a user nothing.
_NUMBERS = {"float": "a number", "integer": "a whole number"}


def _usage_text(error: click.UsageError) -> str:
    if isinstance(error, CommandLineError) or error.ctx is None:
        return error.format_message()
    text = error.format_message().rstrip(".")
    text = re.sub(r"a valid (float|integer)( range)?$", lambda match: _NUMBERS[match[1]], text)
    return f"{text[:1].lower()}{text[1:]}{'' if text.endswith('?') else ';'} see `{error.ctx.command_path} --help`"


def _say(text: str, code: int) -> int:
    note(text)
    return code
