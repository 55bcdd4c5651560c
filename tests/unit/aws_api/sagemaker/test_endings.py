"""SageMaker's words for how a training job ended, and for what the core has it say."""

from __future__ import annotations

import pytest

from tests.unit.aws_api.sagemaker.test_timeline import DONE, a_job, an_attempt
from windfall.aws_api.sagemaker.endings import (
    RECEIVED,
    SageMakerTexts,
    failure_reason,
    final_message,
    final_status,
    has_failed,
)
from windfall.jobs.attempts import UNSTORED, StopCause
from windfall.jobs.states import FAILED

BUDGET = "Budget of $1.00 spent (windfall:budget-usd)"


@pytest.mark.parametrize(
    ("cause", "reason", "secondary", "said"),
    [
        (StopCause.RUN_TIME, "MaxRuntimeExceeded", "MaxRuntimeExceeded", "exceeded MaxRuntimeInSeconds"),
        (StopCause.WAIT_TIME, "MaxWaitTimeExceeded", "MaxWaitTimeExceeded", "exceeded MaxWaitTimeInSeconds"),
        (StopCause.PENDING_TIME, "MaxPendingTimeExceeded", "Stopped", "within MaxPendingTimeInSeconds"),
        (StopCause.BUDGET, BUDGET, "Stopped", f"stopped: {BUDGET}"),
    ],
)
def test_a_limit_has_its_words_whether_the_record_has_the_cause_or_the_word_alone(
    cause, reason, secondary, said
):
    for job in (
        a_job(FAILED, stopped=3, status_reason=reason, ended_by=cause),
        a_job(FAILED, stopped=3, status_reason=reason),
    ):
        assert final_status(job) == ("Stopped", secondary)
        assert said in final_message(job)
        assert not has_failed(job)
        assert SageMakerTexts().training_ended(job) == f"{RECEIVED}{final_message(job)}"
    if cause is not StopCause.BUDGET:
        assert SageMakerTexts().limit_reached(cause) == reason


def test_a_failure_is_told_with_its_reason():
    job = a_job(FAILED, stopped=3, status_reason="no such engine")
    assert SageMakerTexts().training_ended(job) == f"{RECEIVED}ClientError: no such engine"
    assert SageMakerTexts().training_refused("no") == f"{RECEIVED}no"


@pytest.mark.parametrize("text", [f"{RECEIVED}AlgorithmError*", f"{RECEIVED.rstrip()}AlgorithmError*"])
def test_the_blank_after_the_prefix_does_not_count(text):
    assert SageMakerTexts().comparable(text) == "Received status from SageMaker:AlgorithmError*"
    assert SageMakerTexts().comparable("Host EC2*") == "Host EC2*"


def test_a_model_that_could_not_be_stored_is_told_as_sagemaker_does():
    done = an_attempt(**DONE, exit_code=0, reason=f"{UNSTORED}: s3://b/models: no such bucket")
    job = a_job(FAILED, done, stopped=70, status_reason="Essential container in task exited")
    assert has_failed(job)
    assert failure_reason(job) == "ClientError: Artifact upload failed: s3://b/models: no such bucket"
