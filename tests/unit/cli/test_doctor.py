"""`windfall doctor` as a person or a program reads it, on this host and without a daemon."""

from __future__ import annotations

import json
import os

from click.testing import CliRunner

from windfall.cli.doctor import doctor


def run(tmp_path, *arguments):
    options = ["--data", str(tmp_path / "none"), "--job-user", "root", "--container-socket", "/no/such.sock"]
    return CliRunner().invoke(doctor, [*options, *arguments], catch_exceptions=False, standalone_mode=False)


def test_every_subject_has_a_line_and_what_is_missing_says_what_to_do(tmp_path):
    ran = run(tmp_path)
    subjects = (
        "NVIDIA driver",
        "container engine",
        "job user",
        "cgroups",
        "shared memory",
        "disk",
        "clock",
        "git",
    )
    assert all(subject in ran.stdout for subject in subjects)
    assert "/no/such.sock" in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith(("jobs run here", "1 thing must", "2 things must"))


def test_the_daemon_s_own_settings_are_read_and_wrong_ones_told(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "windfall.toml").write_text('container_socket = "/own/engine.sock"\njob_user = "root"\n')

    def examined() -> dict[str, dict[str, str]]:
        arguments = ["--data", str(data), "--json"]
        ran = CliRunner().invoke(doctor, arguments, catch_exceptions=False, standalone_mode=False)
        return {one["subject"]: one for one in json.loads(ran.stdout)["checks"]}

    found = examined()
    assert "/own/engine.sock" in found["container engine"]["seen"]
    assert os.geteuid() or "jobs would run as root" in found["job user"]["seen"]
    (data / "windfall.toml").write_text('container_socket = "none"\n')
    assert examined()["container engine"]["state"] == "skip"
    (data / "windfall.toml").write_text("port = 99999\n")
    assert examined()["settings"]["state"] == "bad"


def test_lines_end_where_their_words_do(tmp_path):
    assert all(line == line.rstrip() for line in run(tmp_path).stdout.splitlines())


def test_programs_get_one_document_and_the_exit_code_says_whether_something_is_bad(tmp_path):
    ran = run(tmp_path, "--json")
    document = json.loads(ran.stdout)
    by_subject = {one["subject"]: one for one in document["checks"]}
    assert by_subject["container engine"]["state"] == "warn"
    assert by_subject["daemon"]["state"] == "skip"
    assert all(one["mend"] for one in document["checks"] if one["state"] in ("warn", "bad"))
    assert document["healthy"] == (ran.return_value == 0)
    assert list(tmp_path.iterdir()) == []
