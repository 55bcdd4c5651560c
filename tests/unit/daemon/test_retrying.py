"""What is submitted when a job is run again, and with whose rights."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import a_busy_world, a_job
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Role
from windfall.aws_api.protocol.service import Call, Caller
from windfall.daemon.retrying import Retrying
from windfall.jobs.dependencies import Dependency
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
        return asyncio.run(Retrying(self).retry(call))


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
