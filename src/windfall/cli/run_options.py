"""The options of `windfall run`, and the job that they ask for: the command line's, and those of a file.

Decides how values are written and which of them exclude one another. Must not talk to the daemon.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from windfall.cli.deadline_words import read_deadline
from windfall.cli.errors import BadUsage
from windfall.cli.options import env_option, queue_option, read_variables
from windfall.cli.submitting import JobRequest

F = TypeVar("F", bound=Callable[..., Any])

#: What units of memory mean in MiB. Everybody means powers of two, however they write it.
_UNITS = {
    "m": 1,
    "mb": 1,
    "mib": 1,
    "g": 1024,
    "gb": 1024,
    "gib": 1024,
    "t": 1 << 20,
    "tb": 1 << 20,
    "tib": 1 << 20,
}
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)")
#: As AWS Batch has them.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_LEAST_MEMORY_MIB = 4
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN = re.compile(r"([0-9]{1,9})\s*([smhdSMHD]?)")
#: As AWS Batch has it.
_LEAST_TIMEOUT_S = 60
_CHECKPOINT = "--checkpoint"


class JobCommand(click.Command):
    """A command whose last words are a job's command; `--checkpoint` before it takes a word that is a place."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the program's name from being read as the place of `--checkpoint PROGRAM ...`."""
        return super().parse_args(ctx, self._with_checkpoint_alone(args))

    def _with_checkpoint_alone(self, args: list[str]) -> list[str]:
        takes_value = {
            name: not (isinstance(parameter, click.Option) and parameter.is_flag)
            for parameter in self.params
            for name in parameter.opts
        }
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            word, following = args[at], args[at + 1 : at + 3]
            if word == _CHECKPOINT and following and not _is_place(following):
                return [*args[:at], f"{_CHECKPOINT}=true", *self._with_checkpoint_alone(args[at + 1 :])]
            at += 2 if "=" not in word and takes_value.get(word, False) else 1
        return args


def _is_place(words: list[str]) -> bool:
    """Whether the first of two words is a place of checkpoints: it is written as a URI, or the command follows `--`."""
    return "://" in words[0] or words[1:] == ["--"]


class Duration(click.ParamType[int]):
    """A span of time, in seconds."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read `90s`, `10m`, `2h`, `1d`, or seconds without a unit."""
        match = _SPAN.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a time; write it as 90s, 10m, 2h or 1d", param, ctx)
        seconds = int(match[1]) * _SECONDS[match[2].lower()]
        if seconds < _LEAST_TIMEOUT_S:
            self.fail(f"{value} is too short; {_LEAST_TIMEOUT_S}s is the least", param, ctx)
        return seconds


class MemoryAmount(click.ParamType[int]):
    """An amount of memory with its unit, in MiB."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read `16G`, `512M` or `16GiB`."""
        if isinstance(value, int):
            return value
        match = _AMOUNT.fullmatch(str(value).strip())
        unit = _UNITS.get(match[2].lower()) if match else None
        if match is None or unit is None:
            self.fail(f"{value!r} is not an amount of memory; write it as 512M or 16G", param, ctx)
        mib = int(float(match[1]) * unit)
        if mib < _LEAST_MEMORY_MIB:
            self.fail(f"{value} is too little; a job needs at least {_LEAST_MEMORY_MIB}M", param, ctx)
        return mib


_OPTIONS: list[Callable[[Any], Any]] = [
    click.option("--gpus", type=click.IntRange(min=0), help="GPUs that the job gets for itself."),
    click.option(
        "--gpu-model", metavar="NAME", help="Only GPUs with this in their name, such as H100 or 'A100*80GB'."
    ),
    click.option(
        "--gpu-memory-gib",
        type=click.FloatRange(min=0, min_open=True),
        metavar="N",
        help="Only GPUs with at least this much memory.",
    ),
    click.option(
        "--gpu-share",
        type=click.FloatRange(min=0.01, max=1),
        metavar="PART",
        help="A part of one GPU that others share, such as 0.5, instead of all of it.",
    ),
    click.option(
        "--on-gpu-oom",
        type=click.Choice(["fail", "larger"]),
        help="What to do when a GPU's memory is too small: fail, or try a larger one.",
    ),
    click.option("--vcpus", type=click.IntRange(min=1), default=1, show_default=True, help="vCPUs."),
    click.option(
        "--memory",
        "memory_mib",
        type=MemoryAmount(),
        help="Memory, such as 512M or 16G; a job that takes more is killed (default: its share of the machine's).",
    ),
    click.option("--memory-mib", "old_memory_mib", type=click.IntRange(min=_LEAST_MEMORY_MIB), hidden=True),
    click.option(
        "--image",
        metavar="IMAGE",
        help="Run it in a container of this image; without a CMD, the image's own.",
    ),
    click.option(
        "--runtime",
        type=click.Choice(["auto", "process", "container"]),
        help="What the job is (auto: a container, if it has an image and an engine answers).",
    ),
    click.option(
        "--pull",
        type=click.Choice(["missing", "always", "never"]),
        help="When the image is fetched (missing).",
    ),
    queue_option,
    click.option(
        "--share", metavar="NAME", help="The share of the queue that it counts for, where it has shares."
    ),
    click.option(
        "--priority",
        type=click.IntRange(0, 9999),
        metavar="N",
        help="Which jobs go first within the share: those with the higher number.",
    ),
    click.option("--array", type=click.IntRange(2, 10_000), metavar="N", help="Run it N times, as an array."),
    click.option(
        "--after", metavar="JOB", multiple=True, help="Start when JOB has succeeded; may be repeated."
    ),
    click.option("--name", help="Name of the job (that of the script)."),
    click.option(
        "--dir",
        "directory",
        type=click.Path(path_type=Path),
        help="Run in this directory instead of the current one.",
    ),
    click.option(
        "--clean",
        is_flag=True,
        help="Take nothing along: an empty directory, no variables but those of --env.",
    ),
    env_option,
    click.option(
        "--timeout",
        type=Duration(),
        help="How long an attempt may take, such as 10m, 2h or 1d; at least 60s.",
    ),
    click.option(
        "--attempts",
        type=click.IntRange(1, 10),
        metavar="N",
        help="How often it is tried in all, if it fails (1).",
    ),
    click.option("--spot", is_flag=True, help="Run on capacity that may be taken back, with notice."),
    click.option(
        _CHECKPOINT,
        metavar="[=URI]",
        is_flag=False,
        flag_value="true",
        help="Keep $WINDFALL_CHECKPOINT_DIR safe and restore it for the next attempt; --checkpoint=URI names where.",
    ),
    click.option(
        "--keep",
        metavar="PATTERN",
        multiple=True,
        help="With --clean or --git: keep these files of the job's directory for `windfall get`; may be repeated.",
    ),
    click.option(
        "--git", metavar="URL@REV", help="Run in a new checkout of this repository at this revision."
    ),
    click.option(
        "--budget-usd",
        type=click.FloatRange(min=0, min_open=True),
        help="Save and stop when this much is spent.",
    ),
    click.option(
        "--deadline",
        metavar="WHEN",
        help="Be done by then, such as 8h or 'fri 08:00': with --spot, on-demand capacity when it must be.",
    ),
    click.option("--work", metavar="SPAN", help="How long the job works, such as 6h, for --deadline."),
    click.option(
        "--tag",
        "tags",
        metavar="K=V",
        multiple=True,
        help="A tag of the job, such as windfall:profile=true; may be repeated.",
    ),
]


def job_options(command: F) -> F:
    """Add all options that say what the job is."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def wanted_of(options: dict[str, Any]) -> JobRequest:
    """The job that the options ask for; raises BadUsage for what excludes one another."""
    options = dict(options)
    if empty := next((name for name, value in options.items() if value == ""), None):
        # A variable of a script that is not set, most often; the default would not be what was meant.
        raise BadUsage(f"--{empty.replace('_', '-')} is empty; give it a value, or leave it out")
    old = options.pop("old_memory_mib", None)
    own = {
        "memory_mib": options.pop("memory_mib") or old,
        "gpus": _gpus(options),
        "after": tuple(options.pop("after")),
        "keep": tuple(options.pop("keep")),
        "variables": read_variables(options.pop("variables")),
        "timeout_s": options.pop("timeout"),
        "own_tags": _tags(options.pop("tags")),
    }
    options["checkpoint"] = _checkpoint(options["checkpoint"])
    if options.get("deadline") is not None:
        options["deadline"] = read_deadline(options["deadline"], datetime.now().astimezone())
    wanted = JobRequest(**{**options, **own})
    _check(wanted)
    return wanted


def _gpus(options: dict[str, Any]) -> int:
    """The number of GPUs: one where only their kind is named."""
    names = ("gpu_model", "gpu_memory_gib", "gpu_share", "on_gpu_oom")
    said = [f"--{name.replace('_', '-')}" for name in names if options[name] is not None]
    if options["gpus"] is None:
        return int(bool(said))
    if options["gpus"] == 0 and said:
        raise BadUsage(f"--gpus 0 asks for no GPU, and {said[0]} is about one; leave one of them out")
    return int(options["gpus"])


def _tags(written: tuple[str, ...]) -> dict[str, str]:
    tags = {}
    for word in written:
        name, equals, tags[name] = word.partition("=")
        if not name or not equals:
            raise BadUsage(f"--tag {word!r} is not a tag; write it as KEY=VALUE")
    return tags


def _checkpoint(text: str | None) -> str | None:
    """Where checkpoints are kept: a path of this host is written as a URI."""
    if text is None or "://" in text or not text.startswith((".", "/", "~")):
        return text
    return f"file://{Path(text).expanduser().absolute()}"


def _check(wanted: JobRequest) -> None:
    """Refuse a name that AWS does not allow, and what an image and the host cannot both have."""
    if wanted.name is not None and not _NAME.fullmatch(wanted.name):
        raise BadUsage(
            f"--name {wanted.name!r} is not allowed; use at most 128 letters, digits, - and _, and begin with a"
            " letter or digit"
        )
    if wanted.image is None:
        if not wanted.command:
            raise BadUsage(
                "there is nothing to run: write the command after --, or name an image with --image"
            )
        if wanted.runtime == "container" or wanted.pull is not None:
            raise BadUsage("a container needs an image: name one with --image")
    elif wanted.directory is not None and wanted.runtime != "process":
        raise BadUsage(
            "--dir is a directory of this host, which a container does not see: put the files into the image, take them"
            " from Git with --git, or register a job definition with mountPoints"
        )
    if wanted.keep and not (wanted.clean or wanted.git):
        raise BadUsage(
            "--keep is for a job that runs in a directory of its own: add --clean or --git; without them it runs in"
            " your directory, where its files stay"
        )
    if wanted.keep and wanted.image is not None and wanted.runtime != "process":
        raise BadUsage(
            "--keep cannot look into a container: write to $WINDFALL_CHECKPOINT_DIR with --checkpoint instead"
        )
    if wanted.git is not None and wanted.directory is not None:
        raise BadUsage(
            "--git runs the job in a new checkout, and --dir in a directory; leave one of them out"
        )
