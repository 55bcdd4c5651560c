"""What `windfall schedules` prints, and what it asks of the daemon."""

from __future__ import annotations

import json
from typing import Any

import pytest

NOW = 1_794_700_000_000
HOUR = 3_600_000
JOB = "0b5ae4ae-4b5c-4f5e-9d3c-2f6a1c0d9e11"


def a_forecast(**facts: Any) -> dict[str, Any]:
    return {
        "verdict": "fits",
        "certainty": "fair",
        "runs": 9,
        "inTime": 9,
        "chance": 10 / 11,
        "medianMs": 4 * HOUR,
        "p90Ms": 5 * HOUR,
        "roomMs": 24 * HOUR,
        **facts,
    }


def a_tick(**facts: Any) -> dict[str, Any]:
    return {
        "dueAt": NOW - 8 * HOUR,
        "local": "Mon 2026-11-16 02:00:00 CET",
        "outcome": "started",
        "reason": None,
        "error": None,
        "jobId": JOB,
        "attempts": 1,
        "doneAt": NOW - 8 * HOUR,
        "comesAt": None,
        "againAt": None,
        "runWaits": False,
        "runStartedAt": NOW - 8 * HOUR,
        "runEndedAt": NOW - 4 * HOUR,
        "runSucceeded": True,
        **facts,
    }


def a_schedule(**facts: Any) -> dict[str, Any]:
    due = {
        "at": NOW + 26 * HOUR,
        "local": "Tue 2026-11-17 02:00:00 CET",
        "note": None,
        "skipped": False,
    }
    return {
        "key": "default/retrain",
        "group": "default",
        "name": "retrain",
        "state": "ENABLED",
        "when": "Monday to Friday at 02:00 Europe/Berlin",
        "expression": "cron(0 2 ? * MON-FRI *)",
        "timezone": "Europe/Berlin",
        "target": "arn:aws:scheduler:::aws-sdk:batch:submitJob",
        "overlap": "skip",
        "catchUp": "once",
        "summerTime": "aws",
        "flexibleWindowMinutes": None,
        "next": [due],
        "last": a_tick(),
        "running": None,
        "forecast": a_forecast(),
        **facts,
    }


def squeezed(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def listed(daemon: Any, *schedules: dict[str, Any], left_out: int = 0) -> None:
    daemon.answers["Schedules"] = {"now": NOW, "schedules": list(schedules), "leftOut": left_out}


def test_the_list_has_the_next_run_the_last_outcome_and_the_forecast(daemon, windfall):
    off = a_schedule(key="etl/off", state="DISABLED", next=[], last=None, forecast=a_forecast(runs=0))
    listed(daemon, a_schedule(), off, left_out=3)
    page = squeezed(windfall("schedules").out)
    assert "retrain Monday to Friday at 02:00 Europe/Berlin Tue 2026-11-17 02:00:00 CET in 1 d 2 h" in page
    assert (
        "8 h ago succeeded fits before the 1 d until the run after it: usually 4 h, 9 in 10 within 5 h"
        in page
    )
    assert "(9 runs, certainty fair)" in page
    assert "etl/off" in page
    assert "disabled" in page
    assert "no run to judge by" in page
    assert "3 schedules more" in page


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("tight", "tight: only 4 of 9 would have fitted"),
        ("overruns", "does not fit: 4 of 9 would have fitted"),
    ],
)
def test_a_forecast_that_is_not_good_gives_its_numbers(daemon, windfall, verdict, words):
    listed(daemon, a_schedule(forecast=a_forecast(verdict=verdict, inTime=4)))
    assert words in squeezed(windfall("schedules").out)


def test_without_schedules_it_says_how_to_make_one(daemon, windfall):
    listed(daemon)
    assert "windfall schedule create" in windfall("schedules").out


def test_one_schedule_shows_its_ticks_with_the_reason_for_every_skip(daemon, windfall):
    ticks = [
        a_tick(outcome="due", runEndedAt=None, doneAt=None, jobId=None, error="no", againAt=NOW + 4_000),
        a_tick(runEndedAt=None, runSucceeded=None, doneAt=NOW - HOUR),
        a_tick(runEndedAt=None, runSucceeded=None, doneAt=NOW - 2 * HOUR, runWaits=True),
        a_tick(outcome="skipped", jobId=None, reason="the run of Friday was not over"),
        a_tick(runSucceeded=False),
        a_tick(outcome="due", runEndedAt=None, doneAt=None, jobId=None, comesAt=NOW + 240_000),
    ]
    one = a_schedule(running=a_tick(runEndedAt=None, runWaits=True), flexibleWindowMinutes=15)
    daemon.answers["ScheduleHistory"] = {
        "now": NOW,
        "key": "default/retrain",
        "schedule": one,
        "ticks": ticks,
    }
    page = squeezed(windfall("schedules", "retrain", "--limit", "4").out)
    assert daemon.params_of("ScheduleHistory") == [{"name": "retrain", "limit": 4}]
    assert "Tue 2026-11-17 02:00:00 CET in 1 d 2 h" in page
    assert "no; asked again in 4 s" in page
    assert "due comes in 4 min, in its flexible window" in page
    assert "flexible window a tick comes within 15 minutes after it is due" in page
    assert f"running {JOB} 1 h" in page
    assert f"waiting {JOB} 2 h" in page
    assert "skipped the run of Friday was not over" in page
    assert f"run failed {JOB} 4 h" in page
    assert f"waiting {JOB}, due Mon 2026-11-16" in page


def test_a_narrow_terminal_cuts_neither_the_next_run_nor_the_verdict_nor_a_reason(
    daemon, windfall, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    listed(daemon, a_schedule())
    page = windfall("schedules").out
    assert max(len(line) for line in page.splitlines()) <= 80
    assert "retrain   Monday to Friday at 02:00 E…  Tue 11-17 02:00 CET  succeeded  fits" in page
    refused = "Error executing request, Exception : Job queue gpus does not exist, RequestId: 5f-0a"
    skipped = "the run of Friday, which is the job 0b5ae4ae-4b5c-4f5e-9d3c-2f6a1c0d9e11, was not over"
    daemon.answers["ScheduleHistory"] = {
        "now": NOW,
        "key": "default/x",
        "schedule": None,
        "ticks": [
            a_tick(),
            a_tick(outcome="failed", jobId=None, reason=f"asked once: ClientException: {refused}"),
            a_tick(outcome="skipped", jobId=None, reason=skipped),
        ],
    }
    page = squeezed(windfall("schedules", "x").out)
    assert "succeeded 0b5ae4ae 4 h" in page
    assert "CET failed\nasked once: ClientException: Job queue gpus does not exist\n" in page
    assert skipped in " ".join(page.split())


def test_what_is_left_of_a_schedule_that_is_gone_can_still_be_read(daemon, windfall):
    daemon.answers["ScheduleHistory"] = {
        "now": NOW,
        "key": "default/x",
        "schedule": None,
        "ticks": [a_tick()],
    }
    page = windfall("schedules", "x").out
    assert "deleted" in page
    assert "succeeded" in page


def test_json_is_what_the_daemon_answered(daemon, windfall):
    listed(daemon, a_schedule())
    assert json.loads(windfall("schedules", "--json").out)["schedules"][0]["name"] == "retrain"
