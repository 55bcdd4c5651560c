"""A fake daemon, and a way to run `windfall` against it inside of this process."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

import pytest

from tests.unit.cli.fake_daemon import fake_daemon
from windfall.cli.client import connect
from windfall.cli.main import outcome


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    monkeypatch.setenv("WINDFALL_DATA", str(tmp_path / "data"))
    with fake_daemon(tmp_path / "data", time.time) as running:
        yield running


@pytest.fixture
def windfall(capsys, monkeypatch):
    """`windfall("jobs", "--all")` runs the command and answers its exit code and output."""
    # What the person or program that runs the tests has set must not change what is printed.
    for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        code = outcome(arguments)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def client(daemon):
    """A client of the fake daemon, made as commands make theirs."""
    with contextlib.closing(connect(None)) as connected:
        yield connected
