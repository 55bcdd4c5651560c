"""What the courier is told at which stage of an attempt, and what the daemon hears of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.agent.stories import PLAIN, story_of
from windfall.agent import events
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
    Store,
    Stored,
    Watch,
)
from windfall.agent.credentials import JobUser
from windfall.agent.demotion import Identity
from windfall.agent.events import AgentEvent, LetGo
from windfall.agent.journal import Journal, read_journal
from windfall.agent.launchers import ProcessLauncher
from windfall.agent.machine import Machine
from windfall.agent.messages import Exited, Lost, Message, Progressed, Refused, Result, Start
from windfall.agent.reactor import AgentState, on_event
from windfall.agent.records import Accepted, BegunAnew, Intended, Losing, Noticed, Spawned
from windfall.agent.settings import AgentSettings
from windfall.agent.staged import CLOSING_WITHIN_S, FINISH_WITHIN_S, StagedAttempts
from windfall.agent.stages import Stage
from windfall.agent.steward.messages import Admit
from windfall.jobs.staging import Checkpoints, Mark, Output, Progress, Staging
from windfall.jobs.storage import Grant, StorageAccess

MARK = Mark("step-5", 10, 9, 100, 5)


#: Nobody else can be given a file by a test that is not root, and nobody needs to be.
SOMEBODY = JobUser("somebody", os.getuid(), os.getgid(), (os.getgid(),), drop=True)
THEIRS = Identity(os.getuid(), os.getgid(), (os.getgid(),))
MYSELF = JobUser("me", os.getuid(), os.getgid(), (), drop=False)


class ForeignLauncher(ProcessLauncher):
    """One whose attempts leave files of anybody."""

    has_foreign_files = True


_NOTHING: Any = None
FOREIGN = ForeignLauncher(_NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING)


class FakeSteward:
    """A steward that only remembers."""

    def __init__(self) -> None:
        self.admitted: dict[str, Admit] = {}

    def secret(self, token: str) -> str:
        return f"secret of {token}"

    def admit(self, admit: Admit) -> None:
        self.admitted[admit.token] = admit

    def dismiss(self, token: str) -> None:
        self.admitted.pop(token, None)


class FakeCouriers:
    """Couriers that only remember."""

    def __init__(self) -> None:
        self.steward = FakeSteward()
        self.told: list[Line] = []
        self.users: list[Identity | None] = []
        self.resting: list[Identity | None] = []
        self.on_report = lambda user, report: None
        self.on_new = lambda user: None

    def running(self, user: Identity | None) -> bool:
        return True

    def send(self, user: Identity | None, line: Line) -> None:
        self.users.append(user)
        self.told.append(line)

    def rest(self, user: Identity | None) -> None:
        self.resting.append(user)


class Scene:
    """One agent's staged attempts and all that they say."""

    def __init__(self, root: Path, user: JobUser = MYSELF) -> None:
        self.courier = FakeCouriers()
        self.steward = self.courier.steward
        self.user = THEIRS if user.drop else None
        self.journal = Journal(str(root / "journal"), "boot")
        self.journal.rewrite(0, [])
        self.root = root
        self.said: list[Message] = []
        self.ready: list[Attempt] = []
        self.results: list[Result] = []
        self.released: list[str] = []
        self.broken: list[Attempt] = []
        settings = AgentSettings(str(root / "agent"), str(root / "attempts"))
        machine = Machine(settings, 2.0, 1024, [], user, None, None, [])
        self.state = AgentState()
        self.attempts: dict[str, Attempt] = {}
        self.staged = StagedAttempts(
            self.courier,  # type: ignore[arg-type]  # a fake with the same few members
            machine,
            self.journal.directory,
            self.said.append,
            self.react,
        )

    def react(self, event: AgentEvent) -> None:
        """Do what the agent would."""
        if isinstance(event, LetGo):
            self.released.append(event.token)
        reaction = on_event(self.state, event, 3_000)
        for record in reaction.records:
            self.journal.add(record)
        for action in reaction.actions:
            if isinstance(action, events.StageOut):
                self.staged.save(self.attempts[action.token])
            elif isinstance(action, events.Drop):
                self.staged.drop(self.attempts[action.token])
            elif isinstance(action, events.Launch):
                self.ready.append(self.attempts[action.token])
            elif isinstance(action, events.EndWithin):
                self.broken.append(self.attempts[action.token])
            elif isinstance(action, events.Tell) and isinstance(action.message, Exited | Refused | Lost):
                self.results.append(action.message)

    def leave(self, attempt: Attempt, result: Exited | Lost) -> None:
        self.react(events.Left(attempt.token, result))

    def end(self, attempt: Attempt) -> None:
        self.react(events.Failed(attempt.token, "no", 1))

    def holds(self, token: str) -> bool:
        return token in self.state.in_hand

    def attempt(self, token: str = "t", *, container: bool = False) -> Attempt:
        staging = Staging(checkpoints=Checkpoints("file:///store"))
        access = StorageAccess((Grant("file:///store", write=True),))
        start = Start(
            token,
            "task",
            ["true"],
            {},
            None,
            "/dev/null",
            1.0,
            64,
            [],
            staging=staging,
            fence=7,
            storage=access,
        )
        directories = [f"{self.root}/attempts/{name}" for name in ("task", "task.tmp", "task.ml")]
        intended = Intended(token, "task", "/dev/null", directories, 64, 1.0, True, 1)
        self.journal.add(intended)
        story = story_of(intended, Accepted(start))
        story.order = start
        self.state.stories[token] = story
        attempt = self.attempts[token] = Attempt(story, FOREIGN if container else PLAIN)
        return attempt

    def report(self, *reports: Report) -> None:
        for report in reports:
            self.courier.on_report(self.user, report)

    def last(self) -> Line:
        return self.courier.told[-1]


@pytest.fixture
def stage(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def exited(code: int = 0, at: int = 2_000) -> Exited:
    return Exited("t", code, None, 1_000, at, "bubblewrap")


def test_from_preparing_to_the_end(stage: Scene):
    attempt = stage.attempt()
    stage.staged.take(attempt)
    prepare = stage.last()
    assert isinstance(prepare, Prepare)
    above = f"{stage.root}/attempts"
    assert prepare.errand.places.root == f"{above}/task.ml"
    assert (prepare.errand.directory, prepare.errand.fence, prepare.errand.owner) == (
        f"{above}/task",
        7,
        None,
    )
    assert attempt.stage is Stage.STAGING_IN
    stage.report(News("t", 5, doing="restoring the checkpoint", restored=MARK), Prepared("t", 1_500, 4711))
    assert stage.ready == [attempt]
    assert attempt.stage is Stage.READY
    assert attempt.story.launching is not None
    assert (attempt.story.launching.port, attempt.story.launching.prepared_at) == (4711, 1_500)
    attempt.story.add(Spawned("t", 1, 1, 1_600, "bubblewrap"))
    progress = Progress(at=1, step=3)
    stage.report(News("t", 6, progress=progress), News("t", 7, checkpoint=MARK, alarm="late"))
    stage.leave(attempt, exited(3))
    finish = stage.last()
    assert isinstance(finish, Finish)
    assert (finish.exit_code, finish.interrupted, finish.lose) == (3, False, False)
    assert finish.deadline_at == 2_000 + FINISH_WITHIN_S * 1000
    assert not attempt.running
    assert attempt.story.state == "running", "its place is not free yet"
    stage.report(Finished("t", failure="why"))
    (result,) = stage.results
    assert isinstance(result, Exited)
    assert (result.exit_code, result.exited_at, result.failure) == (3, 2_000, "why")
    assert (result.checkpoint, result.progress) == (MARK, progress)
    assert result.at >= 2_000
    assert not stage.holds("t")
    told = [message for message in stage.said if isinstance(message, Progressed)]
    assert [message.alarm for message in told] == [None, None, "late", None]
    assert told[-1].exited_at == 2_000


def test_a_new_courier_is_told_each_attempt_at_its_stage(stage: Scene):
    preparing, running, leaving = stage.attempt("p"), stage.attempt("r"), stage.attempt("l")
    for attempt in (preparing, running, leaving):
        stage.staged.take(attempt)
    stage.report(Prepared("r", 1, 80), Prepared("l", 1, 81))
    stage.leave(leaving, Exited("l", 0, None, 1, 2, ""))
    stage.courier.told.clear()
    stage.courier.on_new(None)
    assert [type(line) for line in stage.courier.told] == [Prepare, Watch, Finish]
    watch = stage.courier.told[1]
    assert isinstance(watch, Watch)
    assert watch.port == 80


def test_what_cannot_be_prepared_is_refused_in_a_container_engines_words(stage: Scene):
    attempt = stage.attempt()
    stage.staged.take(attempt)
    stage.report(PrepareFailed("t", "there is no such object"))
    (refused,) = stage.results
    assert isinstance(refused, Refused)
    assert refused.reason == "CannotStartContainerError: there is no such object"


def test_an_end_before_the_start_is_held_until_the_courier_has_let_go(stage: Scene):
    attempt = stage.attempt()
    stage.staged.take(attempt)
    stage.end(attempt)
    assert stage.last() == Drop("t")
    assert stage.holds("t")
    stage.report(Prepared("t", 1, 80))
    assert stage.ready == [], "it was on its way when the attempt ended"
    stage.report(Dropped("t"))
    assert (stage.released, stage.holds("t")) == (["t"], False)


def test_a_dead_courier_holds_nothing(stage: Scene):
    attempt = stage.attempt()
    stage.staged.take(attempt)
    stage.end(attempt)
    stage.courier.on_new(None)
    assert stage.released == ["t"]


@pytest.mark.parametrize(("code", "interrupted"), [(143, True), (0, False)])
def test_an_interruption_ends_at_its_deadline_unless_it_was_success(
    stage: Scene, code: int, interrupted: bool
):
    attempt = stage.attempt()
    attempt.story.add(Noticed("t", 1_000, 9_000, ""))
    stage.leave(attempt, exited(code))
    finish = stage.last()
    assert isinstance(finish, Finish)
    assert (finish.interrupted, finish.deadline_at) == (interrupted, 9_000)


def test_what_changes_while_it_is_being_saved_is_said_again(stage: Scene):
    attempt = stage.attempt()
    stage.leave(attempt, exited())
    attempt.story.add(Losing("t"))
    stage.staged.save(attempt)
    finish = stage.last()
    assert isinstance(finish, Finish)
    assert finish.lose
    stage.staged.finish_within_s = CLOSING_WITHIN_S
    stage.staged.save(attempt)
    hurried = stage.last()
    assert isinstance(hurried, Finish)
    assert hurried.deadline_at == 2_000 + CLOSING_WITHIN_S * 1000


def test_the_lost_are_saved_too_and_stay_lost(stage: Scene):
    attempt = stage.attempt()
    lost = Lost("t", 3_000)
    stage.leave(attempt, lost)
    finish = stage.last()
    assert isinstance(finish, Finish)
    assert finish.exit_code is None
    stage.report(Finished("t", checkpoint=MARK))
    assert stage.results == [lost]


def test_the_stages_are_in_the_journal(stage: Scene, tmp_path: Path):
    attempt = stage.attempt()
    stage.staged.take(attempt)
    stage.report(Prepared("t", 1_500, 4711))
    stage.leave(attempt, exited(3))
    stage.journal.flush()
    story = read_journal(str(tmp_path / "journal")).stories["t"]
    assert (story.launching, story.departed) == (attempt.story.launching, exited(3))


def test_an_attempt_that_cannot_come_to_a_good_end_is_stopped_and_says_why(stage: Scene):
    attempt = stage.attempt()
    stage.staged.take(attempt)
    stage.report(Prepared("t", 1, 80), Broken("t", "the channel cannot be fed"))
    assert stage.broken == [attempt]
    stage.leave(attempt, exited(137))
    stage.report(Finished("t"))
    (result,) = stage.results
    assert isinstance(result, Exited)
    assert result.failure == "the channel cannot be fed"


# --- a job of another user --------------------------------------------------------------------------


@pytest.fixture
def apart(tmp_path: Path) -> Scene:
    """An agent whose jobs run as somebody else, with an attempt's directory as a courier leaves it."""
    for name in ("agent", "attempts/task.ml/.windfall/progress", "attempts/task.ml/checkpoints"):
        (tmp_path / name).mkdir(parents=True)
    return Scene(tmp_path, SOMEBODY)


def test_the_data_of_another_user_are_moved_by_a_courier_of_that_user(apart: Scene):
    attempt = apart.attempt()
    apart.staged.take(attempt)
    assert apart.courier.users == [THEIRS]
    prepare = apart.last()
    assert isinstance(prepare, Prepare)
    assert (prepare.errand.owner, prepare.errand.secret) == (None, "secret of t")
    admit = apart.steward.admitted["t"]
    assert (admit.user, admit.secret, admit.port) == (THEIRS, "secret of t", 0)
    assert admit.storage == StorageAccess((Grant("file:///store", write=True),))
    apart.report(Prepared("t", 1, 4711))
    assert apart.ready == [attempt]
    assert apart.steward.admitted["t"].port == 4711
    root = apart.root / "attempts" / "task.ml"
    modes = [path.stat().st_mode & 0o7777 for path in (root, root / ".windfall", root / "checkpoints")]
    assert modes == [0o1770, 0o750, 0o1770]
    apart.leave(attempt, exited())
    assert apart.courier.resting == []
    apart.report(Finished("t"))
    assert (apart.steward.admitted, apart.courier.resting) == ({}, [THEIRS])


def test_what_was_sealed_is_given_back_before_it_is_prepared_again(apart: Scene):
    attempt = apart.attempt()
    apart.staged.take(attempt)
    apart.report(Prepared("t", 1, 4711))
    attempt.story.add(BegunAnew())
    apart.courier.on_new(THEIRS)
    assert isinstance(apart.last(), Prepare)
    root = apart.root / "attempts" / "task.ml"
    modes = {path.stat().st_mode & 0o7777 for path in (root, root / ".windfall", root / "checkpoints")}
    assert modes == {0o700}


def test_a_courier_is_not_believed_about_attempts_of_another_user(apart: Scene):
    attempt = apart.attempt()
    apart.staged.take(attempt)
    for user in (None, Identity(THEIRS.uid + 1, THEIRS.gid)):
        for report in (
            Prepared("t", 1, 80),
            PrepareFailed("t", "no"),
            Broken("t", "no"),
            News("t", 1, doing="x"),
        ):
            apart.courier.on_report(user, report)
    apart.leave(attempt, exited())
    said = list(apart.said)
    apart.courier.on_report(None, Finished("t"))
    assert (apart.ready, apart.results, apart.broken, apart.said) == ([], [], [], said)
    apart.end(attempt)
    apart.courier.on_report(None, Dropped("t"))
    assert apart.holds("t")
    apart.report(Dropped("t"))
    assert not apart.holds("t")


def test_a_new_courier_of_one_user_is_told_of_that_users_attempts_alone(apart: Scene):
    apart.staged.take(apart.attempt("mine"))
    apart.staged.take(apart.attempt("boxed", container=True))
    reader = msgspec.structs.replace(THEIRS, reads_all=True)
    assert apart.courier.users == [THEIRS, reader], "what a container leaves belongs to the user of its image"
    apart.courier.told.clear()
    apart.courier.on_new(THEIRS)
    (prepare,) = apart.courier.told
    assert isinstance(prepare, Prepare)
    assert prepare.errand.token == "mine"


def test_a_link_in_place_of_what_was_prepared_refuses_the_start(apart: Scene, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    apart.staged.take(apart.attempt())
    checkpoints = apart.root / "attempts" / "task.ml" / "checkpoints"
    checkpoints.rmdir()
    checkpoints.symlink_to(tmp_path / "elsewhere")
    apart.report(Prepared("t", 1, 4711))
    (refused,) = apart.results
    assert isinstance(refused, Refused)
    assert "is not as it was prepared" in refused.reason
    assert (tmp_path / "elsewhere").stat().st_mode & 0o7777 == 0o700


def test_what_is_terminated_has_its_grace_to_be_saved_and_no_more(stage: Scene):
    attempt = stage.attempt()
    attempt.story.hurried = (1_500, 30.0)
    stage.staged.take(attempt)
    stage.leave(attempt, exited(143))
    finish = stage.last()
    assert isinstance(finish, Finish)
    assert finish.deadline_at == 2_000 + 30_000, "from the end of its process on"
    attempt.story.hurried = (5_000, 30.0)
    stage.staged.save(attempt)
    finish = stage.last()
    assert isinstance(finish, Finish)
    assert finish.deadline_at == 5_000 + 30_000, "or from when it was asked, if that is later"


MODEL = Output("/opt/ml/model", "s3://b/model.tar.gz")


@pytest.mark.parametrize(("code", "reason"), [(0, "Artifact upload failed: no such bucket"), (3, None)])
def test_what_is_not_stored_fails_the_attempt_and_is_tried_until_it_is(stage: Scene, code, reason):
    attempt = stage.attempt()
    stage.staged.take(attempt)
    stage.leave(attempt, exited(code))
    stage.report(Finished("t", unstored=(MODEL,), why_unstored="no such bucket"))
    (result,) = stage.results
    assert isinstance(result, Exited)
    assert (result.exit_code, result.reason) == (code, reason)
    order = stage.last()
    assert isinstance(order, Store)
    assert order.outputs == (MODEL,)
    assert stage.staged.unstored.directories == set(attempt.intended.private_directories)
    stage.courier.told.clear()
    stage.courier.on_new(stage.user)
    assert stage.courier.told == [order]
    stage.report(Stored("t"))
    assert stage.staged.unstored.directories == set()


def test_what_nobody_wants_any_more_is_not_kept(stage: Scene):
    attempt = stage.attempt()
    attempt.story.given_up = True
    stage.staged.take(attempt)
    stage.leave(attempt, exited(0))
    stage.report(Finished("t", unstored=(MODEL,), why_unstored="no such bucket"))
    (result,) = stage.results
    assert isinstance(result, Exited)
    assert result.reason is None
    assert stage.staged.unstored.directories == set()
