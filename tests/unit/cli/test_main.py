"""How commands are found and how failures are told: one line, the right exit code, never a traceback."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import click
import pytest

from windfall.cli.main import ALIASES, COMMANDS, GROUPS, MEANT, cli, load

HELP_AND_MODULES = """
import sys
from windfall.cli.main import outcome
outcome(["--help"])
print(*sys.modules, file=sys.stderr)
"""
RUN = [sys.executable, "-m", "windfall.cli"]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_loads_and_says_what_the_list_says(name):
    command = load(COMMANDS[name])
    assert command.name == name
    assert command.get_short_help_str(limit=200) == COMMANDS[name].summary


def every_command(group=cli, path=()):
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))


@pytest.mark.parametrize(
    "path", [path for path, command in every_command() if not hasattr(command, "commands")]
)
def test_each_command_that_prints_has_json(path):
    command = dict(every_command())[path]
    options = {option for parameter in command.params for option in parameter.opts}
    assert ("--json" in options) == (path not in {("up",), ("exec",), ("completion",), ("user-data",)})


def test_help_imports_no_command_and_nothing_heavy():
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            HELP_AND_MODULES,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    modules = set(loaded.stderr.split())
    headings = [line for line in loaded.stdout.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings == ["Options:", *(f"{group}:" for group in GROUPS), "Other names:"]
    assert all(f"\n  {name} " in loaded.stdout for name in COMMANDS)
    assert not modules & {"botocore", "rich", "uvicorn", "asyncio", "windfall.cli.run", "http.client"}


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in {"image", "keys"}])
def test_no_command_imports_what_only_the_daemon_needs(command):
    place = COMMANDS[command].place.partition(":")[0]
    loaded = subprocess.run(
        [sys.executable, "-c", f"import sys, windfall.cli.{place}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not set(loaded.stdout.split()) & {"botocore", "rich", "uvicorn", "asyncio", "msgspec"}


def test_an_unknown_command_gets_the_nearest_one(windfall):
    ran = windfall("job")
    assert ran.code == 2
    assert ran.err == "windfall: there is no command 'job'; did you mean `windfall jobs`?\n"


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_its_command(windfall, alias):
    ran = windfall(alias, "--help")
    assert ran.code == 0
    assert ran.out == windfall(ALIASES[alias], "--help").out


@pytest.mark.parametrize("name", MEANT)
def test_a_name_from_elsewhere_gets_commands_that_exist(windfall, name):
    ran = windfall(name, "anything")
    assert ran.code == 2
    assert ran.err.startswith(f"windfall: there is no command {name!r}; `windfall ")
    named = re.findall(r"`windfall ([a-z][a-z-]*)", ran.err)
    assert all(command in COMMANDS for command in named)
    assert not {name} & (COMMANDS.keys() | ALIASES.keys())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["jobs", "--limit", "no"], "windfall: invalid value for '--limit': 'no' is not a whole number"),
        (["run"], "windfall: there is nothing to run: write the command after --"),
        (["why"], "see `windfall why --help`"),
        (["run", "--array", "1", "--", "true"], "--array"),
        (["run", "--env", "novalue", "--", "true"], "write it as NAME=VALUE"),
        (["jobs", "--wide"], "no such option"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(windfall, arguments, text):
    ran = windfall(*arguments)
    assert ran.code == 2
    assert text in ran.err.lower() or text in ran.err
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("windfall: ")


def test_a_fault_of_ours_is_a_sentence(windfall, daemon):
    daemon.answers["Status"] = {"queues": 7}
    ran = windfall("queues")
    assert ran.code == 1
    assert ran.err.startswith("windfall: a fault of Windfall itself: TypeError")
    assert "Traceback" not in ran.err


def test_no_daemon_was_ever_there(windfall, tmp_path):
    ran = windfall("status", "--data", str(tmp_path / "none"))
    assert ran.code == 1
    assert ran.err == (
        f"windfall: no Windfall daemon is known in {tmp_path / 'none'}; start one with `windfall up`, or name its"
        " directory with --data DIR; for a daemon of another user, ask for the lines of `windfall env --key ID`\n"
    )


def test_a_reader_that_leaves_is_no_failure_worth_a_word(daemon):
    daemon.answers["ListImages"] = {
        "images": [
            {"pattern": f"i{n}" * 50, "directory": "/d", "entrypoint": [], "environment": {}}
            for n in range(2000)
        ]
    }
    # Unbuffered, Python takes a write that was cut short for a whole one.
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [*RUN, "image", "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=usual) as ran:
        assert ran.stdout.read(5) == b"IMAGE"
        ran.stdout.close()
        assert ran.stderr.read() == b""
    assert ran.returncode == 141


def test_a_reader_that_has_found_its_line_is_no_failure(daemon):
    daemon.answers["ListImages"] = {
        "images": [
            {"pattern": f"image-{n}", "directory": "/d", "entrypoint": [], "environment": {}}
            for n in range(500)
        ]
    }
    found = shlex.join([*RUN, "image", "list"]) + " | grep -q image-0"
    for _ in range(5):
        assert subprocess.run(["bash", "-o", "pipefail", "-c", found], check=False).returncode == 0


def test_completion_scripts(windfall):
    for shell in ("bash", "zsh", "fish"):
        assert "_WINDFALL_COMPLETE" in windfall("completion", shell).out


def test_the_shell_completes_commands_and_jobs(daemon):
    daemon.answers["describejobqueues"] = {"jobQueues": [{"jobQueueName": "q"}]}
    job = {"jobId": "abc-1", "jobName": "train", "status": "RUNNING", "createdAt": 1}
    daemon.answers["listjobs"] = lambda asked: {
        "jobSummaryList": [job] if asked["jobStatus"] == "RUNNING" else []
    }

    def complete(words: str) -> str:
        count = len(words.split(" ")) - 1
        env = {
            **os.environ,
            "_WINDFALL_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(count),
        }
        return subprocess.run(RUN, capture_output=True, text=True, check=False, env=env).stdout

    assert "describe" in complete("windfall des")
    assert "abc-1" in complete("windfall show tra")
    assert "abc-1" in complete("windfall why tra")
    assert complete("windfall jobs --queue q").split(",")[-1].strip() == "q"
