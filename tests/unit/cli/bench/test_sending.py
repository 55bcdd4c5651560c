"""Which Python is taken, and how a wrong one is refused."""

from __future__ import annotations

import sys

import pytest

from windfall.cli.bench.sending import Python, check_frameworks, find_python, look_into
from windfall.cli.errors import BadUsage, CliError


def a_program(tmp_path, text):
    program = tmp_path / "python3"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


def test_this_python_has_numpy():
    found = find_python(sys.executable, for_gpu=False)
    assert found.executable == sys.executable
    assert "numpy" in found.libraries


def test_what_is_no_python_is_refused(tmp_path):
    with pytest.raises(BadUsage, match=r"is not Python 3\.10 or newer"):
        find_python(a_program(tmp_path, "echo hello"), for_gpu=False)
    with pytest.raises(BadUsage, match=r"is not Python 3\.10 or newer"):
        find_python(str(tmp_path / "absent"), for_gpu=False)


def test_an_old_python_is_none(tmp_path):
    assert look_into(a_program(tmp_path, "echo '[[3, 8], [\"numpy\"]]'")) is None


def test_a_python_without_numpy_is_refused(tmp_path):
    with pytest.raises(CliError, match="has no numpy"):
        find_python(a_program(tmp_path, "echo '[[3, 12], [\"torch\"]]'"), for_gpu=True)


def test_a_library_that_is_not_there_is_refused():
    python = Python("/usr/bin/python3", ("numpy", "torch"))
    check_frameworks(("torch",), python)
    with pytest.raises(CliError, match="has no jax"):
        check_frameworks(("jax",), python)
    with pytest.raises(BadUsage, match="choose from numpy, torch, cupy, jax"):
        check_frameworks(("tensorflow",), python)


def test_libraries_are_chosen_in_their_order():
    python = Python("python3", ("numpy", "jax", "torch"))
    assert python.chosen((), ("torch", "cupy", "jax")) == ["torch", "jax"]
    assert python.chosen(("jax",), ("torch", "cupy", "jax")) == ["jax"]
