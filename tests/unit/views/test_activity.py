"""Points of activity, and why jobs waited: recorded for a group, only when it changes, shown for a job's own waits."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import a_busy_world, a_job
from windfall.accounting.prices import Rates
from windfall.jobs.submitters import Submitter
from windfall.views.activity import WaitReason, changes_of, group_name, point, reasons_of, waiting_now

OFFERS = {}


def test_a_point_counts_what_runs_what_waits_and_what_is_held():
    world = a_busy_world().submits(a_job("a"), a_job("huge").vcpus(1000)).starts("a")
    first = point(world.state, Rates(usd_vcpu_hour=0.5), world.now)
    assert (first["running"], first["waiting"], first["vcpus"]) == (1, 1, 64)
    assert first["vcpusHeld"] > 0
    assert first["usdHour"] > 0
    assert point(world.state, Rates(), world.now)["usdHour"] is None


def test_jobs_that_are_interchangeable_have_one_group_and_tenants_have_their_own():
    world = a_busy_world().submits(a_job("a").vcpus(1000), a_job("b").vcpus(1000), a_job("c").vcpus(999))
    a, b, c = (world.job(name) for name in "abc")
    assert group_name(a) == group_name(b) != group_name(c)
    other = replace(a, submission=replace(a.submission, submitter=Submitter("team")))
    assert group_name(other) != group_name(a)


def test_a_million_children_are_one_group():
    world = a_busy_world().submits(a_job("a").array(10_000).vcpus(1000))
    reasons, waiting = waiting_now(world.state, OFFERS, 0, world.now)
    assert [reason.group for reason in reasons] == [group_name(world.job("a"))] == list(waiting)
    assert reasons[0].code != "array"


def test_only_changes_are_recorded():
    first = WaitReason("g", 1, "room_taken", "a holds it")
    assert changes_of([first], {"g"}, {}, 1) == [first]
    assert changes_of([replace(first, at=2, text="b holds it")], {"g"}, {"g": first}, 2) == []
    other = WaitReason("g", 3, "turn", "x")
    assert changes_of([other], {"g"}, {"g": first}, 3) == [other]
    assert changes_of([], {"g"}, {"g": first}, 4) == []
    ended = changes_of([], set(), {"g": first}, 5)
    assert ended == [WaitReason("g", 5)]
    assert changes_of([], set(), {"g": ended[0]}, 6) == []


def test_a_job_has_the_part_of_the_history_in_which_it_waited():
    world = a_busy_world().submits(a_job("a").vcpus(1000))
    job, began = world.job("a"), world.job("a").runnable_at or world.job("a").created_at
    history = [
        WaitReason("g", began - 5_000, "old", "before it came"),
        WaitReason("g", began + 1_000, "room_taken", "x holds it"),
        WaitReason("g", began + 2_000),
        WaitReason("g", began + 3_000, "turn", "y is first"),
    ]
    told = [
        (it["code"], it["at"] - began, it["untilAt"] and it["untilAt"] - began)
        for it in reasons_of(job, history, began + 9_000)
    ]
    assert told == [("old", 0, 1_000), ("room_taken", 1_000, 2_000), ("turn", 3_000, None)]


def test_a_job_that_ran_at_once_has_none():
    world = a_busy_world().submits(a_job("a")).starts("a")
    placed = world.job("a").attempts[0].placed_at
    assert reasons_of(world.job("a"), [WaitReason("g", placed + 1, "turn", "x")], placed + 10) == []
