"""Windows and searches of one log by byte position, over real files; their cost does not depend on the log's size."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from tests.builders import a_busy_world, a_job
from windfall.agent.attempt_files import AttemptDirectory
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Role
from windfall.aws_api.protocol.service import Call, Caller
from windfall.daemon.page_logs import LINES_MAX, WINDOW_BYTES, PageLogs

CALLER = Caller("AKIAREADER", Role.READ, "default")


class Place:
    """A job that has ended with one attempt, whose log a test writes."""

    def __init__(self, root):
        self.world = a_busy_world().submits(a_job("a")).starts("a").exits("a")
        self.job = self.world.job("a")
        self.files = AttemptDirectory(root)
        self.path = root / f"{self.job.attempts[-1].task_id}.log"
        self.bytes_read = 0
        self.logs = PageLogs(self, self, lambda: self.world.now)

    def log(self, task_id):
        file = self.files.log(task_id)

        def read(offset, length):
            self.bytes_read += length
            return file.read(offset, length)

        return SimpleNamespace(
            size=file.size,
            written_at=file.written_at,
            timed_size=file.timed_size,
            timed_at=file.timed_at,
            read=read,
            gap=file.gap,
            at=file.at,
            size_before=file.size_before,
        )

    async def read(self, question):
        return question(SimpleNamespace(jobs=lambda ids: [self.job for it in ids if it == "a"]))

    def ask(self, operation, **params):
        call = Call("windfall", operation, {"jobId": "a", **params}, CALLER, "r", "1", 0)
        return asyncio.run(getattr(self.logs, operation)(call))


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def texts(answer):
    return [text for _, _, text in answer["lines"]]


def test_a_log_opens_at_its_end_and_goes_on_in_both_directions(place):
    place.path.write_text("".join(f"line {n}\n" for n in range(100)))
    last = place.ask("window", lines=10)
    assert texts(last) == [f"line {n}" for n in range(90, 100)]
    assert last["more"] == {"before": True, "after": False}
    before = place.ask("window", lines=10, before=last["start"])
    assert texts(before) == [f"line {n}" for n in range(80, 90)]
    assert texts(place.ask("window", lines=10, after=before["end"])) == texts(last)
    first = place.ask("window", lines=3, after=0)
    assert (texts(first), first["more"]) == (["line 0", "line 1", "line 2"], {"before": False, "after": True})
    middle = place.ask("window", lines=4, around=last["lines"][5][0] + 2)
    assert "line 95" in texts(middle)
    assert place.ask("window", lines=5, after=last["end"])["lines"] == []


def test_blank_lines_bad_bytes_and_control_characters_stay(place):
    place.path.write_bytes(b"a\n\n\xff\xfe\n<img onerror=x>\x1b[31m\nunended")
    assert texts(place.ask("window")) == ["a", "", "\ufffd\ufffd", "<img onerror=x>\x1b[31m", "unended"]


def test_a_window_of_a_long_log_reads_as_little_as_one_of_a_short_log(place):
    with open(place.path, "wb") as file:
        file.seek(1 << 30)  # A hole: a gigabyte that takes no room.
        file.write(b"\nx\n" * 2_000)
    place.bytes_read = 0
    last = place.ask("window", lines=500)
    assert len(last["lines"]) == 500
    around = place.ask("window", lines=100, around=1 << 29)
    assert around["lines"]
    assert place.bytes_read < 16 << 20
    assert sum(len(text) for text in texts(around)) <= 2 * WINDOW_BYTES


def test_a_search_finds_every_line_once_in_either_direction(place):
    place.path.write_text("".join(f"{'ERROR Error' if n % 10 == 0 else 'fine'} {n}\n" for n in range(100)))
    every = place.ask("find", text="error")
    assert [text for *_, text in every["matches"]] == [f"ERROR Error {n}" for n in range(0, 100, 10)]
    assert every["done"] is True
    assert place.ask("find", text="error", case=True)["matches"] == []
    page = place.ask("find", text="error", limit=3)
    more = place.ask("find", text="error", **{"from": page["scannedTo"]})
    assert page["matches"] + more["matches"] == every["matches"]
    backwards = place.ask("find", text="error", direction="before", limit=4)
    rest = place.ask("find", text="error", direction="before", **{"from": backwards["scannedTo"]})
    assert backwards["matches"] + rest["matches"] == every["matches"][::-1]
    assert place.ask("find", text=".*")["matches"] == []


def test_a_search_over_much_says_how_far_it_came(place):
    with open(place.path, "wb") as file:
        file.write(b"\0" * (80 << 20) + b"\nneedle\n")
    answer, rounds = {"scannedTo": 0, "done": False}, 0
    while not answer["done"]:
        answer = place.ask("find", text="needle", **{"from": answer["scannedTo"]})
        rounds += 1
    assert rounds > 1
    assert [text for *_, text in answer["matches"]] == ["needle"]


@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("window", {"after": -1}),
        ("window", {"after": 1.5}),
        ("window", {"after": 1, "before": 2}),
        ("window", {"lines": LINES_MAX + 1}),
        ("window", {"attempt": 0}),
        ("window", {"attempt": 9}),
        ("find", {}),
        ("find", {"text": "a\nb"}),
        ("find", {"text": "a", "direction": "up"}),
        ("find", {"text": "a", "from": "x"}),
        ("find", {"text": "a", "limit": 0}),
        ("find", {"text": "a", "jobId": "other"}),
    ],
)
def test_what_cannot_be_meant_is_refused(place, operation, params):
    with pytest.raises(ApiError):
        place.ask(operation, **params)


def test_a_missing_log_is_an_empty_one(place):
    answer = place.ask("window")
    assert (answer["lines"], answer["size"], answer["attempt"]) == ([], 0, 1)
    assert place.ask("find", text="a")["done"] is True
    assert place.ask("size")["size"] == 0
    place.path.write_text("a\n")
    assert (place.ask("size")["size"], place.ask("size", attempt=1)["ended"]) == (2, True)


@pytest.mark.timeout(60)
def test_no_text_makes_a_search_slow(place):
    # As a regular expression that ignores case, this takes the product of both lengths, and nothing else runs.
    place.path.write_bytes(b"a" * (16 << 20))
    answer = place.ask("find", text="a" * 999 + "B")
    assert (answer["matches"], answer["size"]) == ([], 16 << 20)
