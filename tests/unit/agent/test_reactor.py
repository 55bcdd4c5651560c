"""What the agent decides, event by event, without a process or a file."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windfall.agent.events import (
    AgentAction,
    AgentEvent,
    Began,
    Brought,
    Delayed,
    Deserted,
    Drop,
    EndWithin,
    Failed,
    GiveNotice,
    Launch,
    Left,
    LetGo,
    Ordered,
    PutAway,
    Remove,
    Removed,
    Saved,
    Spoiled,
    StageIn,
    StageOut,
    TakenByLauncher,
    Tell,
    Watch,
    Withdraw,
)
from windfall.agent.messages import (
    Exited,
    Forget,
    Interrupt,
    Lost,
    Refused,
    Shutdown,
    Start,
    Started,
    Stop,
)
from windfall.agent.reactor import ALONE, AgentState, Reaction, on_event
from windfall.agent.records import (
    Accepted,
    Departed,
    Ended,
    Forgotten,
    Intended,
    Launching,
    Losing,
    Noticed,
    Record,
    Spawned,
)
from windfall.agent.stages import RUNS, UNSTARTED, Stage, Story
from windfall.jobs.staging import Staging

NOW = 1_000
SPAWNED = Spawned("t", 4711, 7, 900, "process")
EXITED = Exited("t", 0, None, 900, 950, "process")


def ordered(token: str = "t", *, staged: bool = False, keeper: bool = False) -> Ordered:
    start = Start(
        token, "task", ["true"], {}, None, "/log", 1.0, 64, [], staging=Staging() if staged else None
    )
    intended = Intended(token, "task", "/log", [], 64, 1.0, sandboxed=False, at=1, keeper=keeper)
    return Ordered(token, Story(intended, order=start))


class Agent:
    """A state, and what the events so far have led to."""

    def __init__(self) -> None:
        self.state = AgentState()
        self.last = Reaction()

    def hear(self, *happened: AgentEvent) -> list[AgentAction]:
        for event in happened:
            self.last = on_event(self.state, event, NOW)
        return self.last.actions

    @property
    def kinds(self) -> list[type[Record]]:
        return [type(record) for record in self.last.records]

    @property
    def story(self) -> Story:
        return self.state.stories["t"]


@pytest.fixture
def agent() -> Agent:
    return Agent()


#: What brings a plain attempt to each of these stages.
PLAIN: dict[Stage, Sequence[AgentEvent]] = {
    Stage.ACCEPTED: [],
    Stage.STARTING: [TakenByLauncher("t")],
    Stage.RUNNING: [TakenByLauncher("t"), SPAWNED],
    Stage.ENDED: [TakenByLauncher("t"), SPAWNED, Left("t", EXITED)],
}
STAGED: dict[Stage, Sequence[AgentEvent]] = {
    Stage.STAGING_IN: [],
    Stage.READY: [Brought("t", 80, 3)],
    Stage.STARTING: [Brought("t", 80, 3), TakenByLauncher("t")],
    Stage.RUNNING: [Brought("t", 80, 3), TakenByLauncher("t"), SPAWNED],
    Stage.STAGING_OUT: [Brought("t", 80, 3), TakenByLauncher("t"), SPAWNED, Left("t", EXITED)],
    Stage.ENDED: [Brought("t", 80, 3), TakenByLauncher("t"), SPAWNED, Left("t", EXITED), Saved("t", EXITED)],
}


def at(stage: Stage, *, staged: bool = False) -> Agent:
    agent = Agent()
    agent.hear(ordered(staged=staged), *(STAGED if staged else PLAIN)[stage])
    assert agent.story.stage is stage
    return agent


def test_a_plain_attempt_is_written_down_started_and_reported(agent: Agent):
    assert agent.hear(ordered()) == [Launch("t")]
    assert agent.kinds == [Intended]
    agent.hear(TakenByLauncher("t"))
    assert agent.hear(SPAWNED) == [Tell(Started("t", 4711, 900, "process")), Watch("t")]
    assert agent.last.records == [], "its spawner has written it already"
    assert agent.hear(Left("t", EXITED)) == [PutAway("t", 950), Tell(EXITED)]
    assert agent.kinds == [Ended]
    assert agent.hear(Forget(["t"])) == [Remove(["t"])]
    assert agent.last.records == [], "the next agent must know what is still to be removed"
    assert agent.state.stories == {}
    agent.hear(Removed(["t"]))
    assert agent.last.records == [Forgotten(["t"])]


def test_a_staged_attempt_is_brought_and_stored_before_its_end_is_told(agent: Agent):
    assert agent.hear(ordered(staged=True)) == [StageIn("t")]
    assert agent.kinds == [Intended, Accepted]
    assert agent.hear(Brought("t", 80, 3)) == [Launch("t")]
    assert agent.kinds == [Launching]
    agent.hear(TakenByLauncher("t"))
    assert agent.hear(SPAWNED)[0] == Tell(Started("t", 4711, 900, "process", prepared_at=3))
    assert agent.hear(Left("t", EXITED)) == [PutAway("t", 950), StageOut("t")]
    assert agent.kinds == [Departed]
    assert agent.hear(Saved("t", EXITED)) == [Drop("t"), Tell(EXITED)]


def test_the_job_of_a_keeper_is_started_when_it_begins(agent: Agent):
    agent.hear(ordered(keeper=True), TakenByLauncher("t"))
    assert agent.hear(SPAWNED) == []
    assert agent.story.state == "starting"
    assert agent.hear(Began("t", 930, 99)) == [Tell(Started("t", 99, 930, "process")), Watch("t")]
    assert agent.story.state == "running"
    assert agent.hear(Began("t", 930, 99)) == [], "its keeper may say so again"


@pytest.mark.parametrize(
    ("stage", "answer"),
    [
        (Stage.ACCEPTED, []),
        (Stage.STARTING, []),
        (Stage.RUNNING, [Tell(Started("t", 4711, 900, "process"))]),
        (Stage.ENDED, [Tell(EXITED)]),
    ],
)
def test_an_order_that_comes_again_is_answered_and_starts_nothing(stage: Stage, answer: list[AgentAction]):
    agent = at(stage)
    assert agent.hear(ordered()) == answer
    assert agent.last.records == []


def test_an_agent_that_is_shut_down_starts_nothing(agent: Agent):
    agent.hear(Shutdown(kill=False))
    (told,) = agent.hear(ordered())
    assert isinstance(told, Tell)
    assert isinstance(told.message, Refused)
    assert agent.state.stories == {}


def test_a_shutdown_stops_what_lives_only_if_it_is_asked_to():
    assert at(Stage.RUNNING).hear(Shutdown(kill=False)) == []
    assert at(Stage.RUNNING).hear(Shutdown(kill=True, grace_s=3.0)) == [EndWithin("t", 3.0)]
    assert at(Stage.ENDED).hear(Shutdown(kill=True)) == []


@pytest.mark.parametrize("request_", [Stop("t", 1.0), Interrupt("t", 5_000)])
def test_what_is_not_known_is_lost_and_what_has_ended_says_how(agent: Agent, request_: AgentEvent):
    assert agent.hear(request_) == [Tell(Lost("t", NOW))]
    assert at(Stage.ENDED).hear(request_) == [Tell(EXITED)]


@pytest.mark.parametrize("request_", [Stop("t", 1.0), Interrupt("t", 5_000)])
@pytest.mark.parametrize(
    ("stage", "staged"), [(Stage.ACCEPTED, False), (Stage.STAGING_IN, True), (Stage.READY, True)]
)
def test_what_was_never_begun_is_withdrawn(request_: AgentEvent, stage: Stage, staged: bool):
    agent = at(stage, staged=staged)
    actions = agent.hear(request_)
    assert actions[0] == Withdraw("t")
    assert (Drop("t") in actions) == staged
    assert isinstance(agent.story.result, Refused)
    assert "before it was started" in agent.story.result.reason


def test_a_stop_while_it_is_being_started_counts_when_its_process_is_there():
    agent = at(Stage.STARTING)
    assert agent.hear(Stop("t", 4.0)) == [EndWithin("t", 4.0)]
    agent.hear(SPAWNED)
    assert agent.story.stage is Stage.ENDING


def test_a_stop_of_what_is_being_stored_says_how_long_that_may_take():
    agent = at(Stage.STAGING_OUT, staged=True)
    assert agent.hear(Stop("t", 4.0, save_within_s=30.0, gives_up=True)) == [StageOut("t")]
    assert agent.story.hurried == (NOW, 30.0)
    assert agent.story.given_up
    agent.hear(Stop("t", 4.0, save_within_s=600.0))
    assert agent.story.hurried == (NOW, 30.0), "the first one counts"


def test_a_host_that_is_gone_is_written_down_once():
    agent = at(Stage.RUNNING)
    agent.hear(Stop("t", 0.0, lose=True))
    assert agent.kinds == [Losing]
    agent.hear(Stop("t", 0.0, lose=True))
    assert agent.kinds == []


def test_notice_is_written_before_the_job_is_told_and_can_only_become_shorter():
    agent = at(Stage.RUNNING)
    assert agent.hear(Interrupt("t", 9_000, "why")) == [GiveNotice("t")]
    assert agent.last.records == [Noticed("t", NOW, 9_000, "why")]
    assert agent.hear(Interrupt("t", 9_500)) == []
    assert agent.hear(Interrupt("t", 8_000)) == [GiveNotice("t")]
    assert agent.story.noticed == Noticed("t", NOW, 8_000, "")


def test_notice_shortens_the_storing_of_what_was_left():
    assert at(Stage.STAGING_OUT, staged=True).hear(Interrupt("t", 9_000)) == [GiveNotice("t"), StageOut("t")]


def test_an_attempt_that_must_not_run_on_alone_gets_notice_and_its_end_says_so(agent: Agent):
    agent.hear(ordered(), TakenByLauncher("t"), SPAWNED)
    assert agent.hear(Deserted("t", 9_000)) == [GiveNotice("t")]
    assert agent.story.noticed == Noticed("t", NOW, 9_000, ALONE, alone=True)
    agent.hear(Interrupt("t", 8_000, "why"))
    assert agent.story.noticed == Noticed("t", NOW, 8_000, "why", alone=True)
    agent.hear(Left("t", Exited("t", 143, None, 1, 2, "")))
    assert agent.story.result == Exited("t", 143, None, 1, 2, "", alone=True)
    assert agent.hear(Deserted("t", 9_000), Deserted("never-heard-of", 9_000)) == []


def test_a_keeper_whose_job_has_not_begun_is_stopped_at_once_by_a_notice(agent: Agent):
    agent.hear(ordered(keeper=True), TakenByLauncher("t"), SPAWNED)
    assert agent.hear(Interrupt("t", 9_000)) == [EndWithin("t", 0.0)]
    assert agent.story.noticed is None


def test_what_cannot_come_to_a_good_end_is_stopped():
    assert at(Stage.RUNNING, staged=True).hear(Spoiled("t")) == [EndWithin("t", 0.0)]


def test_a_start_that_may_work_later_waits():
    agent = at(Stage.STARTING, staged=True)
    agent.hear(Delayed("t"))
    assert agent.story.stage is Stage.READY
    assert agent.hear(Failed("t", "no", 5)) == [PutAway("t", 5), Drop("t"), Tell(Refused("t", "no", 5))]


def test_nothing_is_removed_that_a_courier_may_still_touch():
    agent = at(Stage.ENDED, staged=True)
    assert agent.hear(Forget(["t"])) == []
    assert agent.hear(LetGo("t")) == [Remove(["t"])]
    agent = at(Stage.ENDED, staged=True)
    assert agent.hear(LetGo("t")) == []
    assert agent.hear(Forget(["t"])) == [Remove(["t"])]


def test_what_lives_is_not_forgotten():
    agent = at(Stage.RUNNING)
    assert agent.hear(Forget(["t", "unknown"])) == []
    assert agent.story.live


def test_news_of_a_courier_that_comes_too_late_changes_nothing():
    agent = at(Stage.RUNNING, staged=True)
    assert agent.hear(Brought("t", 81, 9)) == []
    assert agent.last.records == []


# --- whatever comes in whichever order ------------------------------------------------------------------------

REQUESTS = st.one_of(
    st.builds(lambda staged, keeper: ordered(staged=staged, keeper=keeper), st.booleans(), st.booleans()),
    st.builds(lambda lose: Stop("t", 1.0, lose=lose), st.booleans()),
    st.builds(lambda at_: Interrupt("t", at_), st.integers(1_000, 9_000)),
    st.just(Forget(["t"])),
    st.builds(lambda kill: Shutdown(kill=kill), st.booleans()),
)


def next_happening(story: Story, choose: int) -> AgentEvent:
    """Something that can happen to an attempt where it is."""
    stage = story.stage
    if stage is Stage.STAGING_IN:
        return (Brought("t", 80, 3), Failed("t", "no", 3))[choose % 2]
    if stage in UNSTARTED:
        return (TakenByLauncher("t"), Failed("t", "no", 3))[choose % 2]
    if stage is Stage.STARTING:
        return (SPAWNED, SPAWNED, Delayed("t"), Failed("t", "no", 3))[choose % 4]
    if stage in RUNS:
        left = Left("t", (EXITED, Lost("t", 9))[choose // 2 % 2])
        return Began("t", 930, 99) if story.began_at is None and choose % 2 else left
    if stage is Stage.STAGING_OUT:
        return Saved("t", EXITED)
    return LetGo("t")


class Witness:
    """Hears all that an agent writes and tells of one attempt, and compares."""

    def __init__(self) -> None:
        self.agent = Agent()
        self.written: Story | None = None
        self.results: set[object] = set()
        self.launches = 0

    def hear(self, event: AgentEvent) -> None:
        is_new = "t" not in self.agent.state.stories
        if isinstance(event, Spawned) and self.written is not None:
            self.written.add(event)
        actions = self.agent.hear(event)
        for record in self.agent.last.records:
            if isinstance(record, Intended):
                self.written, self.results, self.launches = Story(record), set(), 0
            elif self.written is not None and not isinstance(record, Forgotten):
                self.written.add(record)
        self.launches += actions.count(Launch("t"))
        told = [action.message for action in actions if isinstance(action, Tell)]
        self.results |= {message for message in told if isinstance(message, Exited | Refused) and not is_new}

    def compare(self) -> None:
        assert self.launches <= 1, "one order, one start"
        assert len(self.results) <= 1, "an attempt is never reported with two ends"
        story, written = self.agent.state.stories.get("t"), self.written
        if story is None:
            return
        assert written is not None
        assert (written.result, written.departed) == (story.result, story.departed)
        assert (written.noticed, written.spawned) == (story.noticed, story.spawned)
        assert story.live or written.stage is Stage.ENDED


@settings(max_examples=300)
@given(st.lists(st.one_of(REQUESTS, st.integers(0, 3)), max_size=40))
def test_whatever_happens_the_journal_tells_the_same_story_and_one_end_is_told(
    steps: list[AgentEvent | int],
):
    witness = Witness()
    for step in steps:
        story = witness.agent.state.stories.get("t")
        if not isinstance(step, int):
            witness.hear(step)
        elif story is not None:
            witness.hear(next_happening(story, step))
        witness.compare()


# --- who stands behind another one ----------------------------------------------------------------------------


def behind(token: str, before: str) -> Ordered:
    start = Start(token, "task", ["true"], {}, None, "/log", 1.0, 64, [], behind=before)
    return Ordered(token, Story(Intended(token, "task", "/log", [], 64, 1.0, False, 1), order=start))


def test_a_standby_begins_when_the_one_before_it_has_ended():
    agent = at(Stage.RUNNING)
    assert agent.hear(behind("u", "t")) == []
    assert agent.kinds == [Intended], "it is in the journal"
    assert Launch("u") in agent.hear(Left("t", EXITED))


def test_a_standby_of_one_that_has_ended_begins_at_once():
    assert at(Stage.ENDED).hear(behind("u", "t")) == [Launch("u")]


def test_a_standby_of_one_that_is_not_known_is_given_back(agent: Agent):
    actions = agent.hear(behind("u", "t"))
    assert Launch("u") not in actions
    result = agent.state.stories["u"].result
    assert isinstance(result, Refused)
    assert result.given_back
    assert agent.hear(behind("u", "t")) == [Tell(result)], "an order that comes again starts nothing"


def test_a_standby_waits_until_what_the_one_before_it_left_is_stored():
    agent = at(Stage.RUNNING, staged=True)
    agent.hear(behind("u", "t"))
    assert Launch("u") not in agent.hear(Left("t", EXITED))
    assert Launch("u") in agent.hear(Saved("t", EXITED))


@pytest.mark.parametrize("request_", [Stop("u", 1.0), Interrupt("u", 5_000)])
def test_a_standby_is_given_back_and_the_next_one_moves_up(request_: AgentEvent):
    agent = at(Stage.RUNNING)
    agent.hear(behind("u", "t"), behind("v", "u"))
    actions = agent.hear(request_)
    assert Launch("v") not in actions, "the place is still taken"
    (told,) = [action.message for action in actions if isinstance(action, Tell)]
    assert isinstance(told, Refused)
    assert told.given_back
    assert Launch("v") in agent.hear(Left("t", EXITED))


def test_a_standby_of_one_that_was_given_back_is_given_back_too():
    agent = at(Stage.RUNNING)
    agent.hear(behind("u", "t"), Stop("u", 1.0))
    assert Launch("v") not in agent.hear(behind("v", "u")), "t still has the place"
    assert isinstance(agent.state.stories["v"].result, Refused)


def test_what_is_asked_back_goes_on_if_it_has_begun():
    assert at(Stage.RUNNING).hear(Stop("t", 0.0, if_unbegun=True)) == []
    assert at(Stage.STARTING).hear(Stop("t", 0.0, if_unbegun=True)) == []
    assert Agent().hear(Stop("t", 0.0, if_unbegun=True)) == [], "its order may be on its way"
    actions = at(Stage.ACCEPTED).hear(Stop("t", 0.0, if_unbegun=True))
    assert Withdraw("t") in actions


def test_of_several_standbys_one_begins_at_a_time():
    agent = at(Stage.RUNNING)
    agent.hear(behind("u", "t"), behind("v", "u"))
    assert [action for action in agent.hear(Left("t", EXITED)) if isinstance(action, Launch)] == [Launch("u")]
