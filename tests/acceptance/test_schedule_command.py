"""`windfall schedule` against a real daemon: made, run, paused, resumed and deleted."""

from __future__ import annotations

import json

from tests.waiting import wait_until


def test_a_schedule_runs_a_command_with_the_options_of_run(fresh):
    running = fresh("--vcpus", "2", "--memory-mib", "4096")
    made = running.windfall(
        *("schedule", "create", "tick", "--every", "1d", "--clean", "--memory", "64M"),
        *("--env", "WORD=hello", "--tag", "team=vision", "--", "sh", "-c", "echo $WORD"),
    )
    assert "rate(1 day)" in made.stdout

    def ended() -> bool:
        jobs = json.loads(running.windfall("jobs", "--json").stdout)["jobs"]
        return [(job["jobName"], job["status"]) for job in jobs] == [("tick", "SUCCEEDED")]

    wait_until(ended, "the first run, which is at once")
    assert running.windfall("logs", "tick").stdout == "hello\n"
    described = json.loads(running.windfall("describe", "tick", "--json").stdout)
    assert described["tags"]["team"] == "vision"
    history = json.loads(running.windfall("schedules", "tick", "--json").stdout)
    assert history["schedule"]["overlap"] == "skip"
    again = running.windfall(
        "schedule", "create", "tick", "--every", "1d", "--clean", "--", "true", check=False
    )
    assert "windfall schedule delete tick" in again.stderr
    running.windfall("schedule", "pause", "tick")
    assert (
        json.loads(running.windfall("schedules", "tick", "--json").stdout)["schedule"]["state"] == "DISABLED"
    )
    running.windfall("schedule", "resume", "tick")
    listed = json.loads(running.windfall("schedule", "list", "--json").stdout)
    assert [one["state"] for one in listed["schedules"]] == ["ENABLED"]
    running.windfall("schedule", "delete", "tick")
    gone = running.windfall("schedule", "pause", "tick", check=False)
    assert (gone.returncode, "windfall schedule list" in gone.stderr) == (1, True)
