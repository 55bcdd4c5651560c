"""Whose a process is that outlived its parent, and when it is killed. The processes are real."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from windfall.agent.orphans import Orphans
from windfall.agent.processes import AGENT_VARIABLE, TOKEN_VARIABLE, OrphanWatch

AGENT = "agent-of-these-tests"


@dataclass
class Owner:
    token: str
    starting: bool = False
    gone: bool = False


class Seen(OrphanWatch):
    """Sees the orphans of a test alone: this process has other children, which must not be killed."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def pids(self) -> list[int]:
        return self.seen


class Scene:
    def __init__(self) -> None:
        self.watch = Seen()
        self.orphans = Orphans(AGENT, self.watch)
        self.processes: list[subprocess.Popen[bytes]] = []

    def orphan(self, token: str | None) -> subprocess.Popen[bytes]:
        """A process with a session of its own; without a token it hides whose it is."""
        marks = {} if token is None else {AGENT_VARIABLE: AGENT, TOKEN_VARIABLE: token}
        process = subprocess.Popen(
            ["/bin/sh", "-c", "echo; exec sleep 1000"],
            env=marks,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()  # From now on it has its environment.
        self.watch.seen.append(process.pid)
        return process

    def sweep(self, *attempts: Owner) -> None:
        own = {1_000_000_000 + n: one for n, one in enumerate(attempts) if not one.starting and not one.gone}
        self.orphans.kill_those_of_ended(own, {one.token: one for one in attempts})


@pytest.fixture
def scene() -> Iterator[Scene]:
    built = Scene()
    yield built
    for process in built.processes:
        process.kill()
        process.communicate()


def killed(process: subprocess.Popen[bytes]) -> bool:
    """A killed process is collected at once; one that was left alone is still there."""
    try:
        return process.wait(0.2) == -signal.SIGKILL
    except subprocess.TimeoutExpired:
        return False


@pytest.mark.parametrize("token", ["a", None], ids=["marked", "hidden"])
def test_an_orphan_of_an_attempt_that_is_only_just_starting_is_left_alone(scene: Scene, token: str | None):
    orphan = scene.orphan(token)
    a = Owner("a", starting=True)
    scene.sweep(a, Owner("short", gone=True))
    a.starting = False
    scene.sweep(a)
    assert not killed(orphan)
    a.gone = True
    scene.sweep(a)
    assert killed(orphan)


def test_an_orphan_of_an_ended_attempt_is_killed_whoever_else_runs(scene: Scene):
    orphan = scene.orphan("a")
    scene.sweep(Owner("a", gone=True), Owner("b"))
    assert killed(orphan)


def test_a_hidden_orphan_is_killed_when_the_last_that_it_may_belong_to_has_ended(scene: Scene):
    orphan = scene.orphan(None)
    a, b = Owner("a"), Owner("b")
    scene.sweep(a, b)
    a.gone = True
    scene.sweep(a, b, Owner("later"))
    assert not killed(orphan)
    b.gone = True
    scene.sweep(a, b, Owner("later"))
    assert killed(orphan)


def test_an_orphan_that_had_no_environment_when_it_was_first_seen_is_known_by_it_later(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    orphan = scene.orphan("a")
    a, b = Owner("a"), Owner("b")
    unread: Callable[[int, str], str | None] = lambda _pid, _agent: None  # noqa: E731 - as while it becomes another program
    with monkeypatch.context() as patch:
        patch.setattr("windfall.agent.orphans.attempt_token", unread)
        scene.sweep(a, b)
    assert scene.orphans.of("a") == []
    scene.sweep(a, b)
    assert scene.orphans.of("a") == [orphan.pid]
    a.gone = True
    scene.sweep(a, b)
    assert killed(orphan)
