"""What `windfall describe` says about places and checkpoints."""

from __future__ import annotations

import pytest

from windfall.cli.attempts import print_capacity, size

ATTEMPT = {
    "number": 1,
    "instance": "i-1",
    "instanceType": "g5.xlarge",
    "market": "spot",
    "stoppedAt": 5_000,
    "deadlineAt": 4_000,
    "stopWords": "drill",
    "doing": None,
    "alarm": None,
    "commit": None,
    "restored": None,
    "checkpoint": {"name": "step-7", "at": 2_000, "stateAt": 1_000, "bytes": 1_500_000, "step": 7},
    "progress": None,
}


@pytest.fixture
def shown(daemon, client, capsys):
    def show(*attempts, uri="file:///objects/job", now=10_000):
        daemon.answers["Attempts"] = {"checkpointUri": uri, "attempts": list(attempts)}
        print_capacity(client, "job", now)
        return " ".join(capsys.readouterr().out.split())

    return show


def test_an_attempt_that_left_says_why_and_what_it_saved(shown):
    page = shown(ATTEMPT)
    assert "kept at file:///objects/job" in page
    assert "1 i-1 g5.xlarge spot - step 7 (1.5 MB) drill" in page


def test_one_that_runs_says_how_old_its_checkpoint_is_and_how_far_it_is(shown):
    live = ATTEMPT | {"stoppedAt": None, "deadlineAt": 40_000, "progress": {"step": 1200}, "commit": "a" * 40}
    page = shown(live)
    assert "step 7 (1.5 MB), 9 s ago" in page
    assert "at step 1,200" in page
    assert "place gone in 30 s" in page
    assert "commit aaaaaaaaaaaa" in page


def test_a_plain_job_has_no_such_section(shown):
    nothing = ATTEMPT | {"stopWords": None, "checkpoint": None}
    assert shown(nothing, uri=None) == ""


def test_sizes_are_for_people():
    assert [size(count) for count in (0, 999, 1_000, 4_400_000, 9_460_000_000, 3 * 10**12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "4.4 MB",
        "9.5 GB",
        "3.0 TB",
    ]
