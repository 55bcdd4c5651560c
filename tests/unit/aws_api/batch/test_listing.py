"""ListJobs: filters, pages, and children of arrays of which most have no record."""

from __future__ import annotations

import random

import pytest

from tests.unit.aws_api.batch.fakes import ARN, JOB_ID, NOW, a_job, a_queue, an_attempt
from windfall.control.ports import JobFilter
from windfall.jobs.states import JobState

QUEUE = "queue"


@pytest.fixture
def queued(world):
    world.store.all_queues[QUEUE] = a_queue()
    return world


def test_only_running_jobs_are_listed_unless_asked(queued):
    for number, state in enumerate(JobState):
        queued.store.all_jobs[f"j{number}"] = a_job(f"j{number}", state, created_at=NOW + number)
    client = queued.client()
    assert [job["status"] for job in client.list_jobs(jobQueue=QUEUE)["jobSummaryList"]] == ["RUNNING"]
    for state in JobState:
        found = client.list_jobs(jobQueue=f"{ARN}:job-queue/{QUEUE}", jobStatus=state.value)["jobSummaryList"]
        assert [job["status"] for job in found] == [state.value]


def test_a_summary_has_what_clients_read(queued):
    attempt = an_attempt(started_at=NOW + 1, stopped_at=NOW + 2, exit_code=1, reason="CannotPull")
    queued.store.all_jobs[JOB_ID] = a_job(
        state=JobState.FAILED,
        started_at=NOW + 1,
        stopped_at=NOW + 2,
        status_reason="Essential container in task exited",
        attempts=[attempt],
        terminated=True,
    )
    (summary,) = queued.client().list_jobs(jobQueue=QUEUE, jobStatus="FAILED")["jobSummaryList"]
    assert summary == {
        "jobArn": f"{ARN}:job/{JOB_ID}",
        "jobId": JOB_ID,
        "jobName": "night",
        "createdAt": NOW,
        "status": "FAILED",
        "statusReason": "Essential container in task exited",
        "startedAt": NOW + 1,
        "stoppedAt": NOW + 2,
        "container": {"exitCode": 1, "reason": "CannotPull"},
        "jobDefinition": f"{ARN}:job-definition/train:1",
        "isTerminated": True,
    }


def test_a_running_attempt_has_no_exit(queued):
    queued.store.all_jobs[JOB_ID] = a_job(state=JobState.RUNNING, attempts=[an_attempt(started_at=NOW)])
    (summary,) = queued.call("ListJobs", jobQueue=QUEUE)["jobSummaryList"]
    assert "container" not in summary


def test_jobs_are_listed_in_pages(queued):
    for number in range(25):
        queued.store.all_jobs[f"j{number}"] = a_job(f"j{number}", JobState.RUNNING, created_at=NOW + number)
    pages = (
        queued.client().get_paginator("list_jobs").paginate(jobQueue=QUEUE, PaginationConfig={"PageSize": 10})
    )
    ids = [[job["jobId"] for job in page["jobSummaryList"]] for page in pages]
    assert [len(page) for page in ids] == [10, 10, 5]
    assert [job_id for page in ids for job_id in page] == [f"j{number}" for number in reversed(range(25))]


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("JOB_NAME", "Night", {"name": "Night"}),
        ("JOB_NAME", "ni*", {"name": "ni", "name_is_prefix": True}),
        ("JOB_NAME", "*", {"name": "", "name_is_prefix": True}),
        ("JOB_DEFINITION", "train", {"definition": "train"}),
        ("JOB_DEFINITION", "tr*", {"definition": "tr", "definition_is_prefix": True}),
        ("JOB_DEFINITION", f"{ARN}:job-definition/train:3", {"definition": "train:3"}),
        ("BEFORE_CREATED_AT", "1700000000000", {"created_before": 1_700_000_000_000}),
        ("AFTER_CREATED_AT", "0", {"created_after": 0}),
    ],
)
def test_a_filter_looks_at_all_states(queued, name, value, wanted):
    queued.call("ListJobs", jobQueue=QUEUE, jobStatus="FAILED", filters=[{"name": name, "values": [value]}])
    assert queued.store.asked == [JobFilter(queue=QUEUE, **wanted)]


def test_a_filtered_page_has_at_most_a_hundred_jobs(queued):
    for number in range(150):
        queued.store.all_jobs[f"j{number}"] = a_job(f"j{number}")
    filters = [{"name": "JOB_NAME", "values": ["night"]}]
    assert (
        len(queued.call("ListJobs", jobQueue=QUEUE, filters=filters, maxResults=500)["jobSummaryList"]) == 100
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"jobQueue": None}, "Exactly one of jobQueue, arrayJobId and multiNodeJobId must be specified"),
        ({"arrayJobId": JOB_ID}, "Exactly one of jobQueue, arrayJobId and multiNodeJobId must be specified"),
        (
            {"multiNodeJobId": JOB_ID},
            "Exactly one of jobQueue, arrayJobId and multiNodeJobId must be specified",
        ),
        ({"filters": [{"name": "JOB_NAME", "values": ["a"]}] * 2}, "Only one filter can be used at a time"),
        ({"filters": [{"name": "JOB_NAME", "values": []}]}, "must have exactly one value, got 0"),
        ({"filters": [{"name": "STATUS", "values": ["a"]}]}, "Filter 'STATUS' is not valid"),
        ({"filters": [{}]}, "must have exactly one value"),
        ({"filters": [{"name": "AFTER_CREATED_AT", "values": ["today"]}]}, "number of milliseconds"),
        ({"filters": [{"name": "JOB_DEFINITION", "values": [f"{ARN}:job-definition/a*"]}]}, "An asterisk"),
        ({"maxResults": 0}, "maxResults must be between 1 and 1000"),
        ({"nextToken": "bm9uc2Vuc2U="}, "nextToken is not valid"),
        ({"jobQueue": "nope"}, f"{ARN}:job-queue/nope does not exist"),
    ],
)
def test_a_bad_question_is_refused(queued, changes, text):
    params = {"jobQueue": QUEUE, **changes}
    assert text in queued.refused("ListJobs", **{k: v for k, v in params.items() if v is not None})


def test_a_token_of_a_queue_says_nothing_about_an_array(queued):
    for number in range(3):
        queued.store.all_jobs[f"j{number}"] = a_job(f"j{number}", JobState.RUNNING)
    queued.store.all_jobs[JOB_ID] = a_job(state=JobState.PENDING, submission={"array_size": 2})
    token = queued.call("ListJobs", jobQueue=QUEUE, maxResults=1)["nextToken"]
    assert "nextToken is not valid" in queued.refused("ListJobs", arrayJobId=JOB_ID, nextToken=token)


def an_array(world, states: list[JobState | None], rest: JobState) -> None:
    """An array whose children have these states, None for those at rest."""
    counts = {state.value: 0 for state in JobState}
    submission = {"array_size": len(states)}
    for index, state in enumerate(states):
        counts[(state or rest).value] += 1
        if state is not None:
            child = a_job(f"{JOB_ID}:{index}", state, parent=JOB_ID, index=index, submission=submission)
            world.store.all_jobs[child.id] = child
    world.store.all_jobs[JOB_ID] = a_job(
        state=JobState.PENDING, rest=rest, summary=counts, submission=submission
    )


def indices(world, size: int, **params) -> list[int]:
    """The indices that all pages together list."""
    found, token = [], None
    while True:
        page = world.call("ListJobs", maxResults=size, **params, **({"nextToken": token} if token else {}))
        found += [job["arrayProperties"]["index"] for job in page["jobSummaryList"]]
        assert len(page["jobSummaryList"]) <= size
        token = page.get("nextToken")
        if token is None:
            return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_children_at_rest_and_recorded_ones_are_listed_by_index(world, seed, size):
    choice = random.Random(seed)
    states = [
        choice.choice([None, None, JobState.RUNNING, JobState.SUCCEEDED, JobState.RUNNABLE])
        for _ in range(60)
    ]
    an_array(world, states, JobState.RUNNABLE)
    for status in JobState:
        expected = [i for i, state in enumerate(states) if (state or JobState.RUNNABLE) is status]
        assert indices(world, size, arrayJobId=JOB_ID, jobStatus=status.value) == expected
    assert indices(world, size, arrayJobId=f"{ARN}:job/{JOB_ID}") == [
        i for i, state in enumerate(states) if state is JobState.RUNNING
    ]


@pytest.mark.parametrize(("before", "after"), [("RUNNABLE", "FAILED"), ("FAILED", "RUNNABLE")])
def test_a_rest_that_moves_between_two_pages_repeats_no_child(world, before, after):
    states = [None, JobState.RUNNABLE, None, JobState.RUNNABLE, None, JobState.RUNNABLE]
    an_array(world, states, JobState(before))
    page = world.call("ListJobs", arrayJobId=JOB_ID, jobStatus="RUNNABLE", maxResults=2)
    first = [job["arrayProperties"]["index"] for job in page["jobSummaryList"]]
    an_array(world, states, JobState(after))
    rest = world.call("ListJobs", arrayJobId=JOB_ID, jobStatus="RUNNABLE", nextToken=page["nextToken"])
    second = [job["arrayProperties"]["index"] for job in rest["jobSummaryList"]]
    assert (first, second) == (([0, 1], [3, 5]) if before == "RUNNABLE" else ([1, 3], [4, 5]))


def test_ten_thousand_children_are_listed_in_ten_pages(world):
    an_array(world, [JobState.SUCCEEDED] * 2_500 + [None] * 7_500, JobState.RUNNABLE)
    assert indices(world, 1000, arrayJobId=JOB_ID, jobStatus="RUNNABLE") == list(range(2_500, 10_000))
    # Each page re-reads at most what the store gives at once, never the whole array.
    assert sum(isinstance(question, JobFilter) for question in world.store.asked) <= 12


def test_filters_do_not_apply_to_children(world):
    an_array(world, [JobState.RUNNING, None], JobState.RUNNABLE)
    filters = [{"name": "JOB_NAME", "values": ["other"]}]
    assert indices(world, 10, arrayJobId=JOB_ID, filters=filters) == [0]


def test_what_is_no_array_has_no_children(world):
    world.store.all_jobs[JOB_ID] = a_job()
    for reference in (JOB_ID, "nope", "a b"):
        assert world.call("ListJobs", arrayJobId=reference) == {"jobSummaryList": []}
