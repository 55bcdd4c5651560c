"""The kernel's tables say who has a file open for writing: asked of real processes."""

from __future__ import annotations

import subprocess

import pytest

from windfall.agent.sync.writers import open_for_writing


def file_id(path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


@pytest.mark.parametrize(("redirection", "is_open"), [(">>", True), ("<>", True), ("<", False)])
def test_a_file_is_open_for_writing_as_long_as_its_process_has_it_so(tmp_path, redirection, is_open):
    path, other = tmp_path / "file", tmp_path / "other"
    path.touch()
    other.touch()
    both = {file_id(path), file_id(other)}
    script = f'exec 7{redirection}"$1"; echo ready; read line'
    with subprocess.Popen(
        ["sh", "-c", script, "sh", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert open_for_writing(both) == ({file_id(path): redirection == ">>"} if is_open else {})
        process.communicate(b"\n", timeout=60)
    assert open_for_writing(both) == {}


def test_nothing_is_asked_about_nothing():
    assert open_for_writing([]) == {}
