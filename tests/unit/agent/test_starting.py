"""Attempts that wait to be started: what the machine lacks for a moment costs them time and not their start."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import wait_until
from windfall.agent.attempt import Attempt
from windfall.agent.errors import CannotStart
from windfall.agent.journal import Journal
from windfall.agent.launchers import ProcessLauncher
from windfall.agent.messages import Message, Progressed, Start
from windfall.agent.records import Intended, Noticed
from windfall.agent.spawner import Launch, Launched
from windfall.agent.stages import Story
from windfall.agent.starting import PASSING, Starts


def an_attempt(house: House, token: str = "a") -> Attempt:
    log = str(house.directory / f"{token}.log")
    start = Start(token, token, ["true"], {}, None, log, 1.0, 64, [])
    story = Story(Intended(token, token, log, [], 64, 1.0, False, 0), order=start)
    return Attempt(story, house)


class House(ProcessLauncher):
    """Real spawners, and a launcher that meets faults first."""

    def __init__(self, tmp_path: Path, faults: list[Exception], patience_s: float = 60.0) -> None:
        self.directory = tmp_path
        self.faults = faults
        self.refused: list[tuple[str, str]] = []
        self.told: list[Message] = []
        journal = Journal(str(tmp_path / "journal"), "boot")
        journal.rewrite(0, [])
        self.starts = Starts(
            journal,
            lambda: None,
            lambda _: True,
            lambda _: None,
            self.told.append,
            patience_s=patience_s,
            again_s=0.0,
        )

    def not_launched(self, attempt: Attempt, reason: str, _at: int) -> None:
        self.refused.append((attempt.token, reason))

    def launch(self, attempt: Attempt) -> Launch:
        if self.faults:
            raise self.faults.pop(0)
        directory_fd = os.open(self.directory, os.O_PATH | os.O_CLOEXEC)
        log_fd = os.open(attempt.intended.log_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        where = str(self.directory)
        return Launch(attempt.token, ["true"], {}, "/bin:/usr/bin", where, directory_fd, log_fd, None, "p")

    def started(self) -> Launched:
        found: list[Launched] = []

        def look() -> bool:
            self.starts.pump()
            found.extend(self.starts.results())
            return bool(found)

        wait_until(look, "a start")
        os.waitpid(found[0].spawned.pid if found[0].spawned is not None else 0, 0)
        return found[0]


@pytest.mark.parametrize("number", sorted(PASSING), ids=errno.errorcode.__getitem__)
@pytest.mark.parametrize("kind", [OSError, CannotStart])
def test_a_passing_fault_of_the_machine_is_waited_for(
    tmp_path: Path, number: int, kind: Callable[..., Exception]
):
    words = (number, "no") if kind is OSError else ("no", number)
    house = House(tmp_path, [kind(*words), kind(*words)])
    house.starts.waiting.append(an_attempt(house))
    assert house.started().spawned is not None
    assert house.refused == []
    first, last = house.told
    assert isinstance(first, Progressed)
    assert (first.doing or "").startswith("waiting to be started: ")
    assert isinstance(last, Progressed)
    assert last.doing is None
    assert house.starts.next_due is None


def test_a_fault_of_the_attempt_is_told_at_once(tmp_path: Path):
    house = House(tmp_path, [CannotStart("no such thing", errno.ENOENT)])
    house.starts.waiting.append(an_attempt(house))
    house.starts.pump()
    assert house.refused == [("a", "CannotStartContainerError: no such thing")]


def test_what_does_not_pass_is_told_in_the_end(tmp_path: Path):
    house = House(tmp_path, [OSError(errno.EMFILE, "too many")], patience_s=0.0)
    house.starts.waiting.append(an_attempt(house))
    house.starts.pump()
    assert [token for token, _ in house.refused] == ["a"]
    assert not house.starts.waiting


def test_others_are_started_while_one_waits_for_its_next_try(tmp_path: Path):
    house = House(tmp_path, [OSError(errno.EAGAIN, "no process")])
    house.starts = Starts(
        Journal(str(tmp_path / "other"), "boot"),
        lambda: None,
        lambda _: True,
        lambda _: None,
        house.told.append,
        again_s=3600.0,
    )
    first, second = an_attempt(house), an_attempt(house, "b")
    house.starts._journal.rewrite(0, [])
    house.starts.waiting.extend([first, second])
    assert house.started().token == "b"
    assert list(house.starts.waiting) == [first]
    assert house.starts.next_due is not None
    house.starts.drop(first)
    assert house.starts.next_due is None


def test_what_is_to_end_is_not_tried_again(tmp_path: Path):
    house = House(tmp_path, [OSError(errno.ENOSPC, "full")])
    attempt = an_attempt(house)
    attempt.story.add(Noticed("a", 0, 1, ""))
    house.starts.waiting.append(attempt)
    house.starts.pump()
    assert [token for token, _ in house.refused] == ["a"]
