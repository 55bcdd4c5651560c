"""A training job's life in SageMaker's words, from jobs made by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.unit.aws_api.sagemaker.world import NOW, a_request, a_training_job, an_attempt
from windfall.aws_api.sagemaker.documents import Document
from windfall.aws_api.sagemaker.endings import failure_reason, final_status
from windfall.aws_api.sagemaker.timeline import NO_CAPACITY, WaitingReason, stages
from windfall.aws_api.sagemaker.view import description, last_modified, summary
from windfall.jobs.attempts import GangEnd, Market, StopCause
from windfall.jobs.aws_texts import host_lost
from windfall.jobs.diagnosis import Diagnosis, FailureCause
from windfall.jobs.ids import InstanceId
from windfall.jobs.nodes import Nodes
from windfall.jobs.staging import Mark
from windfall.jobs.states import FAILED, RUNNABLE, RUNNING, STARTING, SUCCEEDED

NOTES = Document(a_request(), "ml.p3.2xlarge asks for 8 GPUs, this host has 1", "train.py runs with python3")
PLAIN = Document(a_request())
LOST = host_lost("i-1")
MARK = Mark("step-000100", NOW + 5000, NOW + 4000, 10, 100)


def told(job, document=PLAIN, waiting=None):
    return [
        (it.status, (it.since - NOW) / 1000, None if it.until is None else (it.until - NOW) / 1000)
        for it in stages(job, document, waiting)
    ]


def statuses(job, **more):
    return [it.status for it in stages(job, PLAIN, **more)]


def a_job(state, *attempts, stopped=None, **more):
    return a_training_job(
        state=state,
        attempts=list(attempts),
        stopped_at=None if stopped is None else NOW + stopped * 1000,
        **more,
    )


DONE = {"placed": 2, "prepared": 4, "started": 5, "exited": 60, "stopped": 70}
TAKEN = {"stop_cause": StopCause.INTERRUPTED, "status_reason": LOST, "exit_code": 143}


def test_an_uninterrupted_life():
    job = a_job(SUCCEEDED, an_attempt(**DONE, exit_code=0), stopped=70)
    assert told(job) == [
        ("Starting", 0, 2),
        ("Downloading", 2, 5),
        ("Training", 5, 60),
        ("Uploading", 60, 70),
        ("Completed", 70, 70),
    ]
    assert all(stage.message for stage in stages(job, PLAIN))
    assert final_status(job) == ("Completed", "Completed")


def test_one_interruption():
    first = an_attempt(1, placed=2, started=5, stop=20, exited=25, stopped=30, restored=None, **TAKEN)
    second = an_attempt(2, placed=40, started=45, exited=60, stopped=70, exit_code=0, restored=MARK)
    job = a_job(SUCCEEDED, first, second, stopped=70)
    assert told(job) == [
        ("Starting", 0, 2),
        ("Downloading", 2, 5),
        ("Training", 5, 25),
        ("Interrupted", 25, 30),
        ("Starting", 30, 40),
        ("Downloading", 40, 45),
        ("Training", 45, 60),
        ("Uploading", 60, 70),
        ("Completed", 70, 70),
    ]
    assert "Resumed from checkpoint step-000100" in stages(job, PLAIN)[6].message


def test_a_host_that_is_lost_without_notice_is_an_interruption_too():
    job = a_job(RUNNABLE, an_attempt(placed=1, started=2, stopped=9, status_reason=LOST))
    assert told(job)[-2:] == [("Interrupted", 9, 9), ("Starting", 9, None)]


def test_two_interruptions_and_then_the_deadline():
    first = an_attempt(1, placed=1, started=2, stopped=9, **TAKEN)
    second = an_attempt(2, placed=10, started=12, stop=20, stopped=25, stop_cause=StopCause.WAIT_TIME)
    job = a_job(FAILED, first, second, stopped=25, status_reason="MaxWaitTimeExceeded")
    assert statuses(job)[-3:] == ["Training", "Stopping", "MaxWaitTimeExceeded"]
    assert final_status(job) == ("Stopped", "MaxWaitTimeExceeded")
    running = a_job(RUNNING, first, an_attempt(2, placed=10, started=12))
    assert statuses(running)[-1] == "Training"


def test_a_deadline_before_there_was_capacity():
    job = a_job(FAILED, stopped=9, status_reason="MaxWaitTimeExceeded")
    assert statuses(job) == ["Starting", "Stopping", "MaxWaitTimeExceeded"]
    after_one = a_job(
        FAILED,
        an_attempt(placed=1, started=2, stopped=5, **TAKEN),
        stopped=9,
        status_reason="MaxWaitTimeExceeded",
    )
    assert statuses(after_one)[-4:] == ["Interrupted", "Starting", "Stopping", "MaxWaitTimeExceeded"]
    never = a_job(FAILED, stopped=9, status_reason="MaxPendingTimeExceeded")
    assert final_status(never) == ("Stopped", "Stopped")
    assert "MaxPendingTimeInSeconds" in stages(never, PLAIN)[-1].message


def test_the_running_time_is_over():
    attempt = an_attempt(placed=1, started=2, stop=20, stopped=25, stop_cause=StopCause.RUN_TIME)
    stopping = a_job(RUNNING, an_attempt(placed=1, started=2, stop=20, stop_cause=StopCause.RUN_TIME))
    assert told(stopping)[-1] == ("Stopping", 20, None)
    assert description(stopping, PLAIN, "arn", now=NOW, spot_factor=0.3)["TrainingJobStatus"] == "Stopping"
    job = a_job(FAILED, attempt, stopped=25, status_reason="MaxRuntimeExceeded")
    assert final_status(job) == ("Stopped", "MaxRuntimeExceeded")
    assert statuses(job)[-2:] == ["Stopping", "MaxRuntimeExceeded"]


def test_stopped_by_the_user_while_it_ran_and_while_it_waited():
    attempt = an_attempt(
        placed=1, started=2, stop=20, exited=21, stopped=25, stop_cause=StopCause.TERMINATED, exit_code=143
    )
    job = a_job(FAILED, attempt, stopped=25, terminated=True)
    assert told(job)[-3:] == [("Training", 2, 20), ("Stopping", 20, 25), ("Stopped", 25, 25)]
    waiting = a_job(FAILED, stopped=3, terminated=True, status_reason="Stopped by StopTrainingJob")
    assert statuses(waiting) == ["Starting", "Stopping", "Stopped"]


def test_a_spent_budget_stops_and_does_not_fail():
    reason = "Budget of $1 spent (windfall:budget-usd); its last checkpoint is kept"
    attempt = an_attempt(placed=1, started=2, stop=20, stopped=25, stop_cause=StopCause.BUDGET)
    job = a_job(FAILED, attempt, stopped=25, status_reason=reason)
    assert final_status(job) == ("Stopped", "Stopped")
    assert reason in stages(job, PLAIN)[-1].message
    waiting = a_job(FAILED, stopped=25, status_reason=reason)
    assert final_status(waiting) == ("Stopped", "Stopped")


def test_a_job_that_waits_says_why():
    job = a_job(RUNNABLE)
    assert stages(job, NOTES)[0].message == f"Starting the training job. Note: {NOTES.capacity_note}."
    assert stages(job, PLAIN, WaitingReason(for_capacity=True, text="x"))[0].message == NO_CAPACITY
    text = stages(job, PLAIN, WaitingReason(text="job y is ahead"))[0].message
    assert text == "Starting the training job. It waits: job y is ahead."


def test_a_retry_says_what_went_wrong():
    failed = an_attempt(placed=1, stopped=3, reason="InternalServerError: the courier broke")
    job = a_job(RUNNABLE, failed)
    assert statuses(job) == ["Starting", "Downloading", "Starting"]
    assert "the courier broke" in stages(job, PLAIN)[-1].message


def test_the_present_stage_says_what_is_being_done():
    restoring = an_attempt(placed=1, doing="restoring step-000100")
    assert stages(a_job(STARTING, restoring), PLAIN)[-1].message == (
        "Downloading input data (restoring step-000100)"
    )
    noticed = an_attempt(
        placed=1,
        started=2,
        stop=5,
        stop_cause=StopCause.INTERRUPTED,
        stop_words="spot interruption",
        alarm="the object store does not answer",
    )
    message = stages(a_job(RUNNING, noticed), NOTES)[-1].message
    assert message.startswith("Training image download completed. Training in progress. Note: train.py runs")
    assert "Its capacity is being taken away (spot interruption)." in message
    assert "the object store does not answer" in message
    boxed = an_attempt(placed=1, started=2, isolation="container (docker 28.2.2)")
    assert "Note:" not in stages(a_job(RUNNING, boxed), NOTES)[-1].message
    saving = an_attempt(
        placed=1, started=2, stop=5, exited=6, stop_cause=StopCause.INTERRUPTED, checkpoint=MARK
    )
    (*_, last) = stages(a_job(RUNNING, saving), PLAIN)
    assert (last.status, last.until) == ("Interrupted", None)
    assert last.message == "The capacity was taken away; what it had saved is kept."


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        ({"exit_code": 1}, "AlgorithmError: , exit code: 1"),
        (
            {"exit_code": 1, "isolation": "process (no sandbox: /opt/ml is /srv/a.ml)"},
            (
                "AlgorithmError: no sandbox can be made on this machine, so /opt/ml is not there (SAGEMAKER_BASE_DIR"
                " says where its files are); install bubblewrap, permit namespaces, or run the job in a container of"
                " its image, exit code: 1"
            ),
        ),
        ({"exit_code": 2, "failure": "no data"}, "AlgorithmError: no data, exit code: 2"),
        (
            {"exit_code": 137, "reason": "OutOfMemoryError: killed"},
            "AlgorithmError: OutOfMemoryError: killed, exit code: 137",
        ),
        (
            {"reason": "CannotPullContainerError: run windfall image add"},
            "ClientError: CannotPullContainerError: run windfall image add",
        ),
        ({"reason": "ClientError: no such bucket"}, "ClientError: no such bucket"),
        ({"reason": "InternalServerError: oh"}, "InternalServerError: oh"),
        (
            {"status_reason": LOST},
            f"InternalServerError: We encountered an internal error. Please try again. ({LOST})",
        ),
        ({}, "ClientError: the job could not be started"),
    ],
)
def test_whose_fault_it_was(attempt, reason):
    job = a_job(FAILED, an_attempt(placed=1, stopped=3, **attempt), stopped=3)
    assert failure_reason(job) == reason
    shown = description(job, PLAIN, "arn", now=NOW, spot_factor=0.3)
    assert (shown["TrainingJobStatus"], shown["FailureReason"]) == ("Failed", reason)


def test_a_long_failure_text_keeps_its_exit_code():
    job = a_job(FAILED, an_attempt(placed=1, stopped=3, exit_code=7, failure="x" * 5000), stopped=3)
    assert len(failure_reason(job)) == 1024
    assert failure_reason(job).endswith(", exit code: 7")


OUT_OF_MEMORY = Diagnosis(FailureCause.GPU_MEMORY, "torch.OutOfMemoryError: CUDA out of memory.")
KILLED = Diagnosis(FailureCause.HOST_MEMORY, "OutOfMemoryError: killed")


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        (
            {"exit_code": 1, "diagnosis": OUT_OF_MEMORY},
            "AlgorithmError: , exit code: 1 (gpu-out-of-memory: torch.OutOfMemoryError: CUDA out of memory.)",
        ),
        (
            {"exit_code": 137, "reason": "OutOfMemoryError: killed", "diagnosis": KILLED},
            "AlgorithmError: OutOfMemoryError: killed, exit code: 137 (host-out-of-memory)",
        ),
        (
            {"exit_code": 2, "failure": "no data", "diagnosis": OUT_OF_MEMORY},
            "AlgorithmError: no data, exit code: 2",
        ),
    ],
)
def test_what_the_agent_saw_follows_unless_the_job_itself_said_why(attempt, reason):
    assert failure_reason(a_job(FAILED, an_attempt(placed=1, stopped=3, **attempt), stopped=3)) == reason


@pytest.mark.parametrize("code", [7, None])
def test_a_long_reason_leaves_room_for_what_the_agent_saw(code):
    seen = Diagnosis(FailureCause.DISK_FULL, "e" * 300)
    failed = an_attempt(placed=1, stopped=3, exit_code=code, reason="x" * 5000, diagnosis=seen)
    reason = failure_reason(a_job(FAILED, failed, stopped=3))
    assert len(reason) == 1024
    assert reason.endswith(f" (disk-full: {'e' * 300})")


def test_a_failure_before_any_attempt_is_told_too():
    job = a_job(FAILED, stopped=3, status_reason="no such engine")
    assert failure_reason(job) == "ClientError: no such engine"
    assert statuses(job) == ["Starting", "Failed"]


def test_seconds_and_savings():
    taken = an_attempt(1, placed=0, started=5, stopped=100, **TAKEN)
    taken.usd_hour, taken.on_demand_usd_hour = 0.3, 1.0
    second = an_attempt(2, placed=200, started=201, exited=290, stopped=300, exit_code=0)
    second.usd_hour, second.on_demand_usd_hour = 0.5, 1.0
    job = a_job(SUCCEEDED, taken, second, stopped=300)
    shown = description(job, PLAIN, "arn", now=NOW + 9_999_000, spot_factor=0.3)
    assert (shown["TrainingTimeInSeconds"], shown["BillableTimeInSeconds"]) == (200, 80)
    assert shown["TrainingStartTime"] == NOW / 1000
    assert shown["TrainingEndTime"] == shown["LastModifiedTime"] == NOW / 1000 + 300


def test_a_job_that_never_started_has_no_seconds():
    shown = description(a_job(RUNNABLE), PLAIN, "arn", now=NOW, spot_factor=0.3)
    assert shown["TrainingTimeInSeconds"] is shown["BillableTimeInSeconds"] is None
    assert shown["TrainingStartTime"] is shown["TrainingEndTime"] is None


def test_a_summary_and_its_warm_pool():
    warm = Document(a_request(ResourceConfig={"KeepAlivePeriodInSeconds": 60}))
    running = a_job(RUNNING, an_attempt(placed=1, started=2))
    shown = summary(running, warm, "arn")
    assert (shown["TrainingJobStatus"], shown["SecondaryStatus"]) == ("InProgress", "Training")
    assert shown["WarmPoolStatus"] == {"Status": "InUse"}
    assert shown["LastModifiedTime"] == NOW / 1000 + 2
    ended = a_job(SUCCEEDED, an_attempt(**DONE, exit_code=0), stopped=70)
    assert summary(ended, warm, "arn")["WarmPoolStatus"]["Status"] == "Terminated"
    assert summary(ended, PLAIN, "arn")["WarmPoolStatus"] is None


TIMES = st.integers(0, 100)
CAUSES = st.sampled_from([None, *StopCause])


@st.composite
def lives(draw):
    """Jobs with stamps in any order, as clocks that are set back make them."""
    attempts = []
    for number in range(1, draw(st.integers(0, 3)) + 1):
        stamps = {
            word: draw(TIMES) for word in ("prepared", "started", "exited", "stop") if draw(st.booleans())
        }
        attempt = an_attempt(number, placed=draw(TIMES), stopped=draw(TIMES), market=Market.SPOT, **stamps)
        attempt.stop_cause = draw(CAUSES)
        attempt.exit_code = draw(st.sampled_from([None, 0, 1, 143]))
        attempt.status_reason = draw(st.sampled_from([None, LOST, "Essential container in task exited"]))
        attempts.append(attempt)
    state = draw(st.sampled_from([RUNNABLE, STARTING, RUNNING, SUCCEEDED, FAILED]))
    if attempts and state in (STARTING, RUNNING):
        attempts[-1].stopped_at = None
    job = a_job(state, *attempts, stopped=draw(TIMES) if state in (SUCCEEDED, FAILED) else None)
    job.status_reason = draw(st.sampled_from([None, "MaxRuntimeExceeded", "MaxWaitTimeExceeded", "x"]))
    job.terminated = draw(st.booleans())
    return job


@given(lives())
def test_any_life_is_a_chain_without_gaps_in_which_only_the_last_stage_is_open(job):
    found = stages(job, PLAIN)
    if job.state in (STARTING, RUNNING) and not job.attempts:
        return
    assert found[0].status == "Starting"
    assert all(stage.message for stage in found)
    for one, next_one in itertools.pairwise(found):
        assert one.until is not None
        assert one.since <= one.until <= next_one.since
    assert (found[-1].until is None) == (not job.finished)
    shown = description(job, PLAIN, "arn", now=NOW + 200_000, spot_factor=0.3)
    if job.attempts:
        assert 1 <= shown["BillableTimeInSeconds"] <= shown["TrainingTimeInSeconds"]
    assert (shown["FailureReason"] is not None) == (shown["TrainingJobStatus"] == "Failed")
    assert last_modified(job) >= job.created_at


def of_two_hosts(state, *attempts, ends=(), **more):
    """A job of two equal hosts, with the attempts of the first of them."""
    job = a_job(state, *attempts, **more)
    job.submission = replace(job.submission, nodes=Nodes(2, 0, peers=True, name_prefix="algo-"))
    job.gang_ends = list(ends)
    return job


def test_a_job_of_several_hosts_trains_until_the_last_of_them_has_ended():
    job = of_two_hosts(RUNNING, an_attempt(**DONE, exit_code=0))
    assert told(job)[-1] == ("Training", 5, None)
    end = GangEnd(1, InstanceId("i-1"), NOW + 99_000, NOW + 90_000, 0, None, "done")
    job = of_two_hosts(SUCCEEDED, an_attempt(**DONE, exit_code=0), ends=[end], stopped=99)
    assert told(job)[2:] == [("Training", 5, 90), ("Uploading", 90, 99), ("Completed", 99, 99)]
    described = description(job, PLAIN, "arn", now=NOW, spot_factor=0.3)
    # Not multiplied by the hosts.
    assert described["TrainingTimeInSeconds"] == 97


def test_an_interruption_of_another_host_is_the_jobs():
    end = GangEnd(1, InstanceId("i-2"), NOW + 80_000, status_reason=host_lost("i-2"), stop_words="drill")
    job = of_two_hosts(RUNNABLE, an_attempt(**DONE, exit_code=0), ends=[end])
    assert statuses(job) == ["Starting", "Downloading", "Training", "Interrupted", "Starting"]
