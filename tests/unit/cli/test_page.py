"""docs/cli.md has a section for every command and names only options that exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from windfall.cli.main import COMMANDS, load

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## windfall (\S+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def options_of(command):
    own = {option for parameter in command.params for option in parameter.opts}
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union(*(options_of(one) for one in inner))


def test_every_command_has_its_section():
    assert list(SECTIONS) == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_section_has_an_example_and_real_options_only(name):
    assert f"windfall {name}" in "".join(re.findall(r"```\w+\n(.*?)```", SECTIONS[name], re.DOTALL))
    # What stands in the examples of others (aws, train.py) does not begin with two hyphens there.
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", SECTIONS[name]))
    allowed = options_of(load(COMMANDS[name])) | options_of(load(COMMANDS["env"]))
    assert named <= allowed
