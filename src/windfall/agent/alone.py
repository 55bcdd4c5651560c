"""Attempts that must not run on without a daemon (`windfall:partition=stop`): when they are ended, and by whose count.

An agent that hears no daemon ends them before the daemon counts its machine as lost and lets their jobs go on
elsewhere. Both count the same silence, and neither reads the other's clock: the agent counts from when it *sent* the
last word that the daemon says it has heard (`Ping.heard_ms`), and the daemon from when it heard that word, which cannot
be earlier. What is under way for long, or passes in one direction only, therefore prolongs nothing. The count is a file
too, so that the next agent goes on with it. Decides when; how an attempt is given notice and stopped is the reactor's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

import msgspec

from windfall.agent.events import AgentEvent, Deserted
from windfall.agent.messages import Ping, Pong, Stop
from windfall.agent.speech import say
from windfall.agent.stages import Story

NAME = "heard.json"
#: How much of the silence is left when all has ended, and how much of it is notice before that.
_SPARE_SHARE, _SPARE_MOST_MS = 0.1, 30_000
_NOTICE_SHARE, _NOTICE_MOST_MS = 0.25, 120_000


def boot_ms() -> int:
    """Milliseconds since the machine was started: nobody sets this clock, and it goes on while a machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Heard(msgspec.Struct, frozen=True):
    """What of this agent its daemon has heard last, and how long it will wait for more."""

    #: When that was sent, by the agent's own clock since its machine's start.
    sent_ms: int
    lose_after_s: float

    @property
    def end_at(self) -> int:
        """When the last process must have ended."""
        lose_ms = int(self.lose_after_s * 1000)
        return self.sent_ms + lose_ms - min(_SPARE_MOST_MS, int(lose_ms * _SPARE_SHARE))

    @property
    def notice_at(self) -> int:
        """When attempts get notice until then."""
        return self.end_at - min(_NOTICE_MOST_MS, int(self.lose_after_s * 1000 * _NOTICE_SHARE))


class Alone:
    """Watches over the attempts of one agent that are ended when no daemon is heard."""

    def __init__(
        self,
        directory: str,
        stories: Iterable[Story],
        react: Callable[[AgentEvent], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._path = os.path.join(directory, NAME)
        self._react, self._now_ms = react, now_ms
        self._stories = {story.token: story for story in stories if story.live and story.intended.stops_alone}
        self._heard = self._read() if self._stories else None
        self._has_told = self._has_stopped = False

    def _read(self) -> Heard | None:
        try:
            with open(self._path, "rb") as file:
                heard = msgspec.json.decode(file.read(), type=Heard)
        except (OSError, msgspec.DecodeError):
            return None
        return heard if heard.sent_ms <= boot_ms() else None  # else the machine was started since

    def watch(self, story: Story | None) -> None:
        """An attempt was accepted, or is known already, or was refused."""
        if story is None or not story.live or not story.intended.stops_alone:
            return
        if story.token not in self._stories:
            self._stories[story.token] = story
            # The order may have been under way for so long that it is too late already.
            self._has_told = self._has_stopped = False
            self._write()

    def answer(self, ping: Ping, *, is_daemons: bool) -> Pong:
        """Take in what the daemon says it has heard; the answer is what it hears next."""
        if is_daemons:
            self._on_ping(ping)
        return Pong(self._now_ms(), boot_ms())

    def _on_ping(self, ping: Ping) -> None:
        if ping.lose_after_s <= 0 or not 0 < ping.heard_ms <= boot_ms():
            return
        if self._heard is not None and ping.heard_ms < self._heard.sent_ms:
            return  # It was under way for long.
        self._heard = Heard(ping.heard_ms, ping.lose_after_s)
        self._has_told = self._has_stopped = False
        if self._stories:
            self._write()

    @property
    def next_due(self) -> float | None:
        """When `tick` has something to do, on the monotonic clock; None while it has not."""
        if self._heard is None or not self._stories or self._has_stopped:
            return None
        due = self._heard.end_at if self._has_told else self._heard.notice_at
        return time.monotonic() + (due - boot_ms()) / 1000

    def tick(self) -> None:
        """Give notice, and stop what has not heeded it."""
        heard, now = self._heard, boot_ms()
        if heard is None or not self._stories or now < heard.notice_at:
            return
        self._stories = {token: story for token, story in self._stories.items() if story.live}
        if not self._has_told and self._stories:
            say(
                f"no daemon has been heard for {(now - heard.sent_ms) / 1000:.0f} s: ends {len(self._stories)} attempts"
            )
        for token, story in list(self._stories.items()):
            if not self._has_told:
                self._react(Deserted(token, self._now_ms() + max(0, heard.end_at - now)))
            if now >= heard.end_at and not self._has_stopped and story.live and story.departed is None:
                # The notice ends by the time of day, which somebody may have set.
                self._react(Stop(token, 0.0))
        self._has_told, self._has_stopped = True, now >= heard.end_at

    def _write(self) -> None:
        if self._heard is None:
            return
        try:
            with open(f"{self._path}.new", "wb") as file:
                file.write(msgspec.json.encode(self._heard))
            os.replace(f"{self._path}.new", self._path)
        except OSError as error:
            say(
                f"{self._path} cannot be written, so the next agent would not know when a daemon was heard: {error}"
            )
