"""Jobs of `windfall run` in a file, and the user's defaults: options as keys of TOML.

Decides what a key means, and in which order jobs of one file are submitted. A key is an option's name without its
hyphens; the command line wins over the file, and the file over the defaults. Must not talk to the daemon.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from windfall.cli.errors import BadUsage
from windfall.cli.submitting import JobRequest, name_of

#: Options that several places may add to.
_LISTS = ("variables", "tags", "after")
#: Written as tables, because they are pairs of a name and a value.
_PAIRS = ("variables", "tags")
_COMMAND, _JOBS, _DIRECTORY, _CHECKPOINT = "command", "job", "dir", "checkpoint"
#: What says something about one job, which is never a default of all.
_OF_ONE_JOB = (_COMMAND, _JOBS, "name", "after")
#: Options that are not about a job.
_NOT_KEYS = ("data", "as_json", "dry_run", "file", "old_memory_mib", "help")

Options = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Table:
    """Some keys, and what errors call the place where they stand."""

    where: str
    keys: Mapping[str, Any]
    #: What relative directories are relative to.
    above: Path


def defaults_path(environment: Mapping[str, str]) -> Path:
    """Where the user's defaults are kept."""
    above = environment.get("XDG_CONFIG_HOME") or f"{environment.get('HOME', '')}/.config"
    return Path(above) / "windfall" / "run.toml"


def read_options(context: click.Context, file: Path | None, defaults: Path) -> list[Options]:
    """The options of each job that the command line, a file and the defaults ask for."""
    given, source = context.params, click.core.ParameterSource.COMMANDLINE
    explicit = {name: value for name, value in given.items() if context.get_parameter_source(name) is source}
    base = [_Table(str(defaults), _default_keys(defaults), defaults.parent)] if _is_there(defaults) else []
    jobs: Sequence[Sequence[_Table]] = [base]
    if file is not None:
        jobs = [[*base, *tables] for tables in _tables_of(file)]
    if len(jobs) > 1 and (single := next((name for name in ("name", _COMMAND) if explicit.get(name)), None)):
        word = "a command after --" if single == _COMMAND else "--name"
        raise BadUsage(f"{file} has {len(jobs)} jobs, and {word} is for one; leave it out")
    options_of_jobs = []
    for tables in jobs:
        options = {name: value for name, value in given.items() if name not in explicit}
        for values in (*(_read(context, table) for table in tables), explicit):
            options |= {
                name: (*options.get(name, ()), *value) if name in _LISTS else value
                for name, value in values.items()
            }
        options_of_jobs.append(options)
    return options_of_jobs


def in_order(jobs: Iterable[JobRequest]) -> list[tuple[str, JobRequest, tuple[str, ...]]]:
    """Jobs of one file by name, each after those of the file that it waits for, which are named apart."""
    named: dict[str, JobRequest] = {}
    for job in jobs:
        name = job.name or name_of(job.command or (job.image or "",))
        if name in named:
            raise BadUsage(f"two jobs are called {name!r}; give each a name of its own")
        named[name] = job
    ordered: list[tuple[str, JobRequest, tuple[str, ...]]] = []
    placed: set[str] = set()
    while len(ordered) < len(named):
        ready = [
            name for name, job in named.items() if name not in placed and _waits_only_for(job, placed, named)
        ]
        if not ready:
            rest = ", ".join(name for name in named if name not in placed)
            raise BadUsage(f"these jobs wait for one another: {rest}; take one `after` out")
        for name in ready:
            job = named[name]
            within = tuple(each for each in job.after if each in named)
            others = tuple(each for each in job.after if each not in named)
            ordered.append((name, replace(job, after=others), within))
        placed.update(ready)
    return ordered


def _waits_only_for(job: JobRequest, placed: set[str], named: Mapping[str, JobRequest]) -> bool:
    return all(each in placed for each in job.after if each in named)


def _tables_of(file: Path) -> list[list[_Table]]:
    """For each job of a file the keys that all jobs have, and its own."""
    keys = _load(file)
    jobs = keys.pop(_JOBS, None)
    common = _Table(str(file), keys, file.absolute().parent)
    if jobs is None:
        return [[common]]
    if not isinstance(jobs, list) or not jobs or not all(isinstance(job, dict) for job in jobs):
        raise BadUsage(f"{file}: write each job as a table [[job]]")
    if wrong := next((key for key in keys if key in _OF_ONE_JOB), None):
        raise BadUsage(f"{file}: {wrong} says something about one job; move it into its [[job]]")
    return [
        [common, _Table(f"{file}, job {number}", job, common.above)]
        for number, job in enumerate(jobs, start=1)
    ]


def _default_keys(file: Path) -> dict[str, Any]:
    keys = _load(file)
    if wrong := next((key for key in keys if key in _OF_ONE_JOB), None):
        raise BadUsage(f"{file}: {wrong} is about one job and cannot be a default; take it out")
    return keys


def _is_there(defaults: Path) -> bool:
    """Whether the user has defaults; a home directory that may not be entered, as under sudo, is somebody else's."""
    try:
        return defaults.is_file()
    except OSError:
        return False


def _load(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadUsage(f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadUsage(f"{file} is not a TOML file: {error}") from None


def _read(context: click.Context, table: _Table) -> Options:
    """The values of a table, converted and checked as those of the command line are."""
    options: Options = {}
    by_key = {_key(each): each for each in context.command.params if each.name not in _NOT_KEYS}
    for written, value in table.keys.items():
        key = written.replace("_", "-")
        if key not in by_key:
            raise BadUsage(f"{table.where}: there is no key {written!r}; {_near(key, by_key)}")
        option = by_key[key]
        try:
            options[str(option.name)] = option.type_cast_value(context, _raw(table, key, option, value))
        except click.BadParameter as error:
            raise BadUsage(f"{table.where}: {written}: {error.message}") from None
    return options


def _key(parameter: click.Parameter) -> str:
    return _COMMAND if isinstance(parameter, click.Argument) else max(parameter.opts, key=len).lstrip("-")


def _near(key: str, keys: Iterable[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(key, keys, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(keys))}"


def _raw(table: _Table, key: str, option: click.Parameter, value: Any) -> Any:
    """A value of TOML as the command line would give it."""
    is_flag = isinstance(option, click.Option) and option.is_flag
    if key == _CHECKPOINT and not isinstance(value, str):
        return _switch(value)
    if isinstance(value, bool) != is_flag:
        raise click.BadParameter(
            "it must be true or false" if is_flag else f"{str(value).lower()} is not a value"
        )
    if key == _COMMAND and isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as error:
            raise click.BadParameter(f"{value!r} is not a command: {error}") from None
    if key == _DIRECTORY:
        return _directory(table.above, value)
    if option.name in _PAIRS:
        if not isinstance(value, dict):
            raise click.BadParameter('write it as a table, such as { NAME = "value" }')
        return [_pair(name, each) for name, each in value.items()]
    if isinstance(option, click.Argument) or (isinstance(option, click.Option) and option.multiple):
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise click.BadParameter("it must be a text or a list of texts")
        return words
    if isinstance(value, dict | list):
        raise click.BadParameter("it takes one value")
    return value


def _switch(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else None
    raise click.BadParameter("it must be true, false or a URI")


def _directory(above: Path, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise click.BadParameter("it must be the path of a directory")
    return str(above / Path(value).expanduser())


def _pair(name: str, value: Any) -> str:
    """A name and its value as the command line has them, where the first = ends the name."""
    if not name or "=" in name:
        raise click.BadParameter(f"{name!r} is not a name: it is empty or has a =")
    if not isinstance(value, str | int | float):
        raise click.BadParameter(f"{name} must be a text or a number")
    return f"{name}={str(value).lower() if isinstance(value, bool) else value}"
