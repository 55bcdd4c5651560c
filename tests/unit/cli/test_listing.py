"""Which job a text means, and which jobs `windfall jobs` shows."""

from __future__ import annotations

import json
import time

import pytest

from windfall.cli.errors import UnknownJob
from windfall.cli.jobs import remark
from windfall.cli.listing import job_id

ID = "0b5ae4ae-4b5c-4f5e-9d3c-2f6a1c0d9e11"
OTHER = "0b5ae4ae-ffff-4f5e-9d3c-2f6a1c0d9e12"
NAMED = "77777777-4b5c-4f5e-9d3c-2f6a1c0d9e13"


@pytest.fixture
def found(daemon):
    known = {"0b5": [OTHER, ID], "0b5ae4ae-4": [ID], "train": [NAMED, OTHER], "0b5a": [NAMED, ID]}
    daemon.answers["FindJobs"] = lambda asked: {"jobIds": known.get(asked["text"], [])}
    daemon.answers["describejobqueues"] = {"jobQueues": [{"jobQueueName": "q"}]}
    job = {"jobId": NAMED, "jobName": "train", "status": "RUNNING", "createdAt": 5}
    daemon.answers["listjobs"] = lambda asked: {
        "jobSummaryList": [job] if asked["jobStatus"] == "RUNNING" else []
    }
    return daemon


@pytest.mark.parametrize(
    ("text", "means"),
    [
        (ID, ID),
        (f"{ID}:12", f"{ID}:12"),
        (f"arn:aws:batch:us-east-1:123456789012:job/{ID}:3", f"{ID}:3"),
        ("0b5ae4ae-4", ID),
        ("0b5ae4ae-4:7", f"{ID}:7"),
        ("train", NAMED),
        ("train:2", f"{NAMED}:2"),
        ("0b5a", NAMED),
    ],
)
def test_a_job_by_each_of_its_names(found, client, text, means):
    assert job_id(client, text) == means


def test_whole_ids_are_not_searched_for(found, client):
    job_id(client, f"{ID}:1")
    assert found.asked == []


def test_a_prefix_of_several_jobs_is_refused(found, client):
    with pytest.raises(UnknownJob, match=f"such as {OTHER} and {ID}; give more of the id"):
        job_id(client, "0b5")


def test_an_unknown_job_gets_the_nearest_name(found, client):
    with pytest.raises(UnknownJob, match=rf"no job 'trian'; did you mean 'train' \({NAMED}\)\?"):
        job_id(client, "trian")
    with pytest.raises(UnknownJob, match="`windfall jobs --all` lists"):
        job_id(client, "zzzzzz")
    with pytest.raises(UnknownJob):
        job_id(client, "")


@pytest.fixture
def listed(daemon):
    now = time.time_ns() // 1_000_000
    jobs = {
        "RUNNING": [{"jobId": "r", "createdAt": now - 10**9, "startedAt": now - 10**9}],
        "SUCCEEDED": [
            {"jobId": "new", "createdAt": now - 5_000, "startedAt": now - 4_000, "stoppedAt": now - 3_000},
            {"jobId": "old", "createdAt": now - 10**10, "startedAt": now - 10**10, "stoppedAt": now - 10**9},
        ],
    }
    daemon.answers["describejobqueues"] = {"jobQueues": [{"jobQueueName": "q"}]}
    daemon.answers["listjobs"] = lambda asked: {
        "jobSummaryList": [
            {**job, "jobName": "n", "status": asked["jobStatus"]} for job in jobs.get(asked["jobStatus"], [])
        ]
    }
    return daemon


def ids(ran):
    return [job["jobId"] for job in json.loads(ran.out)["jobs"]]


def test_live_jobs_and_lately_finished_ones_newest_first(listed, windfall):
    assert ids(windfall("jobs", "--json")) == ["new", "r"]
    assert ids(windfall("jobs", "--json", "--all")) == ["new", "r", "old"]
    assert ids(windfall("jobs", "--json", "--all", "--limit", "1")) == ["new"]
    assert ids(windfall("jobs", "--json", "--state", "succeeded")) == ["new", "old"]


def test_the_table_says_that_there_is_more(listed, windfall):
    ran = windfall("jobs", "--all", "--limit", "2")
    assert len(ran.out.splitlines()) == 3
    assert "there are more than 2" in ran.err


def test_owners_are_shown_where_a_job_is_not_the_caller_s_own(listed, windfall):
    mine = {"owner": "me", "tenant": "default", "mine": True}
    listed.answers["Owners"] = {"owners": {"new": mine, "r": mine}}
    assert "OWNER" not in windfall("jobs").out
    hers = {"owner": "vision/ana\x1b[2J", "tenant": "vision", "mine": False}
    listed.answers["Owners"] = {"owners": {"new": mine, "r": hers}}
    shown = windfall("jobs").out
    assert "OWNER" in shown.splitlines()[0]
    assert "vision/ana" in shown
    assert "\x1b" not in shown
    assert [job["owner"] for job in json.loads(windfall("jobs", "--json").out)["jobs"]] == [
        "me",
        hers["owner"],
    ]


def test_more_jobs_than_one_question_names_are_asked_for_in_parts(daemon, windfall):
    many = [{"jobId": f"j{n}", "jobName": "n", "status": "RUNNING", "createdAt": n} for n in range(1_500)]
    daemon.answers["describejobqueues"] = {"jobQueues": [{"jobQueueName": "q"}]}
    daemon.answers["listjobs"] = lambda asked: {
        "jobSummaryList": many if asked["jobStatus"] == "RUNNING" else []
    }
    assert windfall("jobs", "--limit", "2000").code == 0
    assert [len(asked["jobIds"]) for asked in daemon.params_of("Owners")] == [1_000, 500]


def test_children_are_listed_by_index(daemon, windfall):
    daemon.answers["listjobs"] = lambda asked: {
        "jobSummaryList": [
            {"jobId": f"{ID}:{n}", "jobName": "n", "status": "FAILED", "arrayProperties": {"index": n}}
            for n in (10, 9)
        ]
    }
    assert ids(windfall("jobs", "--json", "--array", ID, "--state", "FAILED")) == [f"{ID}:9", f"{ID}:10"]
    assert daemon.params_of("listjobs") == [{"arrayJobId": ID, "jobStatus": "FAILED", "maxResults": 51}]


def test_an_unknown_queue_names_those_there_are(listed, windfall):
    ran = windfall("jobs", "--queue", "nope")
    assert (ran.code, ran.err) == (1, "windfall: there is no queue 'nope'; there are: q\n")


@pytest.mark.parametrize(
    ("job", "text"),
    [
        ({"status": "SUCCEEDED", "statusReason": "Essential container in task exited"}, ""),
        ({"status": "FAILED", "container": {"exitCode": 3}, "statusReason": "x"}, "exit code 3"),
        (
            {"status": "FAILED", "container": {"exitCode": 137, "reason": "OutOfMemoryError"}},
            "OutOfMemoryError",
        ),
        (
            {
                "status": "FAILED",
                "isTerminated": True,
                "statusReason": "enough",
                "container": {"exitCode": 143},
            },
            "enough",
        ),
        (
            {
                "status": "PENDING",
                "arrayProperties": {"size": 1000, "statusSummary": {"SUCCEEDED": 9, "FAILED": 2}},
            },
            "11/1,000 done, 2 failed",
        ),
        ({"status": "RUNNABLE", "statusReason": "CAPACITY"}, "CAPACITY"),
    ],
)
def test_the_note_is_what_is_most_worth_knowing(job, text):
    assert remark(job) == text
