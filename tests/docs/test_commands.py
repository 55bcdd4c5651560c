"""The pages name no `windfall` command that the program does not have."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.docs.pages import code_lines, pages

RUN_CLI = "import sys; sys.argv[0] = 'windfall'; from windfall.cli.main import main; main()"


def commands_named(text: str) -> set[str]:
    """The first word after `windfall` in all commands of a page, with pipes and substitutions taken apart."""
    return {
        match[1]
        for line in code_lines(text)
        for match in re.finditer(r"(?:^|\$\(|[|;&]\s*)windfall ([a-z][a-z-]*)", line)
    }


def all_commands() -> list[str]:
    return sorted(set().union(*(commands_named(page.read_text(encoding="utf-8")) for page in pages())))


@pytest.mark.parametrize("command", all_commands())
def test_a_named_command_exists(command):
    asked = subprocess.run(
        [sys.executable, "-c", RUN_CLI, command, "--help"], capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr
    assert "Usage:" in asked.stdout


def test_an_unknown_command_is_found():
    asked = subprocess.run(
        [sys.executable, "-c", RUN_CLI, "frobnicate", "--help"], capture_output=True, text=True, check=False
    )
    assert asked.returncode != 0
    assert "frobnicate" in asked.stderr


def test_commands_are_found_in_blocks_and_spans():
    text = 'Use `windfall up`; windfall is nice.\n```sh\n$ eval "$(windfall env)"\nwindfall why J\n```\n'
    assert commands_named(text) == {"up", "env", "why"}
