"""When attempts end that must not run on without a daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.agent.stories import story_of
from windfall.agent import alone
from windfall.agent.alone import Alone, Heard
from windfall.agent.events import AgentEvent, Deserted
from windfall.agent.messages import Exited, Ping, Stop
from windfall.agent.records import Departed, Ended, Intended
from windfall.agent.stages import Story

LOSE_S = 300.0


class Clock:
    """The time since the machine was started."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(alone, "boot_ms", clock)
    return clock


class Watched:
    """One agent's watch over its attempts, and what it has them told."""

    def __init__(self, directory: Path, *stories: Story) -> None:
        self.events: list[AgentEvent] = []
        self.watch = Alone(str(directory), stories, self.events.append, lambda: 5_000_000)

    def ping(self, heard_ms: int) -> None:
        self.watch.answer(Ping(heard_ms, LOSE_S), is_daemons=True)

    def told(self) -> list[AgentEvent]:
        """What it has them told now."""
        self.events.clear()
        self.watch.tick()
        return list(self.events)


def a_story(token: str = "t", *, stops_alone: bool = True) -> Story:
    return story_of(
        Intended(token, "task", "/log", [], 64, 1.0, sandboxed=False, at=1, stops_alone=stops_alone)
    )


@pytest.mark.parametrize("lose_after_s", [20.0, 300.0, 3600.0, 86_400.0])
def test_everything_has_ended_before_the_machine_counts_as_lost(lose_after_s: float) -> None:
    heard = Heard(1000, lose_after_s)
    assert 1000 + lose_after_s * 500 < heard.notice_at < heard.end_at < 1000 + lose_after_s * 1000


def test_an_attempt_gets_notice_and_is_then_stopped(tmp_path: Path, clock: Clock) -> None:
    watched = Watched(tmp_path)
    watched.ping(clock.ms - 2000)
    watched.watch.watch(a_story())
    heard = Heard(clock.ms - 2000, LOSE_S)
    clock.ms = heard.notice_at - 1
    assert watched.told() == []
    clock.ms = heard.notice_at
    assert watched.told() == [Deserted("t", 5_000_000 + heard.end_at - heard.notice_at)]
    assert watched.told() == [], "once"
    clock.ms = heard.end_at
    assert watched.told() == [Stop("t", 0.0)]
    assert watched.watch.next_due is None


def test_it_counts_from_what_the_daemon_has_heard_and_not_from_what_it_says(
    tmp_path: Path, clock: Clock
) -> None:
    watched = Watched(tmp_path, a_story())
    first = clock.ms
    watched.ping(first)
    # The daemon is heard, and does not hear.
    for _ in range(60):
        clock.ms += 5000
        watched.ping(first)
    assert watched.told() == [Deserted("t", 5_000_000), Stop("t", 0.0)]


def test_words_that_were_under_way_for_long_prolong_nothing(tmp_path: Path, clock: Clock) -> None:
    watched = Watched(tmp_path, a_story())
    watched.ping(clock.ms)
    clock.ms += 200_000
    watched.ping(clock.ms)
    watched.ping(clock.ms - 150_000)
    watched.ping(clock.ms + 1)
    clock.ms += 100_000
    assert watched.told() == []


def test_what_may_run_on_does_and_what_has_ended_is_left_alone(tmp_path: Path, clock: Clock) -> None:
    exited = Exited("saved", 0, None, 1, 2, "")
    ended, saved = (
        story_of(a_story("ended").intended, Ended(Exited("ended", 0, None, 1, 2, ""))),
        a_story("saved"),
    )
    watched = Watched(tmp_path, a_story("runs-on", stops_alone=False), ended, saved)
    watched.ping(clock.ms)
    saved.add(Departed(exited))
    clock.ms += 300_000
    assert [event for event in watched.told() if isinstance(event, Stop)] == []
    assert {event.token for event in watched.events if isinstance(event, Deserted)} == {"saved"}


def test_the_next_agent_goes_on_with_the_count(tmp_path: Path, clock: Clock) -> None:
    story = a_story()
    watched = Watched(tmp_path)
    watched.ping(clock.ms)
    watched.watch.watch(story)
    clock.ms += 290_000
    assert Watched(tmp_path, story).told() == [Deserted("t", 5_000_000), Stop("t", 0.0)]
    clock.ms = 10
    assert Watched(tmp_path, story).told() == [], "the machine was started since"


def test_an_order_that_comes_too_late_is_not_kept(tmp_path: Path, clock: Clock) -> None:
    watched = Watched(tmp_path, a_story("before"))
    watched.ping(clock.ms)
    clock.ms += 299_000
    watched.told()
    watched.watch.watch(a_story("late"))
    assert Stop("late", 0.0) in watched.told()


def test_without_a_daemon_that_loses_machines_nothing_is_ended(tmp_path: Path, clock: Clock) -> None:
    watched = Watched(tmp_path, a_story())
    watched.watch.answer(Ping(), is_daemons=True)
    watched.watch.answer(Ping(clock.ms, LOSE_S), is_daemons=False)
    clock.ms += 10_000_000
    assert (watched.told(), watched.watch.next_due) == ([], None)
