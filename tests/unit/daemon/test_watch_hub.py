"""Streams of changes: what is told, what is not told twice, and what ten pages cost."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import pytest

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Key, Role
from windfall.aws_api.protocol.service import Call, Caller
from windfall.daemon import watch_hub
from windfall.daemon.watch_hub import TOPICS_OF_A_KEY, WATCHERS_MAX, WATCHERS_OF_A_KEY, WatchHub
from windfall.daemon.watch_topics import content_of, topics_of

KEY = Key("WNDFKEY", "secret", Role.ADMIN, "default", None, 1)
CALLER = Caller("WNDFKEY", Role.READ, "default", reads_all=True)


@dataclass
class World:
    """Answers that a test changes, and all questions that were asked."""

    answers: dict[str, dict] = field(default_factory=lambda: {"Counts": {"at": 1, "total": {"RUNNING": 1}}})
    asked: list[Call] = field(default_factory=list)
    keys: dict[str, Key] = field(default_factory=lambda: {"WNDFKEY": KEY})
    leads: bool = True
    now: int = 1_000

    async def ask(self, call):
        self.asked.append(call)
        if call.operation not in self.answers:
            raise ApiError("NotFound", "There is none.", 404)
        return self.answers[call.operation]

    def hub(self):
        return WatchHub(self.ask, self.keys.get, lambda: self.now, lambda: (self.leads, "http://leader"))


def a_call(topics=("counts",), caller=CALLER, **params):
    return Call("windfall", "Watch", {"topics": list(topics), **params}, caller, "r", "1", 0)


class Page:
    """What a browser gets of one stream."""

    def __init__(self, response):
        assert response.body == b": windfall\n\n"
        self._more = response.more

    async def next(self):
        """The next event as (name, data, id)."""
        while True:
            text = (await asyncio.wait_for(anext(self._more), 20)).decode()
            if not text.startswith(":"):
                fields = dict(line.split(": ", 1) for line in text.strip().splitlines())
                return fields["event"], json.loads(fields["data"]), fields.get("id")

    async def close(self):
        await self._more.aclose()


async def a_page(hub, *given, **params):
    return Page(await hub.watch(a_call(*given, **params)))


def test_a_page_is_told_what_is_and_then_what_changes():
    async def test():
        world = World()
        page = await a_page(world.hub())
        name, data, _ = await page.next()
        assert (name, data["total"]) == ("counts", {"RUNNING": 1})
        world.answers["Counts"] = {"at": 2, "total": {"RUNNING": 2}}
        assert (await page.next())[1]["total"] == {"RUNNING": 2}
        await page.close()

    asyncio.run(test())


def test_what_differs_only_by_the_clock_is_not_told():
    async def test():
        world = World()
        hub = world.hub()
        page = await a_page(hub, ("counts", "alarms"))
        assert (await page.next())[0] == "counts"
        assert (await page.next())[0] == "gone"
        world.answers["Counts"] = {"at": 99, "total": {"RUNNING": 1}}
        await hub.look()
        world.answers["Alarms"] = {"at": 1, "alarms": []}
        assert (await page.next())[0] == "alarms"
        await page.close()

    asyncio.run(test())


def test_a_page_that_comes_back_is_told_only_what_it_missed_and_all_by_another_daemon():
    async def test():
        world = World()
        world.answers["Alarms"] = {"alarms": []}
        hub = world.hub()
        page = await a_page(hub, ("counts", "alarms"))
        seen = {name: event_id for name, _, event_id in [await page.next(), await page.next()]}
        await page.close()
        world.answers["Alarms"] = {"alarms": [1]}
        again = await a_page(hub, ("counts", "alarms"), after=seen)
        assert (await again.next())[:2] == ("alarms", {"alarms": [1]})
        await again.close()
        other = await a_page(world.hub(), ("counts", "alarms"), after=seen)
        assert {(await other.next())[0], (await other.next())[0]} == {"counts", "alarms"}
        await other.close()

    asyncio.run(test())


def test_ten_pages_are_looked_at_for_as_often_as_one():
    async def looks(pages):
        world = World()
        hub = world.hub()
        streams = [await a_page(hub) for _ in range(pages)]
        for page in streams:
            assert (await page.next())[0] == "counts"
        world.asked.clear()
        for _ in range(5):
            for feed in hub._feeds.values():
                feed.looked_s = float("-inf")
            await hub.look()
        for page in streams:
            await page.close()
        return len(world.asked)

    assert asyncio.run(looks(1)) == asyncio.run(looks(10)) == 5


def test_each_tenant_is_told_its_own():
    async def test():
        world = World()
        world.keys["OTHER"] = Key("OTHER", "s", Role.READ, "team", None, 1)
        hub = world.hub()
        pages = [await a_page(hub), await a_page(hub, ("counts",), Caller("OTHER", Role.READ, "team"))]
        for page in pages:
            await page.next()
            await page.close()
        assert {(call.caller.tenant, call.caller.sees_all) for call in world.asked} == {
            ("default", True),
            ("team", False),
        }
        assert all(call.caller.role is Role.READ for call in world.asked)

    asyncio.run(test())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda world: world.keys.clear(), "key revoked"),
        (lambda world: setattr(world, "now", 3_000), "session over"),
        (lambda world: setattr(world, "leads", False), "not leading"),
    ],
)
def test_a_stream_ends_with_its_session_its_key_and_its_leader(change, reason):
    async def test():
        world = World()
        hub = world.hub()
        session = Caller("WNDFKEY", Role.READ, "default", ends_at=2_000)
        page = await a_page(hub, ("counts",), session)
        await page.next()
        change(world)
        assert (await page.next())[:2] == ("end", {"reason": reason})
        with pytest.raises(StopAsyncIteration):
            await page.next()
        assert not hub._watchers

    asyncio.run(test())


def test_all_streams_end_when_the_daemon_stops():
    async def test():
        hub = World().hub()
        page = await a_page(hub)
        await page.next()
        hub.close()
        assert (await page.next())[:2] == ("end", {"reason": "daemon stops"})

    asyncio.run(test())


def test_watchers_are_bounded_for_a_key_and_for_all():
    async def test():
        world = World()
        hub = world.hub()
        pages = []
        for number in range(WATCHERS_MAX):
            key_id = f"K{number // WATCHERS_OF_A_KEY}"
            world.keys[key_id] = Key(key_id, "s", Role.READ, "default", None, 1)
            pages.append(await a_page(hub, ("counts",), Caller(key_id, Role.READ, "default")))
            await pages[-1].next()
            if number == WATCHERS_OF_A_KEY - 1:
                with pytest.raises(ApiError) as refused:
                    await hub.watch(a_call(("counts",), Caller("K0", Role.READ, "default")))
                assert (refused.value.code, refused.value.status) == ("TooManyWatchers", 429)
        with pytest.raises(ApiError):
            await hub.watch(a_call())
        for page in pages:
            await page.close()
        await (await a_page(hub)).next()

    asyncio.run(test())


def test_one_key_cannot_take_the_topics_of_all():
    async def test():
        world = World()
        hub = world.hub()
        pages = []
        for number in range(TOPICS_OF_A_KEY // 40):
            pages.append(await a_page(hub, [f"job:{number}-{it}" for it in range(40)]))
            await pages[-1].next()
        with pytest.raises(ApiError) as refused:
            await hub.watch(a_call(["job:one-more"]))
        assert refused.value.code == "TooManyWatchers"
        world.keys["K2"] = Key("K2", "s", Role.READ, "other", None, 1)
        await (await a_page(hub, ("counts",), Caller("K2", Role.READ, "other"))).next()
        for page in pages:
            await page.close()

    asyncio.run(test())


def test_nothing_long_that_a_page_names_is_remembered():
    async def test():
        hub = World().hub()
        with pytest.raises(ApiError):
            await hub.watch(a_call(("rows",), rows=["x" * 500_000]))
        page = await a_page(hub, ("counts",), after={"y" * 500_000: f"{hub.epoch}.1"})
        await page.next()
        (watcher,) = hub._watchers
        assert set(watcher.told_changes) == {"counts"}
        await page.close()

    asyncio.run(test())


def test_a_stream_that_nobody_reads_counts_for_nothing_and_one_that_stalls_is_cut_off(monkeypatch):
    monkeypatch.setattr(watch_hub, "SLOW_S", 0.0)

    async def stall(hub):
        async for part in (await hub.watch(a_call())).more:
            if b"event: counts" in part:
                await asyncio.Event().wait()

    async def test():
        hub = World().hub()
        for _ in range(WATCHERS_MAX + 1):
            await hub.watch(a_call())
        stalled = asyncio.create_task(stall(hub))
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(stalled, 20)
        assert not hub._watchers

    asyncio.run(test())


def test_a_follower_says_who_leads():
    world = World(leads=False)
    with pytest.raises(ApiError) as refused:
        asyncio.run(world.hub().watch(a_call()))
    assert (refused.value.code, refused.value.status) == ("WatchElsewhere", 503)
    assert refused.value.members == {"leader": "http://leader"}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"topics": []},
        {"topics": ["everything"]},
        {"topics": ["rows"]},
        {"topics": ["job:../x"]},
        {"topics": ["job:a@1"]},
        {"topics": ["now"] * 0 + [f"job:{n}" for n in range(41)]},
        {"topics": ["rows"], "rows": [1]},
        {"topics": ["now"], "after": "x"},
    ],
)
def test_what_cannot_be_watched_is_refused(params):
    hub = World().hub()
    with pytest.raises(ApiError) as refused:
        asyncio.run(hub.watch(Call("windfall", "Watch", params, CALLER, "r", "1", 0)))
    assert refused.value.code == "Invalid"


def test_topics_stand_for_operations():
    topics = topics_of({"topics": ["now", "job:a-1", "log:a-1@2", "rows"], "rows": ["a", "b"]})
    assert [(topic.operations, topic.params) for topic in topics] == [
        (("Top", "Machines"), {}),
        (("JobPage",), {"jobId": "a-1"}),
        (("LogSize",), {"jobId": "a-1", "attempt": 2}),
        (("JobRows",), {"jobIds": ["a", "b"]}),
    ]
    reason = {"code": "running", "text": "has run for 3.0 s"}
    assert content_of({"at": 1, "why": {"reasons": [reason]}}) == {"why": {"reasons": [{"code": "running"}]}}
