"""README's lines that install the `windfall` command alone, each with a wheel of this tree: what they install works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import windfall
from tests.acceptance.daemon import RunningWindfall
from tests.tidy.tree import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = re.findall(r"`((?:pipx|uv)[a-z ]* install) \.`", README)
#: Where a program may be that is not on PATH: CI has uv beside the tree's other environments.
ELSEWHERE = {"uv": ROOT / "build" / "uv" / "bin" / "uv"}
#: What the programs say where no package can be had.
OFFLINE = re.compile(
    r"error sending request|failed to fetch|connection error|no network|name resolution", re.IGNORECASE
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (path,) = folder.glob("*.whl")
    return path


def test_readme_has_both_lines():
    assert LINES == ["pipx install", "uv tool install"]


@pytest.fixture(params=LINES)
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path: Path) -> Iterator[Path]:
    """The directory of programs that one of the lines has filled."""
    program, *words = request.param.split()
    path = shutil.which(program) or str(ELSEWHERE.get(program, ""))
    if not os.access(path, os.X_OK):
        pytest.skip(f"{program} is not installed")
    programs, home = tmp_path / "bin", tmp_path / "tools"
    own = {"PIPX_HOME": str(home), "PIPX_BIN_DIR": str(programs), "PIPX_DEFAULT_PYTHON": sys.executable}
    own |= {"UV_TOOL_DIR": str(home), "UV_TOOL_BIN_DIR": str(programs), "UV_PYTHON": sys.executable}
    done = subprocess.run(
        [path, *words, str(wheel)],
        env={**os.environ, **own, "UV_PYTHON_DOWNLOADS": "never"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0 and OFFLINE.search(done.stderr):
        pytest.skip(f"{program} cannot reach an index of packages")
    assert done.returncode == 0, done.stderr
    yield programs
    shutil.rmtree(home)


def test_what_the_line_installs_serves_and_runs_a_job(installed: Path):
    assert [path.name for path in installed.iterdir()] == ["windfall"]
    running = RunningWindfall("--gpus", "none")
    running.command = [str(installed / "windfall")]
    try:
        assert windfall.__version__ in running.windfall("--version").stdout
        running.up()
        ran = running.windfall("run", "--clean", "--", "echo", "installed")
        assert ran.stdout == "installed\n"
    finally:
        running.close()
