"""Which user an attempt runs as, and whom a machine that cannot keep tenants apart refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import Submitted, TestWorld, a_busy_world, a_job, a_machine
from tests.unit.control.trainings import a_training
from windfall.control.instructions import StartAttempt
from windfall.control.job_users import ANY_USER
from windfall.jobs.containers import Runtime
from windfall.jobs.errors import Invalid
from windfall.jobs.job_users import RunAs, TenantUser, UserRange
from windfall.jobs.states import FAILED
from windfall.jobs.submitters import Submitter

ROOT = {ANY_USER: "yes", "isolation": "process"}
SANDBOX = {"isolation": "process, bubblewrap, cgroup v2"}
NEITHER = {"isolation": "process"}
RANGE = UserRange(200_000, 200_002)


def a_shared_world(facts: dict[str, str], uids: UserRange | None = None, **rules: Any) -> TestWorld:
    world = a_busy_world(replace(a_machine(), facts=facts), job_users=uids, **rules)
    world.state.tenants = ("default", "vision")
    return world


def by(tenant: str, job_id: str = "one", user: str | None = None) -> Submitted:
    job = a_job(job_id)
    return Submitted(replace(job.command, submitter=Submitter(tenant, "KEY", user=user)))


def run_as(world: TestWorld, job: Submitted) -> RunAs | None:
    world.submits(job)
    (asked,) = world.asked_for(StartAttempt)
    found: RunAs | None = asked.run_as
    return found


def refused(world: TestWorld, words: str, command: object) -> None:
    before = world.picture()
    with pytest.raises(Invalid, match=words):
        world.happens(command)
    assert world.state == before


def test_each_tenant_has_a_uid_and_the_default_one_the_job_user():
    world = a_shared_world(ROOT, RANGE)
    assert run_as(world, by("vision", "a")) == RunAs(uid=200_000)
    assert run_as(world, by("speech", "b")) == RunAs(uid=200_001)
    assert run_as(world, by("vision", "c")) == RunAs(uid=200_000)
    assert run_as(world, by("default", "d")) is None


def test_a_range_that_was_asked_for_is_for_the_default_tenant_too():
    world = a_shared_world(ROOT, replace(RANGE, for_default=True))
    assert run_as(world, by("default")) == RunAs(uid=200_000)


def test_a_uid_is_kept_over_restarts_and_never_given_to_another_tenant():
    world = a_shared_world(ROOT, RANGE)
    assert run_as(world, by("vision", "a")) == RunAs(uid=200_000)
    world.restarted()
    world.state.tenants = ("default", "speech")  # The keys of vision are gone.
    assert run_as(world, by("speech", "b")) == RunAs(uid=200_001)
    world.state.tenants = ("default", "vision")
    assert run_as(world, by("vision", "c")) == RunAs(uid=200_000)


def test_with_another_range_a_tenant_gets_another_uid_and_has_the_old_one_again_with_the_old_range():
    world = a_shared_world(ROOT, RANGE)
    run_as(world, by("vision", "a"))
    rules = world.state.rules
    world.state.rules = replace(rules, job_users=UserRange(300_000, 300_000))
    world.restarted()
    world.state.tenants = ("default", "vision", "speech")
    assert run_as(world, by("vision", "b")) == RunAs(uid=300_000)
    world.state.rules = rules
    assert run_as(world, by("speech", "c")) == RunAs(uid=200_001)
    assert run_as(world, by("vision", "d")) == RunAs(uid=200_000)


def test_when_all_uids_are_given_away_a_new_tenant_is_refused_and_the_others_are_not():
    world = a_shared_world(ROOT, UserRange(200_000, 200_000))
    run_as(world, by("vision", "a"))
    refused(
        world, r"all 1 uids of --job-users 200000-200000 belong to other tenants", by("speech", "b").command
    )
    refused(world, "belong to other tenants", a_training("t", submitter=Submitter("speech", is_admin=True)))
    assert run_as(world, by("vision", "c")) == RunAs(uid=200_000)


def test_a_mapped_key_has_its_account_and_takes_no_uid():
    world = a_shared_world(ROOT, RANGE)
    assert run_as(world, by("vision", "a", user="alice")) == RunAs(account="alice")
    assert world.state.job_users.owners == {}
    assert run_as(world, by("default", "b", user="bob")) == RunAs(account="bob")


def test_the_children_of_an_array_have_the_user_of_its_key():
    world = a_shared_world(ROOT, RANGE)
    world.submits(by("vision").array(3))
    assert [start.run_as for start in world.asked_for(StartAttempt)] == [RunAs(uid=200_000)] * 3


def test_a_job_that_waited_through_a_change_of_settings_gets_its_uid_when_it_starts():
    world = a_shared_world(SANDBOX)
    world.places = False
    world.submits(by("vision"))
    world.state.rules = replace(world.state.rules, job_users=RANGE)
    world.restarted()
    world.places = True
    world.happens()
    (asked,) = world.asked_for(StartAttempt)
    assert asked.run_as == RunAs(uid=200_000)
    assert [it for it in world.store.load().declared if isinstance(it, TenantUser)] == [
        TenantUser(200_000, "vision")
    ]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            NEITHER,
            "vision cannot be kept apart from those of tenant default: .* Install bubblewrap, or run the daemon",
        ),
        (ROOT, "tenants have no users of their own. Start the daemon with --job-users FIRST-LAST"),
    ],
)
def test_where_nothing_keeps_tenants_apart_only_the_first_is_served(facts, words):
    world = a_shared_world(facts)
    refused(world, words, by("vision", "a").command)
    refused(world, words, a_training("t", submitter=Submitter("vision", is_admin=True)))
    assert run_as(world, by("default", "b")) is None


def test_the_only_tenant_is_the_first_whatever_its_name():
    world = a_shared_world(NEITHER)
    world.state.tenants = ("vision",)
    assert run_as(world, by("vision")) is None


def test_a_sandbox_keeps_tenants_apart_also_when_the_key_of_a_waiting_job_is_gone():
    world = a_shared_world(SANDBOX)
    world.state.tenants = ("default",)
    world.submits(by("vision", "a"))
    (asked,) = world.asked_for(StartAttempt)
    assert asked.shared_with_strangers
    world.submits(by("default", "b"))
    (asked,) = world.asked_for(StartAttempt)
    assert not asked.shared_with_strangers


def test_a_container_needs_neither():
    world = a_shared_world({**NEITHER, "containers": "docker 28"}, runtime=Runtime.CONTAINER)
    world.submits(by("vision"))
    (asked,) = world.asked_for(StartAttempt)
    assert asked.container is not None


def test_what_was_taken_while_there_was_a_sandbox_is_refused_at_its_start_without_one():
    world = a_shared_world(SANDBOX)
    world.places = False
    world.submits(by("vision"))
    world.places = True
    world.machine = replace(world.machine, facts=NEITHER)
    world.connected()
    assert world.state_of("one") is FAILED
    reason = world.job("one").attempts[-1].reason or ""
    assert reason.startswith("CannotStartContainerError: Jobs of tenant vision cannot be kept apart")
