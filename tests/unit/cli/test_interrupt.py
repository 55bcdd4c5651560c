"""`windfall interrupt` and what `describe` says about places and checkpoints."""

from __future__ import annotations

ID = "0f0f0f0f-0000-4000-8000-000000000001"


def test_a_job_is_interrupted_with_the_notice_that_was_asked_for(daemon, windfall):
    daemon.answers["Interrupt"] = {"noticed": 1, "noticeS": 30.0}
    ran = windfall("interrupt", ID, "--notice", "30")
    assert ran.out == f"1 attempt given 30 s of notice; see `windfall why {ID}`\n"
    assert daemon.params_of("Interrupt") == [{"jobId": ID, "noticeS": 30.0}]


def test_an_instance_is_told_by_its_id(daemon, windfall):
    daemon.answers["Interrupt"] = {"noticed": 3, "noticeS": 120.0}
    ran = windfall("interrupt", "i-0123456789abcdef0")
    assert ran.out == "3 attempts given 120 s of notice; see `windfall status`\n"
    assert daemon.params_of("Interrupt") == [{"instance": "i-0123456789abcdef0"}]


def test_a_notice_that_cannot_be_is_refused_before_anything_is_asked(daemon, windfall):
    ran = windfall("interrupt", ID, "--notice", "-1")
    assert ran.code == 2
    assert "--notice" in ran.err
