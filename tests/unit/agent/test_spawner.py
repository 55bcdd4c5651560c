"""What the journal is told of starts: no process exists before its start was announced, in whatever company."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.waiting import wait_until
from windfall.agent.credentials import JobUser
from windfall.agent.records import Spawned, Spawning
from windfall.agent.spawner import Launch, Launched, Spawner


class Scene:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lines: list[Spawning | Spawned] = []
        self.spawner = Spawner(self._write, lambda: None, "spawner-of-a-test")

    def _write(self, *records: Spawning | Spawned) -> None:
        self.lines += records

    def launch(
        self,
        token: str,
        program: str = "true",
        *arguments: str,
        user: JobUser | None = None,
        umask: int = 0o022,
    ) -> Launch:
        directory_fd = os.open(self.directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        log_fd = os.open(self.directory / token, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        path = "/usr/bin:/bin"
        argv, environment, where = [program, *arguments], {"PATH": path}, str(self.directory)
        return Launch(
            token, argv, environment, path, where, directory_fd, log_fd, None, "process", user, umask
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


def _rights(scene: Scene, token: str) -> dict[str, list[str]]:
    lines = (line.split() for line in (scene.directory / token).read_text().splitlines())
    return {words[0]: words[1:] for words in lines}


def test_each_process_of_a_batch_has_its_own_user_and_nothing_of_the_agents(scene: Scene, require):
    require(os.geteuid() == 0, "only root starts processes as others")
    alice = JobUser("alice", 200_001, 200_002, (200_002, 200_007), drop=True)
    bob = JobUser("bob", 200_003, 200_003, (), drop=True)
    wanted = {"a": alice, "b": bob, "r": None, "c": alice, "d": alice, "e": bob}
    look = ("/proc/self/status",)
    scene.directory.chmod(0o755)
    scene.start(*(scene.launch(token, "cat", *look, user=user) for token, user in wanted.items()))
    for token, user in wanted.items():
        seen = _rights(scene, token)
        if user is None:
            assert seen["Uid:"] == ["0"] * 4
            continue
        assert seen["Uid:"] == [str(user.uid)] * 4
        assert seen["Gid:"] == [str(user.gid)] * 4
        assert [int(group) for group in seen["Groups:"]] == list(user.groups)
        assert {seen[kind][0].strip("0") for kind in ("CapPrm:", "CapEff:", "CapAmb:")} == {""}


def test_between_two_batches_no_thread_is_a_job_user(scene: Scene, require):
    """A job may signal the threads that run as its own user, and a signal to one thread ends the whole agent."""
    require(os.geteuid() == 0, "only root starts processes as others")
    scene.start(scene.launch("a", user=JobUser("bob", 200_003, 200_003, (), drop=True)))

    def users() -> set[str]:
        texts = (path.read_text() for path in Path("/proc/self/task").glob("*/status"))
        return {line for text in texts for line in text.splitlines() if line.startswith("Uid:")}

    wait_until(lambda: users() == {"Uid:\t0\t0\t0\t0"}, "all threads are root again")


def test_a_user_that_may_not_enter_the_directory_is_told_so_and_the_next_one_starts(scene: Scene, require):
    require(os.geteuid() == 0, "only root starts processes as others")
    scene.directory.chmod(0o700)
    bob = JobUser("bob", 200_003, 200_003, (), drop=True)
    refused, started = scene.start(scene.launch("a", user=bob), scene.launch("b"))
    assert refused.reason is not None
    assert "permission denied" in refused.reason
    assert started.spawned is not None


def test_each_process_has_its_own_umask(scene: Scene):
    wanted = {"a": 0o22, "b": 0o77, "c": 0o22}
    scene.start(*(scene.launch(token, "sh", "-c", "umask", umask=umask) for token, umask in wanted.items()))
    said = {token: int((scene.directory / token).read_text(), 8) for token in wanted}
    assert said == wanted
