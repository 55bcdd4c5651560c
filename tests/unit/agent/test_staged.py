"""What the courier is told at which stage of an attempt, and what the daemon hears of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from windfall.agent.attempt import Attempt
from windfall.agent.courier.messages import (
    Broken,
    Drop,
    Dropped,
    Finish,
    Finished,
    Line,
    News,
    Prepare,
    Prepared,
    PrepareFailed,
    Report,
    Watch,
)
from windfall.agent.credentials import JobUser
from windfall.agent.journal import Intended, Journal, Noticed, Spawned, Story, read_journal
from windfall.agent.messages import Exited, Lost, Message, Progressed, Refused, Result, Start
from windfall.agent.staged import CLOSING_WITHIN_S, FINISH_WITHIN_S, StagedAttempts
from windfall.jobs.staging import Checkpoints, Mark, Progress, Staging

MARK = Mark("step-5", 10, 9, 100, 5)


class FakeCourier:
    """A courier that only remembers."""

    def __init__(self) -> None:
        self.running = True
        self.told: list[Line] = []
        self.on_report = lambda report: None
        self.on_new = lambda: None

    def send(self, line: Line) -> None:
        self.told.append(line)


class Stage:
    """One agent's staged attempts and all that they say."""

    def __init__(self, root: Path) -> None:
        self.courier = FakeCourier()
        self.journal = Journal(str(root / "journal"), "boot")
        self.journal.rewrite(0, [])
        self.root = root
        self.said: list[Message] = []
        self.ready: list[Attempt] = []
        self.results: list[Result] = []
        self.released: list[str] = []
        self.broken: list[Attempt] = []
        user = JobUser("nobody", 65534, 65534, (), drop=True)
        self.staged = StagedAttempts(
            self.courier,  # type: ignore[arg-type]  # a fake with the same few members
            SimpleNamespace(user_of=lambda _: user),  # type: ignore[arg-type]  # all of a machine that is asked for
            self.journal,
            self.said.append,
            self.ready.append,
            self._end,
            self.released.append,
            self.broken.append,
        )

    def _end(self, attempt: Attempt, result: Result) -> None:
        attempt.story.result = result
        self.results.append(result)
        self.staged.ended(attempt)

    def attempt(self, token: str = "t") -> Attempt:
        staging = Staging(checkpoints=Checkpoints("file:///store"))
        start = Start(token, "task", ["true"], {}, None, "/dev/null", 1.0, 64, [], staging=staging, fence=7)
        intended = Intended(
            token, "task", "/dev/null", ["/a/task", "/a/task.tmp", "/a/task.ml"], 64, 1.0, True, 1
        )
        self.journal.add(intended)
        return Attempt(Story(intended, accepted=start), start)

    def report(self, *reports: Report) -> None:
        for report in reports:
            self.courier.on_report(report)

    def last(self) -> Line:
        return self.courier.told[-1]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def exited(code: int = 0, at: int = 2_000) -> Exited:
    return Exited("t", code, None, 1_000, at, "bubblewrap")


def test_from_preparing_to_the_end(stage: Stage):
    attempt = stage.attempt()
    stage.staged.take(attempt)
    prepare = stage.last()
    assert isinstance(prepare, Prepare)
    assert prepare.errand.places.root == "/a/task.ml"
    assert (prepare.errand.directory, prepare.errand.fence, prepare.errand.owner) == (
        "/a/task",
        7,
        (65534, 65534),
    )
    assert attempt.preparing
    stage.report(News("t", 5, doing="restoring the checkpoint", restored=MARK), Prepared("t", 1_500, 4711))
    assert stage.ready == [attempt]
    assert not attempt.preparing
    assert attempt.story.launching is not None
    assert (attempt.story.launching.port, attempt.story.launching.prepared_at) == (4711, 1_500)
    attempt.story.spawned = Spawned("t", 1, 1, 1_600, "bubblewrap")
    progress = Progress(at=1, step=3)
    stage.report(News("t", 6, progress=progress), News("t", 7, checkpoint=MARK, alarm="late"))
    stage.staged.departed(attempt, exited(3))
    finish = stage.last()
    assert isinstance(finish, Finish)
    assert (finish.exit_code, finish.interrupted, finish.lose) == (3, False, False)
    assert finish.deadline_at == 2_000 + FINISH_WITHIN_S * 1000
    assert not attempt.running
    assert attempt.state == "running", "its place is not free yet"
    stage.report(Finished("t", failure="why"))
    (result,) = stage.results
    assert isinstance(result, Exited)
    assert (result.exit_code, result.exited_at, result.failure) == (3, 2_000, "why")
    assert (result.checkpoint, result.progress) == (MARK, progress)
    assert result.at >= 2_000
    assert not stage.staged.holds("t")
    told = [message for message in stage.said if isinstance(message, Progressed)]
    assert [message.alarm for message in told] == [None, None, "late", None]
    assert told[-1].exited_at == 2_000


def test_a_new_courier_is_told_each_attempt_at_its_stage(stage: Stage):
    preparing, running, leaving = stage.attempt("p"), stage.attempt("r"), stage.attempt("l")
    for attempt in (preparing, running, leaving):
        stage.staged.take(attempt)
    stage.report(Prepared("r", 1, 80), Prepared("l", 1, 81))
    stage.staged.departed(leaving, Exited("l", 0, None, 1, 2, ""))
    stage.courier.told.clear()
    stage.courier.on_new()
    assert [type(line) for line in stage.courier.told] == [Prepare, Watch, Finish]
    watch = stage.courier.told[1]
    assert isinstance(watch, Watch)
    assert watch.port == 80


def test_what_cannot_be_prepared_is_refused_in_a_container_engines_words(stage: Stage):
    attempt = stage.attempt()
    stage.staged.take(attempt)
    stage.report(PrepareFailed("t", "there is no such object"))
    (refused,) = stage.results
    assert isinstance(refused, Refused)
    assert refused.reason == "CannotStartContainerError: there is no such object"


def test_an_end_before_the_start_is_held_until_the_courier_has_let_go(stage: Stage):
    attempt = stage.attempt()
    stage.staged.take(attempt)
    stage.staged.ended(attempt)
    assert stage.last() == Drop("t")
    assert stage.staged.holds("t")
    stage.report(Prepared("t", 1, 80))
    assert stage.ready == [], "it was on its way when the attempt ended"
    stage.report(Dropped("t"))
    assert (stage.released, stage.staged.holds("t")) == (["t"], False)


def test_a_dead_courier_holds_nothing(stage: Stage):
    attempt = stage.attempt()
    stage.staged.take(attempt)
    stage.staged.ended(attempt)
    stage.courier.on_new()
    assert stage.released == ["t"]


@pytest.mark.parametrize(("code", "interrupted"), [(143, True), (0, False)])
def test_an_interruption_ends_at_its_deadline_unless_it_was_success(
    stage: Stage, code: int, interrupted: bool
):
    attempt = stage.attempt()
    attempt.story.noticed = Noticed("t", 1_000, 9_000, "")
    stage.staged.departed(attempt, exited(code))
    finish = stage.last()
    assert isinstance(finish, Finish)
    assert (finish.interrupted, finish.deadline_at) == (interrupted, 9_000)


def test_what_changes_while_it_is_being_saved_is_said_again(stage: Stage):
    attempt = stage.attempt()
    stage.staged.departed(attempt, exited())
    attempt.story.losing = True
    stage.staged.hasten(attempt)
    finish = stage.last()
    assert isinstance(finish, Finish)
    assert finish.lose
    stage.staged.hasten_all()
    hurried = stage.last()
    assert isinstance(hurried, Finish)
    assert hurried.deadline_at == 2_000 + CLOSING_WITHIN_S * 1000


def test_the_lost_are_saved_too_and_stay_lost(stage: Stage):
    attempt = stage.attempt()
    lost = Lost("t", 3_000)
    stage.staged.departed(attempt, lost)
    finish = stage.last()
    assert isinstance(finish, Finish)
    assert finish.exit_code is None
    stage.report(Finished("t", checkpoint=MARK))
    assert stage.results == [lost]


def test_the_stages_are_in_the_journal(stage: Stage, tmp_path: Path):
    attempt = stage.attempt()
    stage.staged.take(attempt)
    stage.report(Prepared("t", 1_500, 4711))
    stage.staged.departed(attempt, exited(3))
    stage.journal.flush()
    story = read_journal(str(tmp_path / "journal")).stories["t"]
    assert (story.launching, story.departed) == (attempt.story.launching, exited(3))


def test_an_attempt_that_cannot_come_to_a_good_end_is_stopped_and_says_why(stage: Stage):
    attempt = stage.attempt()
    stage.staged.take(attempt)
    stage.report(Prepared("t", 1, 80), Broken("t", "the channel cannot be fed"))
    assert stage.broken == [attempt]
    stage.staged.departed(attempt, exited(137))
    stage.report(Finished("t"))
    (result,) = stage.results
    assert isinstance(result, Exited)
    assert result.failure == "the channel cannot be fed"
