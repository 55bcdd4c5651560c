"""The log of the S3 server does not grow without end."""

from __future__ import annotations

import subprocess

from windfall.daemon.s3_companion import bound_log


def test_a_large_log_is_put_aside_and_its_writers_go_on_in_the_empty_one(tmp_path):
    log = tmp_path / "seaweedfs.log"
    script = 'exec >>"$1"; echo before; read line; echo after; read line'
    with subprocess.Popen(["sh", "-c", script, "sh", log], stdin=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        log.touch()
        with log.open("a") as other:
            other.write("x" * 100)
        bound_log(log, bytes_max=1000)
        assert log.stat().st_size >= 100
        bound_log(log, bytes_max=50)
        assert log.stat().st_size <= len("before\n")
        assert "x" * 100 in (tmp_path / "seaweedfs.log.1").read_text()
        writer.communicate("go\nend\n", timeout=60)
    assert log.read_text().endswith("after\n")
    assert "\0" not in log.read_text()


def test_a_log_that_cannot_be_copied_is_emptied_all_the_same(tmp_path):
    log = tmp_path / "seaweedfs.log"
    log.write_text("x" * 100)
    (tmp_path / "seaweedfs.log.1").mkdir()
    (tmp_path / "seaweedfs.log.1" / "seaweedfs.log").mkdir()
    bound_log(log, bytes_max=50)
    assert log.read_text() == ""
    bound_log(tmp_path / "none", bytes_max=50)
