"""Scheduling policies: what can be declared, what a queue may do with one, and who may submit under which share."""

from __future__ import annotations

import pytest

from tests.builders import TestWorld, a_definition, a_job
from tests.fair_worlds import POLICY, a_fair_world, a_policy
from windfall.capacity.environments import JobQueue, Switch
from windfall.capacity.policies import FairShare, SchedulingPolicy, ShareWeight
from windfall.control import events
from windfall.control.commands.policies import (
    CreateSchedulingPolicy,
    DeleteSchedulingPolicy,
    UpdateSchedulingPolicy,
)
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.ids import EnvironmentName, QueueName
from windfall.jobs.states import RUNNABLE


@pytest.fixture
def world() -> TestWorld:
    return a_fair_world()


def refused(world: TestWorld, error: type[Exception], text: str, command: object) -> None:
    before = world.picture()
    with pytest.raises(error, match=text):
        world.happens(command)
    assert world.state == before


def test_a_policy_is_kept_and_replaced(world):
    world.happens(UpdateSchedulingPolicy(POLICY, a_policy(3600, 10, one=2.0), '{"x": 1}'))
    world.restarted()
    kept = world.state.policies[POLICY]
    assert (kept.fair_share, kept.document) == (a_policy(3600, 10, one=2.0), '{"x": 1}')


def test_a_name_is_taken_once_and_an_unknown_one_is_refused(world):
    refused(world, Conflict, "already exists", CreateSchedulingPolicy(SchedulingPolicy(POLICY, FairShare())))
    refused(world, NotFound, "policy none does not exist", DeleteSchedulingPolicy("none"))
    refused(world, NotFound, "policy none does not exist", UpdateSchedulingPolicy("none", FairShare(), "{}"))


def test_the_kind_of_a_policy_never_changes(world):
    refused(world, Invalid, "has a fairsharePolicy", UpdateSchedulingPolicy(POLICY, None, "{}"))
    world.happens(CreateSchedulingPolicy(SchedulingPolicy("quota")))
    refused(world, Invalid, "has a quotaSharePolicy", UpdateSchedulingPolicy("quota", FairShare(), "{}"))


@pytest.mark.parametrize(
    "names", [("a", "a"), ("a*", "a1"), ("a*", "a"), ("ab*", "a*"), ("b", "a*", "abc", "x")]
)
def test_identifiers_that_overlap_are_refused(world, names):
    policy = FairShare(weights=tuple(ShareWeight(name) for name in names))
    refused(world, Invalid, "overlap", CreateSchedulingPolicy(SchedulingPolicy("new", policy)))


def test_identifiers_that_only_look_alike_are_taken(world):
    names = ("a", "ab", "b*", "c1", "c2*", "abc")
    policy = FairShare(weights=tuple(ShareWeight(name) for name in names))
    assert world.happens(CreateSchedulingPolicy(SchedulingPolicy("new", policy))).fair_share == policy


def test_a_policy_in_use_cannot_be_deleted(world):
    refused(world, Conflict, "job queue queue uses it", DeleteSchedulingPolicy(POLICY))
    world.happens(events.UpdateJobQueue(QueueName("queue"), switch=Switch.DISABLED))
    world.happens(events.DeleteJobQueue(QueueName("queue")), DeleteSchedulingPolicy(POLICY))
    world.restarted()
    assert world.state.policies == {}


def test_a_queue_keeps_its_kind_of_policy(world):
    environments = (EnvironmentName("environment"),)
    world.happens(
        CreateSchedulingPolicy(SchedulingPolicy("other", a_policy(one=2.0))),
        CreateSchedulingPolicy(SchedulingPolicy("quota")),
        events.CreateJobQueue(JobQueue(QueueName("plain"), 1, environments)),
    )
    refused(world, Invalid, "can never have", events.UpdateJobQueue(QueueName("plain"), policy="other"))
    refused(world, Invalid, "not of the same kind", events.UpdateJobQueue(QueueName("queue"), policy="quota"))
    refused(world, NotFound, "does not exist", events.UpdateJobQueue(QueueName("queue"), policy="none"))
    missing = JobQueue(QueueName("new"), 1, environments, policy="none")
    refused(world, NotFound, "does not exist", events.CreateJobQueue(missing))
    assert world.happens(events.UpdateJobQueue(QueueName("queue"), policy="other")).policy == "other"
    assert world.happens(events.UpdateJobQueue(QueueName("queue"), priority=3)).policy == "other"


def test_tags_of_a_policy(world):
    world.happens(events.TagResource("scheduling-policy", POLICY, add={"team": "blue"}))
    world.restarted()
    assert world.state.policies[POLICY].tags == {"team": "blue"}


def test_a_fair_share_queue_needs_a_share_and_a_plain_one_refuses_it(world):
    refused(world, Invalid, "^shareIdentifier must be specified.$", a_job("x"))
    refused(world, Invalid, "letters and digits", a_job("x").under("no-hyphens"))
    refused(world, Invalid, "letters and digits", a_job("x").under("a" * 256))
    world.happens(events.CreateJobQueue(JobQueue(QueueName("plain"), 1, (EnvironmentName("environment"),))))
    aws = "Job with shareIdentifier or schedulingPriority can only be submitted to job queue with fair share"
    refused(world, Invalid, aws, a_job("x", "plain").under("a"))
    refused(world, Invalid, aws, a_job("x", "plain").under("", 1)._with(share=None))


def test_the_priority_is_the_override_or_the_definitions(world):
    world.happens(events.RegisterJobDefinition(a_definition("urgent", priority=7)))
    world.happens(events.CreateJobQueue(JobQueue(QueueName("plain"), 1, (EnvironmentName("environment"),))))
    world.submits(
        a_job("own").under("a").of("urgent"),
        a_job("over").under("a", 0).of("urgent"),
        a_job("plain", "plain").of("urgent"),
    )
    found = {name: world.job(name).submission.priority for name in ("own", "over", "plain")}
    # A queue without shares has nobody who could go first within one.
    assert found == {"own": 7, "over": 0, "plain": 0}


def test_the_501st_active_share_is_refused_until_one_has_been_idle_for_a_window(world):
    world.places = False
    for number in range(500):
        world.happens(a_job(f"j{number}").under(f"s{number}"))
    refused(world, Conflict, "Failed to create shareIdentifier late", a_job("x").under("late"))
    world.happens(a_job("more").under("s7"))
    world.happens(events.CancelJob("j499", "no need"))
    refused(world, Conflict, "500 active shares", a_job("x").under("late"))
    world.later(599_000)
    refused(world, Conflict, "wait until one has had no job for 600 s", a_job("x").under("late"))
    world.later(2_000)
    world.happens(a_job("x").under("late"))
    assert world.state_of("x") is RUNNABLE
