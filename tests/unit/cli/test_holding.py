"""What `windfall hold` and `windfall release` ask and say."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.fake_daemon import Error
from tests.unit.cli.test_following import ID


@pytest.mark.parametrize(
    ("command", "changed", "said"),
    [
        ("hold", True, "is held; `windfall release` lets it start"),
        ("hold", False, "was held before"),
        ("release", True, "may start"),
        ("release", False, "was not held"),
    ],
)
def test_each_job_is_told(daemon, windfall, command, changed, said):
    daemon.answers[command.capitalize()] = {"changed": changed}
    daemon.answers["FindJobs"] = {"jobIds": [ID]}
    ran = windfall(command, "train", ID)
    assert (ran.code, ran.out.splitlines()) == (0, [f"train {ID} {said}", f"{ID} {said}"])
    answer = json.loads(windfall(command, ID, "--json").out)
    assert answer == {"jobs": [{"jobId": ID, "changed": changed}]}


def test_a_refused_job_does_not_keep_the_others_from_it(daemon, windfall):
    other = ID.replace("0b", "1b", 1)
    refusal = Error("Rejected", "it is RUNNING; see `windfall interrupt`")
    daemon.answers["Hold"] = lambda asked: refusal if asked["jobId"] == ID else {"changed": True}
    ran = windfall("hold", ID, other)
    assert ran.code == 1
    assert "windfall interrupt" in ran.err
    assert ran.out.startswith(f"{other} is held")
