"""Every program on the library's page really resumes: ended by SIGTERM in a step, started again, the same last line."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "checkpoint.md"
PROGRAMS = {
    match[1]: match[2]
    for match in re.finditer(
        r"^```python\n# (\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
}
#: What has to be installed beside the library.
NEEDS = {
    "plain": ["numpy"],
    "types": [],
    "torch": ["torch"],
    "jax": ["jax"],
    "keras": ["keras", "tensorflow"],
    "lightning": ["torch", "lightning"],
    "transformers": ["torch", "transformers", "accelerate"],
}

#: Sends the program the signal that AWS and Windfall send, at a step that the test knows.
INTERRUPTER = """
import os, signal, sys
import windfall.checkpoint

step_as_it_is = windfall.checkpoint.Run.step
def step(run, number, loss=None):
    if number == 7:
        os.kill(os.getpid(), signal.SIGTERM)
    step_as_it_is(run, number, loss)

windfall.checkpoint.Run.step = step
"""


def outcome(program: str, place: Path, *, interrupted: bool = False) -> tuple[int, list[str]]:
    """The exit code and the line that a program prints about its weights."""
    place.mkdir(exist_ok=True)
    (place / "program.py").write_text((INTERRUPTER if interrupted else "") + textwrap.dedent(program))
    own = {"PYTHONPATH": os.pathsep.join(sys.path), "TF_CPP_MIN_LOG_LEVEL": "3", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "program.py"],
        cwd=place,
        env={**os.environ, **own, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode in {0, 143}, done.stderr[-3000:]
    return done.returncode, re.findall(r"^weights \w{64}$", done.stdout, re.MULTILINE)


def test_the_page_has_a_program_for_each_framework():
    assert set(PROGRAMS) == set(NEEDS)


@pytest.mark.parametrize("name", [name for name in NEEDS if name != "types"])
def test_a_program_of_the_page_resumes_bit_for_bit(name, tmp_path):
    for module in NEEDS[name]:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    program = PROGRAMS[name]
    code, uninterrupted = outcome(program, tmp_path / "whole")
    assert (code, len(uninterrupted)) == (0, 1)
    assert outcome(program, tmp_path / "parts", interrupted=True) == (143, [])
    assert [path.name for path in (tmp_path / "parts" / "checkpoints").glob("step-*7")] == ["step-000000007"]
    assert outcome(program, tmp_path / "parts") == (0, uninterrupted)


def test_the_example_of_a_registered_type_works(tmp_path):
    code = PROGRAMS["types"] + "print(frameworks.flatten({'day': datetime.date(2026, 1, 2)}).tree)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "2026-01-02" in done.stdout
