"""What the journal is told of starts: no process exists before its start was announced, in whatever company."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.waiting import wait_until
from windfall.agent.journal import Spawned, Spawning
from windfall.agent.spawner import Launch, Launched, Spawner


class Scene:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lines: list[Spawning | Spawned] = []
        self.spawner = Spawner(None, self._write, lambda: None, "spawner-of-a-test")

    def _write(self, *records: Spawning | Spawned) -> None:
        self.lines += records

    def launch(self, token: str, program: str = "true") -> Launch:
        directory_fd = os.open(self.directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        log_fd = os.open(self.directory / token, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        path = "/usr/bin:/bin"
        return Launch(
            token, [program], {"PATH": path}, path, str(self.directory), directory_fd, log_fd, None, "process"
        )

    def start(self, *launches: Launch) -> list[Launched]:
        found: list[Launched] = []
        self.spawner.submit(list(launches))

        def all_there() -> bool:
            found.extend(self.spawner.results())
            return len(found) == len(launches)

        wait_until(all_there, "all are started or refused")
        for one in found:
            if one.spawned is not None:
                os.waitpid(one.spawned.pid, 0)
        return found

    def announced_before(self, token: str) -> bool:
        names = [(type(line), line.token) for line in self.lines]
        return (Spawning, token) in names[: names.index((Spawned, token))]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_every_start_is_announced_and_those_of_a_batch_with_the_line_before(scene: Scene):
    scene.start(*(scene.launch(token) for token in "abc"))
    assert [(type(line).__name__, line.token) for line in scene.lines] == [
        ("Spawning", "a"),
        ("Spawned", "a"),
        ("Spawning", "b"),
        ("Spawned", "b"),
        ("Spawning", "c"),
        ("Spawned", "c"),
    ]


@pytest.mark.parametrize("order", [("a", "missing", "b"), ("missing", "a", "b"), ("a", "b", "missing")])
def test_one_that_is_refused_leaves_none_unannounced(scene: Scene, order: tuple[str, ...]):
    programs = {"missing": "no-such-program"}
    results = scene.start(*(scene.launch(token, programs.get(token, "true")) for token in order))
    assert {one.token for one in results if one.spawned is None} == {"missing"}
    assert scene.announced_before("a")
    assert scene.announced_before("b")


def test_what_was_announced_in_vain_is_announced_again_when_it_is_tried_again(scene: Scene):
    """The journal may have been written anew between the two, without the first line."""
    scene.start(scene.launch("a"), scene.launch("b", "no-such-program"))
    assert Spawning in {type(line) for line in scene.lines if line.token == "b"}
    scene.lines.clear()
    scene.start(scene.launch("b"))
    assert scene.announced_before("b")
