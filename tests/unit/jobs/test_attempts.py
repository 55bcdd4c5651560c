"""How the end of an attempt is read, and which tries count."""

from __future__ import annotations

from typing import Any

import pytest

from windfall.jobs.attempts import Attempt
from windfall.jobs.aws_texts import EXITED, host_lost
from windfall.jobs.ids import (
    AttemptToken,
    DefinitionKey,
    EnvironmentName,
    InstanceId,
    JobId,
    QueueName,
    TaskId,
    attempt_token,
)
from windfall.jobs.job import Job, Submission
from windfall.jobs.resources import Resources
from windfall.jobs.retry import ONCE
from windfall.jobs.states import RUNNABLE

INSTANCE = InstanceId("i-1")


def an_attempt(**fields: Any) -> Attempt:
    names = (AttemptToken("a#1"), TaskId("t"), EnvironmentName("e"), INSTANCE)
    return Attempt(1, *names, (), "stream", 0, **fields)


def test_an_attempt_succeeds_by_exit_code_0_alone():
    assert an_attempt(exit_code=0).succeeded
    assert not an_attempt(exit_code=0, reason="OutOfMemoryError").succeeded
    assert not an_attempt(exit_code=143).succeeded


@pytest.mark.parametrize(
    ("reason", "stopped_at", "interrupted"),
    [(host_lost(INSTANCE), 5, True), (host_lost(INSTANCE), None, False), (EXITED, 5, False)],
)
def test_an_interruption_is_an_end_by_a_lost_host(reason, stopped_at, interrupted):
    assert an_attempt(status_reason=reason, stopped_at=stopped_at).interrupted is interrupted


@pytest.mark.parametrize(("free", "charged"), [(False, 3), (True, 1)])
def test_interruptions_count_unless_they_are_free(free, charged):
    submission = Submission(
        "name",
        QueueName("q"),
        DefinitionKey("d:1"),
        Resources(1, 1),
        ONCE,
        free_interruptions=free,
    )
    lost = an_attempt(status_reason=host_lost(INSTANCE), stopped_at=5)
    job = Job(JobId("a"), submission, RUNNABLE, 0, attempts=[lost, lost, an_attempt()])
    assert job.charged_attempts == charged


def test_tokens_of_jobs_that_share_an_id_differ_by_birth():
    assert attempt_token(JobId("a"), 2) == "a#2"
    assert attempt_token(JobId("a"), 2, 77) == "a#2.77"
