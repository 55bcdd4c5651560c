"""The read side of the daemon: which jobs a question is about, over a real store."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from tests.unit.accounting.builders import START, a_job, a_mark, an_attempt, an_interrupted, at
from windfall.accounting.prices import Rates
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Role, create_key, revoke_key
from windfall.aws_api.protocol.request import HttpRequest
from windfall.aws_api.protocol.service import Call, Caller, PlainService
from windfall.control.changes import Changes
from windfall.daemon.costs import CostQueries, Owners
from windfall.jobs.ids import JobId, QueueName, child_id
from windfall.jobs.job import Job
from windfall.jobs.states import JobState
from windfall.jobs.submitters import Submitter
from windfall.store.opening import open_store
from windfall.views.costs import ORDINARY, Bounds

HOUR = 3600
DAY = 24 * HOUR
UNPRICED = Rates()


class Reader:
    """Asks the store as the control loop does, off the event loop."""

    def __init__(self, store):
        self.store = store

    async def read(self, question):
        return await asyncio.to_thread(question, self.store)


@pytest.fixture
def store(tmp_path):
    opened = open_store(f"sqlite:///{tmp_path / 'windfall.db'}")
    yield opened
    opened.close()


@pytest.fixture
def ask(store):
    """`ask(by="day")` calls the operation as the service does, JSON in and JSON out."""

    def asked(now=10 * HOUR, rates=UNPRICED, bounds=ORDINARY, **params):
        costs = CostQueries(Reader(store), rates, lambda: at(now), bounds)
        service = PlainService("windfall", {"Cost": costs.cost}, {"Cost": Role.READ})
        request = HttpRequest("POST", "/windfall/v1/Cost", "", {}, json.dumps(params).encode())
        answer = service.answer(request, Caller("key", Role.READ, "default"), "us-east-1", "request")
        return json.loads(asyncio.run(answer).body)

    return asked


def kept(store, *jobs):
    store.commit(Changes(jobs={job.id: job for job in jobs}))
    return jobs


def a_finished(job_id, queue="queue", tags=None, created=0, hours=1, **attempt):
    ended = {"usd_hour": 1.0, "on_demand_usd_hour": 4.0} | attempt
    job = a_job(
        an_interrupted(placed=created, started=created, stopped=created + hours * HOUR, **ended),
        stopped=created + hours * HOUR,
        id=job_id,
        queue=QueueName(queue),
        tags=tags or {},
    )
    job.created_at = at(created)
    return job


def by_key(answer):
    return {row["key"]: row["ms"]["lost"] / 1000 / HOUR for row in answer["rows"]}


def test_sums_by_queue_dearest_first_add_up_to_the_total(store, ask):
    kept(store, a_finished("a", "small"), a_finished("b", "large", hours=3), a_finished("c", "small"))
    answer = ask(by="queue")
    assert [(row["key"], row["jobs"], row["paidUsd"]) for row in answer["rows"]] == [
        ("large", 1, 3.0),
        ("small", 2, 2.0),
    ]
    total = answer["total"]
    assert (total["jobs"], total["paidUsd"], total["onDemandUsd"], total["savedPercent"]) == (
        3,
        5.0,
        20.0,
        75.0,
    )
    for category in total["ms"]:
        assert sum(row["ms"][category] for row in answer["rows"]) == total["ms"][category]
    assert not answer["truncated"]


def test_queue_is_what_is_meant_without_a_word(store, ask):
    kept(store, a_finished("a", "q"))
    assert by_key(ask()) == {"q": 1}


def test_sums_by_tag_and_those_without_it(store, ask):
    kept(
        store,
        a_finished("a", tags={"team": "vision"}),
        a_finished("b", hours=2),
        a_finished("c", tags={"x": "y"}),
    )
    assert by_key(ask(by="tag:team")) == {"vision": 1, None: 3}


def test_sums_by_job_have_names(store, ask):
    kept(store, a_finished("a"), a_finished("b", hours=2))
    assert [(row["key"], row["name"]) for row in ask(by="job")["rows"]] == [("b", "train"), ("a", "train")]


def test_sums_by_day_put_an_attempt_on_the_day_of_its_place(store, ask):
    first = an_interrupted(placed=0, started=0, stopped=HOUR, usd_hour=1.0)
    second = an_interrupted(2, placed=DAY, started=DAY, stopped=DAY + 2 * HOUR, usd_hour=1.0)
    kept(store, a_job(first, second, stopped=DAY + 2 * HOUR))
    answer = ask(by="day", now=2 * DAY)
    assert by_key(answer) == {"2023-11-14": 1, "2023-11-15": 2}
    assert answer["rows"][1]["ms"]["waiting"] == (DAY - HOUR) * 1000


def test_only_what_was_created_since_or_is_live(store, ask):
    live = a_job(an_attempt(placed=0, started=0), id="live")
    kept(
        store,
        a_finished("old"),
        a_finished("edge", created=2 * HOUR),
        a_finished("new", created=3 * HOUR),
        live,
    )
    answer = ask(by="job", sinceAt=at(2 * HOUR))
    assert {row["key"] for row in answer["rows"]} == {"live", "edge", "new"}
    assert {row["key"] for row in ask(by="job")["rows"]} == {"live", "old", "edge", "new"}


def test_arrays_are_their_children(store, ask):
    parent = a_job(id="array", array_size=3)
    children = []
    for index in range(2):
        attempt = an_attempt(placed=0, started=0, stopped=HOUR, exit_code=0, usd_hour=1.0)
        children.append(
            Job(
                child_id(parent.id, index),
                parent.submission,
                JobState.SUCCEEDED,
                START,
                parent=parent.id,
                index=index,
                stopped_at=at(HOUR),
                attempts=[attempt],
            )
        )
    kept(store, parent, *children)
    answer = ask(by="job")
    assert [(row["key"], row["jobs"], row["paidUsd"]) for row in answer["rows"]] == [("array", 2, 2.0)]
    one = ask(jobId="array")
    assert [row["key"] for row in one["rows"]] == ["array:0", "array:1"]
    assert one["total"]["ms"]["useful"] == 2 * HOUR * 1000
    assert ask(jobId="array:1")["total"]["paidUsd"] == 1.0


def test_pages_are_read_to_the_end(store, ask):
    kept(store, *(a_finished(f"job-{number}") for number in range(11)))
    assert ask(bounds=Bounds(page=3))["total"]["jobs"] == 11


def test_an_answer_that_is_too_long_says_so_and_still_adds_up(store, ask):
    kept(store, *(a_finished(f"job-{number}") for number in range(9)))
    answer = ask(by="job", bounds=Bounds(page=2, jobs=4, rows=1))
    assert answer["truncated"]
    assert answer["total"]["jobs"] == 4
    assert [row["name"] for row in answer["rows"]] == ["train", "3 others"]
    assert sum(row["paidUsd"] for row in answer["rows"]) == answer["total"]["paidUsd"] == 4.0


def test_the_ledger_of_one_job(store, ask):
    first = an_interrupted(
        placed=60,
        started=70,
        stopped=HOUR,
        instance_type="p3.2xlarge",
        usd_hour=1.0,
        on_demand_usd_hour=4.0,
        checkpoint=a_mark(1870),
    )
    kept(store, a_job(first, budget_usd=2.5))
    answer = ask(now=HOUR + 40, jobId="job")
    attempt, waiting = answer["attempts"]
    assert attempt["instanceType"] == "p3.2xlarge"
    assert attempt["ms"] == {
        "useful": 1_800_000,
        "checkpoint": 0,
        "lost": 1_730_000,
        "startUp": 10_000,
        "idle": 0,
        "waiting": 60_000,
    }
    assert (waiting["number"], waiting["ms"]["waiting"]) == (None, 40_000)
    assert sum(answer["total"]["ms"].values()) == (HOUR + 40) * 1000
    assert (answer["trainingSeconds"], answer["billableSeconds"]) == (3540, 885)
    assert answer["savingsPercent"] == pytest.approx(75.0)
    assert answer["budgetUsd"] == 2.5


def test_your_own_rates_price_what_has_no_price(store, ask):
    kept(store, a_finished("a", usd_hour=None, on_demand_usd_hour=None))
    assert ask()["total"]["unpricedMs"] == HOUR * 1000
    total = ask(rates=Rates(usd_vcpu_hour=0.5, spot_factor=0.25))["total"]
    assert (total["paidUsd"], total["onDemandUsd"], total["unpricedMs"]) == (0.5, 2.0, 0)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"by": "colour"}, "by must be queue, user, tenant, day, job or tag:NAME"),
        ({"by": "tag:"}, "by must be"),
        ({"by": 3}, "by must be"),
        ({"sinceAt": "yesterday"}, "sinceAt must be a time"),
        ({"sinceAt": True}, "sinceAt must be a time"),
        ({"jobId": 7}, "jobId is required"),
        ({"jobId": ""}, "jobId is required"),
        ({"jobId": JobId("nobody")}, "There is no job nobody that has run"),
    ],
)
def test_a_question_that_cannot_be_meant_is_refused(store, ask, params, text):
    with pytest.raises(ApiError, match=text):
        ask(**params)


def a_finished_of(job_id, submitter):
    job = a_finished(job_id)
    job.submission = replace(job.submission, submitter=submitter)
    return job


def test_sums_by_owner_use_the_name_of_the_key_else_its_account_else_its_id(store, tmp_path):
    keys = tmp_path / "keys.json"
    alice = create_key(keys, role=Role.SUBMIT, tenant="vision", now=1, name="alice").access_key_id
    kept(
        store,
        a_finished_of("a", Submitter("vision", alice)),
        a_finished_of("b", Submitter("vision", alice, user="nobody")),
        a_finished_of("c", Submitter("default", "WNDF1", user="bob")),
        a_finished_of("d", Submitter("default", "WNDF2")),
        a_finished_of("e", Submitter()),
    )
    revoke_key(keys, alice, now=2)
    reader = Reader(store)
    costs = CostQueries(reader, UNPRICED, lambda: at(10 * HOUR), owners=Owners(reader, keys))

    def summed(by, role):
        call = Call("windfall", "Cost", {"by": by}, Caller("key", role, "default"), "us-east-1", "request", 0)
        return by_key(asyncio.run(costs.cost(call)))

    assert summed("user", Role.ADMIN) == {"vision/alice": 2, "bob": 1, "WNDF2": 1, None: 1}
    assert summed("user", Role.READ) == {"alice": 2, "bob": 1, "WNDF2": 1, None: 1}
    assert summed("tenant", Role.ADMIN) == {"vision": 2, "default": 3}


@pytest.mark.parametrize("ids", [None, "a", [1], {"a": 1}, ["a"] * 10_001])
def test_owners_of_what_is_no_list_of_jobs_are_refused(store, tmp_path, ids):
    caller = Caller("key", Role.READ, "default")
    call = Call("windfall", "Owners", {"jobIds": ids}, caller, "us-east-1", "request", 0)
    with pytest.raises(ApiError, match="jobIds"):
        asyncio.run(Owners(Reader(store), tmp_path / "keys.json").list(call))
