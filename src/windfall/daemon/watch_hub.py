"""Watch: one stream of changes for each browser, in the text form of server-sent events.

The hub looks at each topic once for all who watch it, and only while somebody does. Every look of one second is asked
together, so one round of the control loop answers all of them: ten pages cost the loop what one costs. A watcher has no
backlog: it is told the newest answer of a topic, when it can take it, and never those between. Decides who may watch,
when a stream ends, and what a watcher has seen already. Must not know what any topic says.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from windfall.aws_api.protocol.errors import AnsweredElsewhereError, ApiError
from windfall.aws_api.protocol.keys import Key, Role
from windfall.aws_api.protocol.request import Response
from windfall.aws_api.protocol.service import Call, Caller
from windfall.daemon.watch_topics import Topic, content_of, shown, topics_of
from windfall.store.errors import StoreError
from windfall.views.spelling import Answer

log = logging.getLogger(__name__)

WATCHERS_MAX, WATCHERS_OF_A_KEY = 64, 16
#: Topics that all streams of one key can have, so that it takes not all that are remembered.
TOPICS_OF_A_KEY = 160
LOOK_EVERY_S = 1.0
#: A comment that shows a quiet stream to be alive, to browsers and to proxies between.
HEARTBEAT_S = 15.0
#: A watcher that has not taken what was sent for this long is cut off.
SLOW_S = 30.0
#: Topics that are remembered: those that nobody watches any more are looked at no more, and forgotten first.
FEEDS_MAX = 600
#: An answer that is larger is not sent: it is asked for by itself.
EVENT_BYTES = 1 << 20

_TOO_MANY = (
    f"{WATCHERS_MAX} pages can watch at once, {WATCHERS_OF_A_KEY} of one key with {TOPICS_OF_A_KEY} topics; close some,"
    " or ask every few seconds instead."
)
_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
)

#: Answers one of Windfall's own operations for a caller.
Ask = Callable[[Call], Awaitable[Answer]]


@dataclass(slots=True, eq=False)
class Feed:
    """A topic as one group of callers with the same rights sees it."""

    topic: Topic
    caller: Caller
    #: The newest answer as JSON; None when there is no such thing, and before the first look.
    data: bytes | None = None
    digest: bytes = b""
    #: The look at which it last changed; 0 before the first.
    changed: int = 0
    looked_s: float = float("-inf")
    watchers: int = 0


@dataclass(slots=True, eq=False)
class Watcher:
    """One stream."""

    caller: Caller
    feeds: list[Feed]
    #: By topic, the change that it has been told.
    told_changes: dict[str, int]
    task: asyncio.Task[Any] | None
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    #: When it was last handed something, while it has not come back for more; None while it waits.
    handed_s: float | None = None


class WatchHub:
    """All streams of this daemon."""

    def __init__(
        self,
        ask: Ask,
        find_key: Callable[[str], Key | None],
        clock_ms: Callable[[], int],
        leader: Callable[[], tuple[bool, str | None]],
    ) -> None:
        self._ask = ask
        self._find_key = find_key
        self._clock_ms = clock_ms
        self._leader = leader
        #: Tells this life of the daemon from every other: numbers of looks begin anew with it.
        self.epoch = secrets.token_hex(4)
        self.looks = 0
        #: By the tenant and rights of those who watch, and the topic.
        self._feeds: dict[tuple[str, bool, Topic], Feed] = {}
        self._watchers: set[Watcher] = set()
        self._looking: asyncio.Task[None] | None = None
        self._over: str | None = None

    async def watch(self, call: Call) -> Response:
        """Begin a stream of the topics that a request names."""
        leads, leader = self._leader()
        if not leads:
            raise ApiError(
                "WatchElsewhere",
                "Only the daemon that leads can report changes as they happen; ask again every few seconds instead.",
                503,
                {"leader": leader},
            )
        topics = topics_of(call.params)
        after = _seen(call, self.epoch, topics)
        if self._is_full(call.caller, len(topics)):
            raise ApiError("TooManyWatchers", _TOO_MANY, 429)
        stream = self._stream(call.caller, topics, after)
        return Response(200, b"text/event-stream; charset=utf-8", b": windfall\n\n", _HEADERS, stream)

    def _is_full(self, caller: Caller, topics: int) -> bool:
        own = [len(it.feeds) for it in self._watchers if it.caller.access_key_id == caller.access_key_id]
        return (
            len(self._watchers) >= WATCHERS_MAX
            or len(own) >= WATCHERS_OF_A_KEY
            or sum(own) + topics > TOPICS_OF_A_KEY
        )

    def close(self, reason: str = "daemon stops") -> None:
        """End all streams."""
        self._over = reason
        for watcher in self._watchers:
            watcher.wake.set()
        if self._looking is not None:
            self._looking.cancel()

    # Streams ----------------------------------------------------------------------------------------------

    async def _stream(
        self, caller: Caller, topics: list[Topic], after: dict[str, int]
    ) -> AsyncIterator[bytes]:
        # Joins only now: a stream that nobody began to read must not count.
        feeds = [] if self._is_full(caller, len(topics)) else [self._feed(topic, caller) for topic in topics]
        if None in feeds or not feeds:
            yield _ended(_TOO_MANY)
            return
        watcher = Watcher(caller, [feed for feed in feeds if feed is not None], after, asyncio.current_task())
        self._join(watcher)
        try:
            await self._look_at_all([feed for feed in watcher.feeds if feed.changed == 0])
            while (reason := self._why_over(watcher)) is None:
                news = [event for feed in watcher.feeds for event in self._news(watcher, feed)]
                watcher.handed_s = time.monotonic()
                for event in news or [b": still here\n\n"]:
                    yield event
                watcher.handed_s = None
                watcher.wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_S):
                        await watcher.wake.wait()
            yield _ended(reason)
        finally:
            self._leave(watcher)

    def _why_over(self, watcher: Watcher) -> str | None:
        caller = watcher.caller
        if self._over is not None:
            return self._over
        key = self._find_key(caller.access_key_id)
        if key is None or key.tenant != caller.tenant or key.role < caller.role:
            return "key revoked"
        if caller.ends_at is not None and self._clock_ms() >= caller.ends_at:
            return "session over"
        return None if self._leader()[0] else "not leading"

    def _news(self, watcher: Watcher, feed: Feed) -> list[bytes]:
        name = feed.topic.name
        if feed.changed == 0 or watcher.told_changes.get(name) == feed.changed:
            return []
        watcher.told_changes[name] = feed.changed
        if feed.data is None:
            return [_event("gone", json.dumps({"topic": name}).encode())]
        return [_event(name, feed.data, f"{self.epoch}.{feed.changed}")]

    def _feed(self, topic: Topic, caller: Caller) -> Feed | None:
        """The feed of a topic for all with these rights; None when too many others are watched."""
        key = (caller.tenant, caller.sees_all, topic)
        feed = self._feeds.pop(key, None)
        if feed is None:
            if len(self._feeds) >= FEEDS_MAX:
                idle = next((other for other, fed in self._feeds.items() if not fed.watchers), None)
                if idle is None:
                    return None
                del self._feeds[idle]
            # Others with the same rights are told the same: no answer depends on a key's own id.
            looker = Caller(caller.access_key_id, Role.READ, caller.tenant, reads_all=caller.sees_all)
            feed = Feed(topic, looker)
        self._feeds[key] = feed  # At the end: those that were asked for longest ago are forgotten first.
        return feed

    def _join(self, watcher: Watcher) -> None:
        self._watchers.add(watcher)
        for feed in watcher.feeds:
            feed.watchers += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_while_watched(), name="watch hub")

    def _leave(self, watcher: Watcher) -> None:
        if watcher in self._watchers:
            self._watchers.remove(watcher)
            for feed in watcher.feeds:
                feed.watchers -= 1

    # Looks ------------------------------------------------------------------------------------------------

    async def _look_while_watched(self) -> None:
        while self._watchers:
            began = time.monotonic()
            try:
                await self.look()
            except AnsweredElsewhereError:
                self._wake_all()  # Another daemon leads: each stream says so and ends.
            except Exception:
                # The edge of this loop: what one look cannot answer must not end all streams.
                log.exception("a look for the pages failed")
            self._cut_off_slow_ones(time.monotonic())
            await asyncio.sleep(max(0.0, began + LOOK_EVERY_S - time.monotonic()))

    async def look(self) -> None:
        """Look once at everything that is due, all of it together, and wake those who are to be told."""
        now = time.monotonic()
        # A little early rather than a whole second late.
        await self._look_at_all(
            [
                feed
                for feed in self._feeds.values()
                if feed.watchers and now - feed.looked_s >= feed.topic.every_s - LOOK_EVERY_S / 2
            ]
        )
        for watcher in self._watchers:
            if self._why_over(watcher) or any(
                watcher.told_changes.get(it.topic.name) != it.changed for it in watcher.feeds
            ):
                watcher.wake.set()

    async def _look_at_all(self, feeds: list[Feed]) -> None:
        self.looks += 1
        await asyncio.gather(*(self._look_at(feed, time.monotonic()) for feed in feeds))

    async def _look_at(self, feed: Feed, now: float) -> None:
        feed.looked_s = now
        try:
            answers = [await self._asked(feed, operation) for operation in feed.topic.operations]
        except (ApiError, StoreError) as error:
            if isinstance(error, AnsweredElsewhereError):
                raise
            if not (isinstance(error, ApiError) and error.status in (400, 404)):
                return  # It is away for a moment; what was told before stands.
            answers = []
        merged = {name: value for answer in answers for name, value in answer.items()}
        data = json.dumps(shown(feed.topic, merged), separators=(",", ":")).encode() if answers else None
        if data is not None and len(data) > EVENT_BYTES:
            data = None
        content = (
            b""
            if data is None
            else json.dumps(content_of(shown(feed.topic, merged)), sort_keys=True).encode()
        )
        digest = hashlib.blake2b(content, digest_size=16).digest()
        if digest != feed.digest or feed.changed == 0:
            feed.data, feed.digest, feed.changed = data, digest, self.looks

    async def _asked(self, feed: Feed, operation: str) -> Answer:
        return await self._ask(Call("windfall", operation, feed.topic.params, feed.caller, "", "watch", 0))

    def _cut_off_slow_ones(self, now: float) -> None:
        for watcher in list(self._watchers):
            if watcher.handed_s is not None and now - watcher.handed_s > SLOW_S and watcher.task is not None:
                log.warning("a page of key %s does not take what it is sent", watcher.caller.access_key_id)
                self._leave(watcher)
                watcher.task.cancel()

    def _wake_all(self) -> None:
        for watcher in self._watchers:
            watcher.wake.set()


def _ended(reason: str) -> bytes:
    return _event("end", json.dumps({"reason": reason}).encode())


def _event(name: str, data: bytes, event_id: str | None = None) -> bytes:
    head = "" if event_id is None else f"id: {event_id}\n"
    return f"{head}event: {name}\n".encode() + b"data: " + data + b"\n\n"


def _seen(call: Call, epoch: str, topics: list[Topic]) -> dict[str, int]:
    """By topic, the look whose answer the page has already; what another life of the daemon told counts for nothing."""
    after = call.params.get("after") or {}
    if not isinstance(after, dict):
        raise ApiError("Invalid", "after must be an object with the last event id of each topic.")
    seen = {}
    for name in [topic.name for topic in topics if topic.name in after]:
        event_id = after[name]
        life, _, look = str(event_id).partition(".")
        if life == epoch and look.isascii() and look.isdigit() and len(look) < 16:
            seen[name] = int(look)
    return seen
