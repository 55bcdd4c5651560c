"""FilterLogEvents: many streams in one order, patterns, pages, and following as `aws logs tail` does it."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.unit.aws_api.logs.log_world import GROUP, T, messages
from windfall.aws_api.logs import search
from windfall.aws_api.logs.errors import InvalidParameter, ResourceNotFound
from windfall.aws_api.logs.service import Batching


@pytest.fixture
def three(world):
    """Three attempts that wrote in turns; the last line of c has no newline."""
    a, b, c = (world.log(f"job/default/{name}") for name in "abc")
    for n in range(4):
        a.write(b"a%d\n" % n, at=T + n * 1000)
        b.write(b"b%d\n\nb%d again\n" % (n, n), at=T + n * 1000 + 500)
    c.write(b"c at the end", at=T + 1700).end(T + 3700)
    return world


IN_ORDER = [
    "a0",
    "b0",
    "b0 again",
    "a1",
    "b1",
    "b1 again",
    "a2",
    "b2",
    "b2 again",
    "a3",
    "b3",
    "b3 again",
    "c at the end",
]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_events_of_all_streams_are_in_order_of_time_over_all_pages(three, limit):
    events = three.find_all(limit=limit)
    assert messages(events) == IN_ORDER
    assert len({event["eventId"] for event in events}) == len(events)
    assert all(len(event["eventId"]) == 56 for event in events)


def test_an_event_says_where_it_is_from(three):
    assert three.find(limit=1)["events"] == [
        {
            "logStreamName": "job/default/a",
            "timestamp": T,
            "message": "a0",
            "ingestionTime": T,
            "eventId": three.find()["events"][0]["eventId"],
        }
    ]
    assert three.find()["searchedLogStreams"] == []


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_equal_times_lose_and_repeat_nothing(world, limit):
    for name in ("x", "y", "z"):
        world.log(name).write(b"".join(b"%s%d\n" % (name.encode(), n) for n in range(7)), at=T).end(T)
    assert messages(world.find_all(limit=limit)) == [f"{name}{n}" for name in "xyz" for n in range(7)]


def test_streams_are_chosen_by_name_or_prefix(three):
    three.log("job/other/d").write(b"d\n", at=T)
    names = ["job/default/c", "job/other/d", "job/other/d"]
    assert messages(three.find(logStreamNames=names)) == ["d", "c at the end"]
    assert messages(three.find(logStreamNamePrefix="job/o")) == ["d"]
    assert messages(three.find(logStreamNamePrefix="nothing")) == []


def test_both_ends_of_the_time_are_inclusive(three):
    assert messages(three.find(startTime=T + 500, endTime=T + 1000)) == ["b0", "b0 again", "a1"]
    assert messages(three.find(startTime=T + 3501)) == ["c at the end"]
    assert messages(three.find(startTime=T + 3701)) == []
    assert messages(three.find(endTime=T - 1)) == []


def test_patterns_choose_messages(three):
    assert messages(three.find(filterPattern="again -b2")) == ["b0 again", "b1 again", "b3 again"]
    assert messages(three.find_all(filterPattern='?a3 ?"the end"', limit=1)) == ["a3", "c at the end"]
    with pytest.raises(InvalidParameter, match="JSON filter patterns are not supported"):
        three.find(filterPattern="{ $.x = 1 }")


def test_what_cannot_be_answered_is_refused(three):
    with pytest.raises(ResourceNotFound, match="log stream"):
        three.find(logStreamNames=["job/default/a", "nope"])
    with pytest.raises(ResourceNotFound, match="log group"):
        three.find(logGroupName="nope")
    with pytest.raises(InvalidParameter, match="not both"):
        three.find(logStreamNames=["job/default/a"], logStreamNamePrefix="job")
    with pytest.raises(InvalidParameter, match="startFromHead"):
        three.find(startFromHead=False)


def test_a_token_belongs_to_its_question(three):
    token = three.find(limit=2)["nextToken"]
    assert messages(three.find(limit=1, nextToken=token)) == ["b0 again"]
    for params in ({"filterPattern": "a"}, {"startTime": 1}, {"logStreamNamePrefix": "job"}):
        with pytest.raises(InvalidParameter, match="nextToken is invalid"):
            three.find(nextToken=token, **params)
    for bad in (token[:-2], ("B" if token[0] == "A" else "A") + token[1:], "x", "\u00fc", "f/1/s"):
        with pytest.raises(InvalidParameter, match="nextToken is invalid"):
            three.find(nextToken=bad)


def test_a_group_without_streams_is_empty_and_not_an_error(world):
    assert world.find() == {"events": [], "searchedLogStreams": []}


def test_a_group_of_many_streams_is_searched_batch_by_batch(world):
    world.batching = Batching(streams=4, looks=6)
    logs = [world.log(f"s{n:02d}") for n in range(25)]
    for n, log in enumerate(logs):
        if n % 3:
            log.write(b"s%02d first\ns%02d last" % (n, n), at=T + n).end(T + n)
    expected = sorted(f"s{n:02d} {part}" for n in range(25) if n % 3 for part in ("first", "last"))
    for limit in (1, 3, 100):
        assert sorted(messages(world.find_all(limit=limit))) == expected


def test_old_streams_are_not_opened(three, tmp_path):
    fresh = three.log("job/default/new").write(b"fresh\n", at=T + 50_000)
    worth = [
        s.name
        for s in three.store.streams.values()
        if search.worth_searching(three.files, s, T + 40_000, None)
    ]
    # c's last line has no newline: only the store knows its time.
    assert worth == ["job/default/c", fresh.stream.name]
    assert messages(three.find(startTime=T + 40_000)) == ["fresh"]


def test_what_comes_while_batches_are_read_is_left_to_the_next_search(world):
    world.batching = Batching(streams=1, looks=10)
    early, late = world.log("a").write(b"a0\n", at=T), world.log("b").write(b"b0\n", at=T)
    world.now = T + 10
    first = world.find()
    assert messages(first) == ["a0"]
    early.write(b"a1\n", at=T + 20)
    late.write(b"b1\n", at=T + 30)
    world.now = T + 40
    second = world.find(nextToken=first["nextToken"])
    assert messages(second) == ["b0"]
    assert world.find(nextToken=second["nextToken"]) == {"events": [], "searchedLogStreams": []}
    assert messages(world.find_all(startTime=T)) == ["a0", "a1", "b0", "b1"]


def test_a_batch_keeps_its_streams_while_it_is_paged(world):
    world.batching = Batching(streams=2, looks=10)
    for name in ("b", "c"):
        world.log(name).write(b"%s0\n%s1\n" % (name.encode(), name.encode()), at=T)
    shown, token = [], {}
    for n in range(20):
        page = world.find(limit=1, **token)
        shown += messages(page)
        world.log(f"a{n}").write(b"new\n", at=T - 5)
        if "nextToken" not in page:
            break
        token = {"nextToken": page["nextToken"]}
    assert [message for message in shown if message != "new"] == ["b0", "b1", "c0", "c1"]


def test_a_running_attempts_future_is_left_to_the_next_search(world):
    world.log("s").write(b"past\n", at=T).write(b"future\n", at=T + 50)
    world.now = T + 49
    assert messages(world.find()) == ["past"]
    world.now = T + 50
    assert messages(world.find()) == ["past", "future"]


class Follower:
    """Polls as `aws logs tail --follow` does: by start time, events told apart by time and id."""

    def __init__(self, world) -> None:
        self._world = world
        self._seen: dict[int, set[str]] = defaultdict(set)
        self._start = 0
        self.shown: list[str] = []

    def poll(self) -> None:
        params = {"startTime": self._start, "interleaved": True, "limit": 2}
        while True:
            page = self._world.find(**params)
            for event in page["events"]:
                if event["eventId"] not in self._seen[event["timestamp"]]:
                    self._seen[event["timestamp"]].add(event["eventId"])
                    self.shown.append(event["message"])
            if self._seen:
                newest = max(self._seen)
                self._seen = defaultdict(set, {newest: self._seen[newest]})
            if "nextToken" not in page:
                self._start = max(self._seen, default=0)
                return
            params["nextToken"] = page["nextToken"]


def test_a_follower_sees_every_line_once(world):
    """Polled between any two steps: growth, the record of its time, a line's end, the attempt's end."""
    follower = Follower(world)
    a, b = world.log("a"), world.log("b")
    world.now = T
    steps = []
    for n in range(12):
        at = T + n * 600
        steps += [
            (at + 100, lambda n=n, at=at: a.write(b"a%d\nhalf " % n).touched(at + 100)),
            (at + 200, lambda n=n, at=at: b.write(b"b%d\n" % n).touched(at + 200)),
            (at + 300, lambda at=at: a.note(at + 300)),
            (at + 300, lambda at=at: b.note(at + 300)),
            (at + 400, lambda n=n, at=at: a.write(b"line %d\n" % n).touched(at + 400)),
            (at + 500, lambda at=at: a.note(at + 500)),
        ]
    steps += [
        (T + 20_000, lambda: a.write(b"no newline", at=T + 20_000)),
        (T + 50_000, lambda: b.write(b"b goes on\n", at=T + 50_000)),
        (T + 60_000, lambda: a.end(T + 60_000)),
        (T + 61_000, lambda: b.write(b"b last\n", at=T + 61_000).end(T + 61_000)),
    ]
    for now, step in steps:
        world.now = now
        step()
        follower.poll()
    expected = [text for n in range(12) for text in (f"a{n}", f"half line {n}")]
    expected += [f"b{n}" for n in range(12)] + ["no newline", "b goes on", "b last"]
    assert sorted(follower.shown) == sorted(expected)
    assert follower.shown[-3:] == ["b goes on", "no newline", "b last"]


def test_the_group_may_be_named_by_arn(three):
    arn = f"arn:aws:logs:eu-west-1:123456789012:log-group:{GROUP}"
    assert messages(three.ask("FilterLogEvents", logGroupIdentifier=arn)) == IN_ORDER
