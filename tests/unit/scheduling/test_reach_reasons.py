"""What a person is told to change where machines do not reach a job's storage."""

from __future__ import annotations

import pytest

from windfall.jobs.ids import EnvironmentName
from windfall.jobs.storage import BUCKETS, FILES
from windfall.scheduling.reach_reasons import OthersOutOfReach, OutOfReach

AWAY = EnvironmentName("away")


@pytest.mark.parametrize("lacking", [(FILES,), (FILES, BUCKETS)])
def test_files_of_the_daemons_host_are_left_out_or_go_to_s3(lacking: tuple[str, ...]):
    text = OutOfReach(AWAY, lacking).text()
    assert "the machines of away do not reach" in text
    assert "windfall run --clean or --git" in text
    assert "--s3-listen ADDRESS, or --objects s3://BUCKET" in text


def test_an_s3_at_loopback_is_to_listen_elsewhere():
    text = OutOfReach(AWAY, (BUCKETS,)).text()
    assert "--s3-listen ADDRESS" in text
    assert "--clean" not in text, "the job need not change"


def test_it_is_said_that_only_the_large_machines_are_meant():
    assert "that are large enough for it" in OutOfReach(AWAY, (FILES,), others_too_small=True).text()
    assert "large enough" not in OutOfReach(AWAY, (FILES,)).text()


@pytest.mark.parametrize(
    ("lacking", "remedy"),
    [(FILES, "windfall run --clean or --git"), (BUCKETS, "windfall up --s3-listen ADDRESS")],
)
def test_a_job_that_waits_for_others_hears_what_would_let_it_run_elsewhere(lacking: str, remedy: str):
    text = OthersOutOfReach(AWAY, (lacking,)).text()
    assert text.startswith("other machines of away are large enough for it")
    assert remedy in text
