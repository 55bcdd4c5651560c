"""What an agent decides: an event goes in, stories move, and out come what to write, what to tell and what to do.

Pure, and the same in the agent and in the simulation. The records are written before the first action is carried out:
what is not in the journal has not been decided. Must not know processes, files, clocks or the socket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from windfall.agent.errors import refusal
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
    Result,
    Shutdown,
    Started,
    Stop,
)
from windfall.agent.records import (
    Accepted,
    Begun,
    Departed,
    Ended,
    Forgotten,
    Launching,
    Losing,
    Noticed,
    NotStarted,
    Spawned,
    Starting,
    Stopping,
    Written,
)
from windfall.agent.stages import Stage, Story

#: What an attempt is told that must end because no daemon was heard.
ALONE = "no daemon has reached its machine"


class AgentState(msgspec.Struct):
    """All that the agent's decisions depend on."""

    #: Every attempt that the daemon has not told it to forget.
    stories: dict[str, Story] = {}
    #: Whose files a courier may still have in hand.
    in_hand: set[str] = set()
    #: Those of them that the daemon has told it to forget.
    forget_later: set[str] = set()
    #: Who stands behind an attempt for its place, and the other way round.
    behind: dict[str, str] = {}
    waits_for: dict[str, str] = {}
    #: Set at shutdown: nothing new is started.
    closing: bool = False

    @property
    def live(self) -> list[Story]:
        """All attempts that have not ended."""
        return [story for story in self.stories.values() if story.live]


class Reaction(msgspec.Struct):
    """What follows from one event."""

    records: list[Written | Forgotten] = []
    actions: list[AgentAction] = []

    def note(self, story: Story, record: Written) -> None:
        """Move a story, and have that written."""
        story.add(record)
        self.records.append(record)


def on_event(state: AgentState, event: AgentEvent, now: int) -> Reaction:
    """Decide what follows from an event; `now` is in milliseconds since the epoch."""
    reaction = Reaction()
    _HANDLERS[type(event)](state, event, now, reaction)
    return reaction


# --- what the daemon asks ---------------------------------------------------------------------------


def _on_ordered(state: AgentState, ordered: Ordered, now: int, reaction: Reaction) -> None:
    """Accept an attempt, or repeat what is known of it."""
    story = state.stories.get(ordered.token)
    if story is not None:
        answer = story.result or started(story)
        reaction.actions += [Tell(answer)] if answer is not None else []
        return
    if state.closing:
        reason = refusal("the agent is being shut down")
        reaction.actions.append(Tell(Refused(ordered.token, reason, now, given_back=True)))
        return
    story = state.stories[ordered.token] = ordered.story
    reaction.records.append(story.intended)
    assert story.order is not None
    before = state.stories.get(story.order.behind)
    if story.order.behind and (before is None or _never_had_a_place(before)):
        # The order for that one was lost on its way, or given back: a place is free only when one ends that had it.
        _end_unstarted(state, story, "the attempt before it has no place here", now, reaction)
    elif before is not None and before.live:
        state.behind[before.token], state.waits_for[story.token] = story.token, before.token
    elif story.order.staging is None:
        reaction.actions.append(Launch(story.token))
    else:
        reaction.note(story, Accepted(story.order))
        reaction.actions.append(StageIn(story.token))


def _is_unstarted(state: AgentState, token: str) -> bool:
    story = state.stories.get(token)
    return story is not None and story.unstarted


def _never_had_a_place(story: Story) -> bool:
    return isinstance(story.result, Refused) and story.result.given_back


def _on_stop(state: AgentState, stop: Stop, now: int, reaction: Reaction) -> None:
    """Begin to end an attempt; one that has ended or is unknown is only answered."""
    if stop.if_unbegun and not _is_unstarted(state, stop.token):
        return  # What is not known is not answered: its order may still be on its way.
    story = _live_or_answered(state, stop.token, now, reaction)
    if story is None:
        return
    if stop.lose and not story.losing:
        reaction.note(story, Losing(stop.token))
    if stop.save_within_s is not None and story.hurried is None:
        story.hurried = (now, stop.save_within_s)
    story.given_up = story.given_up or stop.gives_up
    if story.unstarted:
        _end_unstarted(state, story, "stopped before it was started", now, reaction)
    elif story.stage is Stage.STAGING_OUT:
        reaction.actions.append(StageOut(story.token))
    else:
        _stop(story, stop.grace_s, reaction)


def _on_interrupt(state: AgentState, interrupt: Interrupt, now: int, reaction: Reaction) -> None:
    """Give an attempt notice; one that has notice already can only lose time by another."""
    story = _live_or_answered(state, interrupt.token, now, reaction)
    if story is not None:
        notice = Noticed(story.token, now, interrupt.deadline_at, interrupt.words)
        _give_notice(state, story, notice, now, reaction)


def _on_forget(state: AgentState, forget: Forget, _now: int, reaction: Reaction) -> None:
    """Drop results that the daemon has recorded, and remove what their attempts had."""
    removed = []
    for token in forget.tokens:
        story = state.stories.get(token)
        if story is None or story.live:
            continue
        if token in state.in_hand:
            state.forget_later.add(token)
            continue
        state.forget_later.discard(token)
        del state.stories[token]
        removed.append(token)
    if removed:
        reaction.actions.append(Remove(removed))


def _on_shutdown(state: AgentState, shutdown: Shutdown, now: int, reaction: Reaction) -> None:
    """Start nothing more; stop everything, if that is asked."""
    state.closing = True
    for story in state.live if shutdown.kill else []:
        _on_stop(state, Stop(story.token, shutdown.grace_s), now, reaction)


# --- what happens to an attempt ---------------------------------------------------------------------


def _on_brought(state: AgentState, brought: Brought, _now: int, reaction: Reaction) -> None:
    story = state.stories.get(brought.token)
    if story is not None and story.stage is Stage.STAGING_IN:
        reaction.note(story, Launching(brought.token, brought.port, brought.at))
        reaction.actions.append(Launch(brought.token))


def _on_taken(state: AgentState, taken: TakenByLauncher, _now: int, _reaction: Reaction) -> None:
    state.stories[taken.token].add(Starting())


def _on_delayed(state: AgentState, delayed: Delayed, _now: int, _reaction: Reaction) -> None:
    state.stories[delayed.token].add(NotStarted())


def _on_failed(state: AgentState, failed: Failed, _now: int, reaction: Reaction) -> None:
    story = state.stories.get(failed.token)
    if story is not None and story.live:
        _end(state, story, Refused(failed.token, failed.reason, failed.at), reaction)


def _on_spawned(state: AgentState, spawned: Spawned, _now: int, reaction: Reaction) -> None:
    """Its process exists, which the spawner has written down already."""
    story = state.stories[spawned.token]
    story.add(spawned)
    story.order = None
    if not story.intended.keeper:
        _tell_start(story, reaction)


def _on_began(state: AgentState, began: Began, _now: int, reaction: Reaction) -> None:
    story = state.stories[began.token]
    if story.began_at is None:
        story.add(Begun(began.at, began.pid))
        _tell_start(story, reaction)


def _on_deserted(state: AgentState, deserted: Deserted, now: int, reaction: Reaction) -> None:
    """Give notice as the daemon would; what has left its process already is only being saved."""
    story = state.stories.get(deserted.token)
    if story is not None and story.live and story.departed is None:
        notice = Noticed(story.token, now, deserted.deadline_at, ALONE, alone=True)
        _give_notice(state, story, notice, now, reaction)


def _on_spoiled(state: AgentState, spoiled: Spoiled, _now: int, reaction: Reaction) -> None:
    _stop(state.stories[spoiled.token], 0.0, reaction)


def _on_left(state: AgentState, left: Left, _now: int, reaction: Reaction) -> None:
    """Report how it ended, once what a staged one left is stored."""
    story, result = state.stories[left.token], left.result
    if story.accepted is None:
        _end(state, story, result, reaction)
        return
    reaction.note(story, Departed(result))
    reaction.actions += [PutAway(story.token, result.at), StageOut(story.token)]


def _on_saved(state: AgentState, saved: Saved, _now: int, reaction: Reaction) -> None:
    _end(state, state.stories[saved.token], saved.result, reaction)


def _on_let_go(state: AgentState, let_go: LetGo, now: int, reaction: Reaction) -> None:
    state.in_hand.discard(let_go.token)
    if let_go.token in state.forget_later:
        _on_forget(state, Forget([let_go.token]), now, reaction)


def _on_removed(_state: AgentState, removed: Removed, _now: int, reaction: Reaction) -> None:
    """Only now is the story dropped: until here the next agent must know what is to be removed."""
    if removed.tokens:
        reaction.records.append(Forgotten(removed.tokens))


# --- parts ------------------------------------------------------------------------------------------


def _give_notice(state: AgentState, story: Story, notice: Noticed, now: int, reaction: Reaction) -> None:
    """Tell an attempt that it must leave; one that has notice already can only lose time by another."""
    if story.unstarted:
        _end_unstarted(state, story, "its place was taken away before it was started", now, reaction)
        return
    before = story.noticed
    if story.intended.keeper and story.began_at is None:
        if notice.alone and before is None:
            reaction.note(story, notice)
        _stop(story, 0.0, reaction)
        return
    if before is not None and before.deadline_at <= notice.deadline_at:
        return
    if before is not None:
        notice = msgspec.structs.replace(notice, at=before.at, alone=before.alone)
    reaction.note(story, notice)
    reaction.actions.append(GiveNotice(story.token))
    if story.stage is Stage.STAGING_OUT:
        reaction.actions.append(StageOut(story.token))


def _live_or_answered(state: AgentState, token: str, now: int, reaction: Reaction) -> Story | None:
    """Return an attempt that has not ended; what is known of any other is told."""
    story = state.stories.get(token)
    if story is None:
        reaction.actions.append(Tell(Lost(token, now)))
    elif story.result is not None:
        reaction.actions.append(Tell(story.result))
    else:
        return story
    return None


def _end_unstarted(state: AgentState, story: Story, why: str, now: int, reaction: Reaction) -> None:
    reaction.actions.append(Withdraw(story.token))
    _end(state, story, Refused(story.token, refusal(why), now, given_back=True), reaction)


def _end(state: AgentState, story: Story, result: Result, reaction: Reaction) -> None:
    """Write down and report a result."""
    has_departed = story.departed is not None
    if isinstance(result, Exited) and story.noticed is not None and story.noticed.alone:
        result = msgspec.structs.replace(result, alone=True)
    reaction.note(story, Ended(result))
    story.order = None
    if not has_departed:
        reaction.actions.append(PutAway(story.token, result.at))
    if story.accepted is not None:
        state.in_hand.add(story.token)
        reaction.actions.append(Drop(story.token))
    reaction.actions.append(Tell(result))
    _pass_on(state, story.token, reaction)


def _pass_on(state: AgentState, ended: str, reaction: Reaction) -> None:
    """Let who stands behind an attempt begin; where that had no place either, move up."""
    standby, before = state.behind.pop(ended, None), state.waits_for.pop(ended, None)
    if before is not None:
        del state.behind[before]
    if standby is None:
        return
    if before is not None:
        state.behind[before], state.waits_for[standby] = standby, before
        return
    del state.waits_for[standby]
    reaction.actions.append(Launch(standby))


def _stop(story: Story, grace_s: float, reaction: Reaction) -> None:
    story.add(Stopping())
    reaction.actions.append(EndWithin(story.token, grace_s))


def _tell_start(story: Story, reaction: Reaction) -> None:
    message = started(story)
    assert message is not None
    reaction.actions += [Tell(message), Watch(story.token)]


def started(story: Story) -> Started | None:
    """Return the report that the job runs; None before it does."""
    if story.began_at is None or story.spawned is None:
        return None
    prepared_at = story.launching.prepared_at if story.launching is not None else None
    inside = story.begun.pid if story.begun is not None else None
    return Started(story.token, inside or story.spawned.pid, story.began_at, story.isolation, prepared_at)


_HANDLERS: Mapping[type, Callable[[AgentState, Any, int, Reaction], None]] = {
    Ordered: _on_ordered,
    Stop: _on_stop,
    Interrupt: _on_interrupt,
    Forget: _on_forget,
    Shutdown: _on_shutdown,
    Brought: _on_brought,
    TakenByLauncher: _on_taken,
    Delayed: _on_delayed,
    Failed: _on_failed,
    Spawned: _on_spawned,
    Began: _on_began,
    Spoiled: _on_spoiled,
    Deserted: _on_deserted,
    Left: _on_left,
    Saved: _on_saved,
    LetGo: _on_let_go,
    Removed: _on_removed,
}
