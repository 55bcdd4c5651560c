"""What the page asks about jobs: bounded, checked, and shared where it is expensive."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from tests.builders import a_busy_world, a_job
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Role
from windfall.aws_api.protocol.service import Call, Caller
from windfall.daemon.page_questions import BUCKETS_MAX, IDS_MAX, ROWS_MAX, WHYS_MAX, PageQuestions
from windfall.jobs.states import FAILED, SUCCEEDED
from windfall.jobs.tenants import View
from windfall.store.errors import BadPosition

CALLER = Caller("KEY", Role.READ, "default")
HOUR = 3_600_000


class Place:
    """One job in a world, and a store that counts what it is asked."""

    def __init__(self):
        self.world = a_busy_world().submits(a_job("a"), a_job("b").array(3)).starts("a")
        self.view = View("default", sees_all=True)
        self.counted = 0
        self.now = 1_000 * HOUR + 60_000
        owners = SimpleNamespace(named=self._named)
        questions = SimpleNamespace(why=self._why)
        self.page = PageQuestions(self, questions, owners, self, lambda: self.now, {})

    async def _named(self, _):
        return lambda _submitter: "ann"

    async def _why(self, call):
        if call.params["jobId"] == "none":
            raise ApiError("NotFound", "There is none.", 404)
        return {"jobId": call.params["jobId"]}

    async def read(self, question):
        return question(self)

    async def inspect(self, question):
        return question(self.world.state, {}, self.world.now)

    def jobs(self, ids):
        return [self.world.job(job_id) for job_id in ids if job_id in self.world.store.jobs]

    def list_jobs(self, wanted, limit, after):
        if after == "bad":
            raise BadPosition(after)
        self.wanted = (wanted, limit)
        return SimpleNamespace(jobs=[self.world.job("a")], next_after="more")

    def counts(self):
        return {("q", SUCCEEDED): 2, ("r", SUCCEEDED): 3, ("r", FAILED): 1}

    def submitted(self, span, step_ms, queue=None):
        self.counted += 1
        return {(0, SUCCEEDED): 2, (3, FAILED): 1}

    def ask(self, operation, **params):
        call = Call("windfall", operation, params, CALLER, "r", "1", 0)
        return asyncio.run(getattr(self.page, operation)(call))


@pytest.fixture
def place():
    return Place()


def test_a_list_says_what_is_wanted_in_the_words_of_the_store(place):
    answer = place.ask("list_jobs", queue="q", states=["FAILED"], name="tr*", sinceAt=1, untilAt=9, limit=5)
    wanted, limit = place.wanted
    assert (wanted.queue, wanted.states, wanted.name, wanted.name_is_prefix) == ("q", (FAILED,), "tr", True)
    assert (wanted.created_after, wanted.created_before, limit) == (1, 9, 5)
    assert (answer["rows"][0]["jobId"], answer["rows"][0]["owner"], answer["next"]) == ("a", "ann", "more")


def test_counts_are_given_for_queues_and_all_together(place):
    answer = place.ask("counts")
    assert answer["counts"] == {"q": {"SUCCEEDED": 2}, "r": {"SUCCEEDED": 3, "FAILED": 1}}
    assert answer["total"] == {"SUCCEEDED": 5, "FAILED": 1}


def test_pages_that_ask_for_the_same_histogram_share_one(place):
    first = place.ask("submissions", sinceAt=place.now - 50 * HOUR)
    assert first["stepMs"] == HOUR
    assert [bucket["counts"] for bucket in first["buckets"]] == [{"SUCCEEDED": 2}, {"FAILED": 1}]
    assert first["buckets"][1]["at"] - first["fromAt"] == 3 * HOUR
    place.now += 5_000
    assert place.ask("submissions", sinceAt=place.now - 50 * HOUR - 5_000) == first
    assert place.counted == 1
    place.now += 6_000
    place.ask("submissions", sinceAt=place.now - 50 * HOUR - 11_000)
    assert place.counted == 2


def test_one_job_in_one_look(place):
    answer = place.ask("job_page", jobId="a")
    assert (answer["row"]["jobId"], answer["why"]["jobId"], len(answer["attempts"])) == ("a", "a", 1)
    assert place.ask("whys", jobIds=["a", "none", "a"])["answers"] == [{"jobId": "a"}]
    assert [row["jobId"] for row in place.ask("rows", jobIds=["a", "none"])["rows"]] == ["a"]
    assert len(place.ask("array_map", jobId="b")["map"]) == 3


@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("list_jobs", {"states": ["DONE"]}),
        ("list_jobs", {"limit": ROWS_MAX + 1}),
        ("list_jobs", {"sinceAt": "yesterday"}),
        ("list_jobs", {"after": "bad"}),
        ("rows", {}),
        ("rows", {"jobIds": ["a"] * (IDS_MAX + 1)}),
        ("whys", {"jobIds": [f"{n}" for n in range(WHYS_MAX + 1)]}),
        ("submissions", {}),
        ("submissions", {"sinceAt": 5, "untilAt": 5}),
        ("submissions", {"sinceAt": 5, "buckets": BUCKETS_MAX + 1}),
        ("array_map", {"jobId": "a"}),
        ("job_page", {"jobId": "none"}),
        ("marks", {}),
    ],
)
def test_what_cannot_be_meant_is_refused(place, operation, params):
    with pytest.raises(ApiError):
        place.ask(operation, **params)
