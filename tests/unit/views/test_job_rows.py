"""Jobs as the page shows them: rows, arrays as letters, marks that stay few, and what stopping would cost."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import a_busy_world, a_job
from windfall.control import events
from windfall.jobs.staging import MARKS_MAX, Mark, remembering
from windfall.jobs.states import JobState
from windfall.views import job_rows


def a_mark(at: int, step: int | None = None) -> Mark:
    return Mark(f"step-{step}", at, at - 100, 1000, step)


def test_a_row_has_what_a_list_shows():
    world = a_busy_world().submits(a_job("train").gpus(0))
    world.starts("train")
    row = job_rows.row(world.job("train"), "ann")
    assert (row["jobId"], row["state"], row["attempts"], row["owner"]) == (
        "train",
        JobState.RUNNING,
        1,
        "ann",
    )
    assert row["summary"] is None
    assert job_rows.row(a_busy_world().submits(a_job("a").array(3)).job("a"), None)["arraySize"] == 3


def test_a_live_array_and_the_same_one_read_from_the_store_have_one_map():
    world = a_busy_world()
    world.submits(a_job("a").array(6).vcpus(10))
    placed = [
        child for child in (f"a:{n}" for n in range(6)) if world.state_of(child) is not JobState.RUNNABLE
    ]
    world.starts(*placed).exits(placed[0], 1).exits(placed[1], 0)
    live = job_rows.array_map(world.job("a"), world.state.children["a"], (), 1)
    assert live["map"][:2] == "FO"
    assert len(live["map"]) == live["size"] == 6
    assert sum(live["summary"].values()) == 6
    while not world.job("a").finished:
        running = [
            f"a:{n}" for n in range(6) if world.state_of(f"a:{n}") in (JobState.STARTING, JobState.RUNNING)
        ]
        world.starts(*running)
        for child in running:
            world.exits(child, 0)
    ended = [(n, world.state_of(f"a:{n}")) for n in range(6)]
    assert job_rows.array_map(world.job("a"), None, ended, 1)["map"] == "FOOOOO"
    assert job_rows.array_map(world.job("a"), None, ended, 1)["summary"] == {"SUCCEEDED": 5, "FAILED": 1}


def test_marks_stay_few_and_the_newest_all_stay():
    marks: tuple[Mark, ...] = ()
    for number in range(10_000):
        marks = remembering(marks, a_mark(number * 1000, number))
        assert len(marks) <= MARKS_MAX
    steps = [mark.step for mark in marks]
    assert steps == sorted(steps)
    assert steps[-90:] == list(range(9_910, 10_000))
    assert steps[0] == 0


def test_every_checkpoint_of_an_attempt_is_remembered_once():
    world = a_busy_world().submits(a_job("train")).starts("train")
    token = world.token("train")
    for at in (1_000, 2_000, 2_000, 1_500):
        world.happens(events.AttemptProgressed(token, world.now, checkpoint=a_mark(world.now + at)))
    (attempt,) = job_rows.marks(world.job("train"))["attempts"]
    assert [mark["at"] - world.now for mark in attempt["marks"]] == [1_000, 2_000]
    assert job_rows.attempts_of_page(world.job("train"))[0]["marks"][0][0] == world.now + 1_000
    assert world.restarted().state.jobs["train"].attempts[-1].marks == world.job("train").attempts[-1].marks


def test_what_stopping_costs_counts_from_the_state_in_the_newest_checkpoint():
    world = a_busy_world().submits(a_job("train")).starts("train")
    job, now = world.job("train"), world.now + 60_000
    assert job_rows.loss_if_stopped(job, now) == {"since": world.now, "seconds": 60}
    job.attempts[-1].checkpoint = replace(a_mark(now - 10_000), state_at=now - 12_000)
    assert job_rows.loss_if_stopped(job, now) == {"since": now - 12_000, "seconds": 12}
    world.exits("train")
    assert job_rows.loss_if_stopped(world.job("train"), now) is None


def test_a_running_job_ends_when_earlier_ones_did():
    job = a_busy_world().submits(a_job("train")).starts("train").job("train")
    started = job.attempts[-1].started_at
    assert job_rows.expected_end(job, 60_000.0, started + 1) == {
        "at": started + 60_000,
        "from": "earlier runs",
    }
    assert job_rows.expected_end(job, 60_000.0, started + 70_000) is None
    assert job_rows.expected_end(job, None, started) is None
