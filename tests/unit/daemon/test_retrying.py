"""What is submitted when a job is run again, and with whose rights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import a_busy_world, a_job
from tests.unit.aws_api.sagemaker.world import SPOT, a_training_job, the_service
from tests.unit.aws_api.sagemaker.world import World as TrainingWorld
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Role
from windfall.aws_api.protocol.service import Call, Caller
from windfall.daemon.retrying import Retrying
from windfall.jobs.dependencies import Dependency
from windfall.jobs.job import Job
from windfall.jobs.states import FAILED, SUCCEEDED, JobState
from windfall.jobs.submitters import Submitter

ADMIN = Caller("AKIAADMIN", Role.ADMIN, "default", "root-job")
MEMBER = Caller("AKIAMEMBER", Role.SUBMIT, "default")


class World:
    """The core and its store behind one gate."""

    def __init__(self) -> None:
        self.world = a_busy_world()
        self.executed: list[Any] = []

    def fails(self, job_id: str, **changes: Any) -> None:
        submitted = a_job(job_id)
        self.world.submits(replace(submitted, command=replace(submitted.command, **changes)))
        self.world.starts(job_id)
        self.world.exits(job_id, 1)

    async def read(self, question: Any) -> Any:
        known = self.world.store.jobs
        return question(SimpleNamespace(jobs=lambda ids: [known[one] for one in ids if one in known]))

    async def execute(self, command: Any) -> Any:
        self.executed.append(command)
        return self.world.happens(command)

    def retry(self, job_id: str, caller: Caller, **params: Any) -> Any:
        call = Call("windfall", "Retry", {"jobId": job_id, **params}, caller, "r", "1", 0)
        return asyncio.run(Retrying(self, the_service()).retry(call))


@pytest.mark.parametrize(
    ("caller", "was_admin", "is_admin"),
    [(ADMIN, True, True), (ADMIN, False, False), (MEMBER, True, False), (MEMBER, False, False)],
)
def test_rights_do_not_grow(caller, was_admin, is_admin):
    world = World()
    world.fails("a", submitter=Submitter("default", "AKIAOLD", was_admin))
    world.retry("a", caller)
    [command] = world.executed
    assert command.submitter.is_admin is is_admin
    assert command.submitter.key_id == caller.access_key_id
    assert command.submitter.user is None, "as before, not as the account of the administrator's key"


def test_an_administrator_runs_it_again_as_the_user_that_it_ran_as():
    world = World()
    world.fails("a", submitter=Submitter("default", "AKIAOLD", user="alice"))
    world.retry("a", ADMIN)
    [command] = world.executed
    assert (command.submitter.user, command.submitter.is_admin) == ("alice", False)


@pytest.mark.parametrize(("ran_as", "account"), [(None, "alice"), ("alice", None), ("alice", "bob")])
def test_a_command_is_not_run_again_as_another_user(ran_as, account):
    world = World()
    world.fails("a", submitter=Submitter("default", "AKIAOLD", user=ran_as))
    with pytest.raises(ApiError, match="a ran as another user than jobs of this key do"):
        world.retry("a", Caller("AKIAOTHER", Role.SUBMIT, "default", account))
    assert world.executed == []


def test_dependencies_are_left_out_and_the_rest_is_kept():
    world = World()
    world.world.submits(a_job("b"))
    world.world.starts("b")
    world.world.exits("b")
    kept = {"parameters": {"a": "1"}, "tags": {"team": "x", "windfall:retry-of": "older"}, "timeout_s": 99}
    world.fails("a", depends_on=(Dependency("b", None),), **kept)
    answer = world.retry("a", ADMIN)
    [command] = world.executed
    assert command.depends_on == ()
    assert command.parameters == {"a": "1"}
    assert command.timeout_s == 99
    assert command.tags == {"team": "x", "windfall:retry-of": "a"}
    assert command.definition == "work:1", "the same revision"
    assert answer["checkpointUri"] is None


@pytest.mark.parametrize("params", [{"jobId": 7}, {"jobId": ""}, {"jobId": None}])
def test_nonsense_is_refused(params):
    with pytest.raises(ApiError, match="jobId is required"):
        World().retry("a", ADMIN, **params)


@pytest.fixture
def trainings(tmp_path) -> Iterator[TrainingWorld]:
    made = TrainingWorld(tmp_path)
    yield made
    made.close()


def a_training(name: str, state: JobState, submitter: Submitter, **fields: Any) -> Job:
    job = a_training_job(name, state, **fields)
    job.submission = replace(job.submission, submitter=submitter)
    return job


def retry_training(world: TrainingWorld, name: str, caller: Caller = MEMBER, **params: Any) -> Any:
    call = Call("windfall", "Retry", {"jobId": f"training-{name}", **params}, caller, "eu-west-1", "1", 0)
    return asyncio.run(Retrying(world.gate, the_service()).retry(call))


MINE = Submitter("default", "AKIAOLD")


def test_a_training_is_created_again_under_the_next_free_name(trainings):
    tags = {"team": "x", "windfall:budget-usd": "5"}
    trainings.gate.keep(a_training("first", FAILED, MINE, tags=tags, request=SPOT))
    answer = retry_training(trainings, "first")
    command = trainings.last
    assert (answer["jobId"], answer["jobName"], command.name) == (
        "training-first-retry-2",
        "first-retry-2",
        "first-retry-2",
    )
    assert command.tags == {**tags, "windfall:retry-of": "training-first"}
    assert command.container.environment["TRAINING_JOB_NAME"] == "first-retry-2"
    assert command.staging.checkpoints.uri == "s3://bucket/checkpoints/first"
    trainings.gate.keep(a_training("first-retry-2", FAILED, MINE, request=SPOT))
    for name in ("first", "first-retry-2"):
        trainings.gate.keep(a_training("first-retry-3", FAILED, MINE, request=SPOT))
        assert retry_training(trainings, name)["jobName"] == f"first-retry-{4 if name == 'first' else 5}"
        trainings.gate.keep(a_training("first-retry-4", FAILED, MINE, request=SPOT))


def test_the_longest_name_has_room_for_its_number(trainings):
    name = "a" * 57 + "-bcdef"
    trainings.gate.keep(a_training(name, FAILED, MINE))
    assert retry_training(trainings, name)["jobName"] == "a" * 55 + "-retry-2"


def test_two_trainings_do_not_continue_the_same_checkpoints(trainings):
    trainings.gate.keep(a_training("first", FAILED, MINE, request=SPOT))
    retry_training(trainings, "first")
    with pytest.raises(
        ApiError, match="training-first-retry-2 is RUNNABLE and continues the same checkpoints"
    ):
        retry_training(trainings, "first")
    assert len(trainings.gate.commands) == 1


@pytest.mark.parametrize(
    ("caller", "owner", "expected"),
    [
        (ADMIN, Submitter("default", "AKIAOLD", True), ("AKIAADMIN", True, None)),
        (ADMIN, Submitter("default", "AKIAOLD", user="alice"), ("AKIAADMIN", False, "alice")),
        (MEMBER, Submitter("default", "AKIAOLD", True), ("AKIAMEMBER", False, None)),
    ],
)
def test_rights_of_a_training_do_not_grow(trainings, caller, owner, expected):
    trainings.gate.keep(a_training("first", FAILED, owner))
    retry_training(trainings, "first", caller)
    submitter = trainings.last.submitter
    assert (submitter.key_id, submitter.is_admin, submitter.user) == expected


def test_a_training_of_another_user_or_tenant_is_refused(trainings):
    trainings.gate.keep(a_training("alices", FAILED, Submitter("default", "AKIAOLD", user="alice")))
    trainings.gate.keep(a_training("theirs", FAILED, Submitter("vision", "AKIAOLD")))
    with pytest.raises(ApiError, match="ran as another user"):
        retry_training(trainings, "alices")
    with pytest.raises(ApiError, match="belongs to the tenant vision"):
        retry_training(trainings, "theirs", ADMIN)
    assert trainings.gate.commands == []


def test_a_training_that_succeeded_or_belongs_to_a_service_job_is_refused(trainings):
    trainings.gate.keep(a_training("done", SUCCEEDED, MINE))
    with pytest.raises(ApiError, match="`windfall retry --all training-done` runs it again"):
        retry_training(trainings, "done")
    assert retry_training(trainings, "done", all=True)["jobName"] == "done-retry-2"
    job = a_training("served", FAILED, MINE)
    job.submission = replace(job.submission, service_job="service-1")
    trainings.gate.keep(job)
    with pytest.raises(ApiError, match="created by the service job service-1: submit that one again"):
        retry_training(trainings, "served")
