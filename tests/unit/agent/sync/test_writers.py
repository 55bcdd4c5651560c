"""The kernel's tables say who has a file open for writing: asked of real processes."""

from __future__ import annotations

import os
import subprocess

import pytest

from windfall.agent.sync.writers import open_for_writing, server_mounts


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


def test_only_mounts_that_ask_a_server_are_known_by_their_device():
    table = (
        "36 35 98:0 / /mnt/a\\040b rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"
        "40 36 0:52 / /mnt/hung rw,relatime - fuse.sshfs host:/ rw,user_id=0\n"
        "41 36 0:53 / /mnt/home rw shared:7 - nfs4 host:/home rw\n"
        "42 36 0:54 / / rw - overlay overlay rw,lowerdir=/nfs\n"
    )
    assert server_mounts(table) == {36: None, 40: os.makedev(0, 52), 41: os.makedev(0, 53), 42: None}
