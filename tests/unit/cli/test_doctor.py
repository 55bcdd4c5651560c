"""`windfall doctor` as a person or a program reads it, on this host and without a daemon."""

from __future__ import annotations

import json

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


def test_programs_get_one_document_and_the_exit_code_says_whether_something_is_bad(tmp_path):
    ran = run(tmp_path, "--json")
    document = json.loads(ran.stdout)
    by_subject = {one["subject"]: one for one in document["checks"]}
    assert by_subject["container engine"]["state"] == "warn"
    assert by_subject["daemon"]["state"] == "skip"
    assert all(one["mend"] for one in document["checks"] if one["state"] in ("warn", "bad"))
    assert document["healthy"] == (ran.return_value == 0)
    assert list(tmp_path.iterdir()) == []
