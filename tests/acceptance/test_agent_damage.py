"""An agent whose files are damaged or removed: no attempt runs twice at once, and it can be reached again."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_agent import House, is_alive, launched, public_python
from tests.acceptance.test_interrupted_starts import killed, known
from tests.acceptance.test_staging import kept, staged
from tests.waiting import wait_until
from windfall.agent.cgroups import find_cgroups
from windfall.agent.messages import Forget, Lost, Stop
from windfall.agent.warden import BUSY_CODE

FOREVER = "echo begun; while :; do sleep 0.05; done"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with launched(tmp_path / "house") as built:
        yield built


def _emptied(journal: Path) -> None:
    os.truncate(journal, 0)


def _removed(journal: Path) -> None:
    journal.unlink()


def _junk(journal: Path) -> None:
    journal.write_bytes(bytes(range(256)) * 100)


def _other_json(journal: Path) -> None:
    journal.write_text('{"a": 1}\n[]\n["X", 3]\n' * 50)


def _junk_in_the_middle(journal: Path) -> None:
    lines = journal.read_bytes().splitlines(keepends=True)
    for number in range(2, len(lines), 3):
        lines[number] = b"\xff\x00 junk" * 5 + b"\n"
    journal.write_bytes(b"".join(lines))


def _junk_at_the_beginning(journal: Path) -> None:
    content = journal.read_bytes()
    journal.write_bytes(b"\xff" * 100 + content[100:])


def _without(word: str) -> Callable[[Path], None]:
    def harm(journal: Path) -> None:
        lines = journal.read_bytes().splitlines(keepends=True)
        kept = [b"junk\n" if line.startswith(f'["{word}"'.encode()) else line for line in lines]
        journal.write_bytes(b"".join(kept))

    return harm


HARMS = {
    "emptied": _emptied,
    "removed": _removed,
    "junk": _junk,
    "other json": _other_json,
    "junk in the middle": _junk_in_the_middle,
    "junk at the beginning": _junk_at_the_beginning,
    "no intents": _without("I"),
    "no announcements": _without("P"),
    "no processes": _without("S"),
    "no boot": _without("B"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_journal_lets_no_attempt_run_beside_what_is_left_of_it(house: House, harm: str):
    daemon = house.daemon()
    tokens = [f"job#{number}" for number in range(3)]
    daemon.send(*(house.shell(token, FOREVER) for token in tokens))
    pids = {token: daemon.started(token).pid for token in tokens}
    with killed(house, daemon):
        HARMS[harm](house.root / "agent" / "journal")
    again = house.daemon()
    runs = known(again)
    for token in tokens:
        if token in runs and runs[token] == "running":
            assert is_alive(pids[token])
        else:
            assert not is_alive(pids[token]), "nothing is left of it before the daemon can start it anew"
    said = (house.root / "agent.log").read_text()
    if set(runs) != set(tokens) or harm not in ("emptied", "removed"):
        assert "damaged" in said
    # The daemon closes what the agent does not know, and every attempt can be ended.
    again.send(*(Stop(token, 0.0) for token in tokens))
    for token in tokens:
        again.result(token)
    wait_until(lambda: not any(map(is_alive, pids.values())), "all have ended")
    for token in tokens:
        assert house.log(token) == "begun\n"


def test_what_hides_its_descent_is_stopped_with_the_rest(house: House):
    daemon = house.daemon()
    group = find_cgroups(f"windfall-{house.settings.agent_id}")
    script = (
        "sh -c 'echo $$ > child; while :; do sleep 0.05; done' & env -i setsid sh -c 'echo $$ > hidden;"
        " while :; do sleep 0.05; done' & while :; do sleep 0.05; done"
    )
    daemon.send(house.shell("a", script))
    daemon.started("a")
    here = house.root / "attempts" / "a"
    names = ["child", "hidden"] if group is not None else ["child"]
    wait_until(
        lambda: all((here / name).exists() and (here / name).read_text() for name in names), "they run"
    )
    pids = [int((here / name).read_text()) for name in names]
    with killed(house, daemon):
        _removed(house.root / "agent" / "journal")
    house.daemon()
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize("harm", ["emptied", "removed"])
def test_a_journal_that_is_harmed_while_the_agent_lives_is_written_again(house: House, harm: str):
    daemon = house.daemon()
    daemon.send(house.shell("a", FOREVER))
    pid = daemon.started("a").pid
    journal = house.root / "agent" / "journal"
    HARMS[harm](journal)
    wait_until(lambda: journal.exists() and b'"a"' in journal.read_bytes(), "the journal is whole again")
    os.kill(daemon.inventory.agent_pid, signal.SIGKILL)
    daemon.closed_by_agent()
    again = house.daemon()
    assert known(again) == {"a": "running"}
    assert is_alive(pid)
    again.send(Stop("a", 0.0))
    assert again.exited("a").exit_code == 137


def test_an_agent_whose_socket_was_removed_listens_again(house: House):
    daemon = house.daemon()
    daemon.send(house.shell("a", FOREVER))
    pid = daemon.started("a").pid
    house.socket.unlink()
    again = house.daemon(epoch=2)
    assert again.inventory.agent_pid == daemon.inventory.agent_pid
    assert known(again) == {"a": "running"}
    assert is_alive(pid)
    house.socket.unlink()
    house.socket.write_text("somebody else's")
    once_more = house.daemon(epoch=3)
    assert known(once_more) == {"a": "running"}
    assert "was removed; listening there again" in (house.root / "agent.log").read_text()


def test_groups_of_attempts_that_ended_without_an_agent_are_removed(house: House, require):
    tree = find_cgroups(f"windfall-{house.settings.agent_id}")
    require(tree is not None, "no cgroup can be written here")
    daemon = house.daemon()
    tokens = [f"job#{number}" for number in range(5)]
    go = house.root / "go"
    daemon.send(*(house.shell(token, f"until test -e {go}; do sleep 0.02; done") for token in tokens))
    daemon.send(house.shell("stays", FOREVER))
    pids = [daemon.started(token).pid for token in tokens]
    daemon.started("stays")
    everyone = {*tokens, "stays"}
    wait_until(lambda: all(tree.group(token).exists() for token in everyone), "all are in their groups")
    with killed(house, daemon):
        go.touch()
        wait_until(lambda: not any(map(is_alive, pids)), "they have ended")
    again = house.daemon()
    for token in tokens:
        again.result(token)
    wait_until(lambda: not tree.others({"stays"}), "no group is left")
    assert tree.group("stays").exists()
    again.send(Stop("stays", 0.0))
    again.result("stays")
    again.send(Forget([*everyone]))
    wait_until(lambda: not tree.others(set()), "the last group is gone too")


def test_an_unknown_attempt_is_lost_when_the_daemon_asks(house: House):
    daemon = house.daemon()
    daemon.send(house.shell("a", FOREVER))
    daemon.started("a")
    with killed(house, daemon):
        _emptied(house.root / "agent" / "journal")
    again = house.daemon()
    assert known(again) == {}
    again.send(Stop("a", 0.0))
    assert isinstance(again.result("a"), Lost)
    again.send(house.shell("a#2", "echo second"))
    assert again.exited("a#2").exit_code == 0


def test_an_agent_works_below_a_very_long_path(tmp_path: Path):
    with launched(tmp_path / ("deep" * 30)) as house:
        assert len(str(house.socket)) > 107
        daemon = house.daemon()
        daemon.send(house.shell("a", "echo run"))
        assert daemon.exited("a").exit_code == 0
        house.socket.unlink()
        assert house.daemon(epoch=2).inventory.agent_pid == daemon.inventory.agent_pid


def test_a_job_that_leaves_a_deep_directory_keeps_nobody_from_being_tidied_up(house: House):
    daemon = house.daemon()
    deep = "import os\nfor i in range(1500):\n os.mkdir('d'); os.chdir('d')"
    daemon.send(house.start("deep", public_python(), "-c", deep, task_id="0" * 32))
    daemon.send(*(house.shell(f"full{n}", "echo much > file", task_id=f"{n:032x}") for n in range(1, 6)))
    tokens = ["deep", *(f"full{n}" for n in range(1, 6))]
    for token in tokens:
        assert daemon.exited(token).exit_code == 0
    daemon.send(Forget(tokens))
    attempts = house.root / "attempts"

    def is_tidy() -> bool:
        with contextlib.suppress(FileNotFoundError):  # One is removed while it is looked at.
            return not any(any(place.iterdir()) for place in attempts.iterdir())
        return False

    try:
        wait_until(is_tidy, "all is removed")
    finally:
        subprocess.run(["rm", "-rf", str(attempts)], check=True)  # pytest could not remove it either


@pytest.mark.parametrize("made_again", [False, True])
def test_an_agent_whose_directory_was_removed_makes_it_again_and_goes_on(house: House, made_again: bool):
    daemon = house.daemon()
    daemon.send(house.shell("a", FOREVER))
    pid = daemon.started("a").pid
    agent = house.root / "agent"
    shutil.rmtree(agent)
    if made_again:
        agent.mkdir(mode=0o700)
    again = house.daemon(epoch=2)
    assert again.inventory.agent_pid == daemon.inventory.agent_pid
    assert known(again) == {"a": "running"}
    # A staged attempt needs a courier, which needs the directory.
    again.send(staged(house, "b", "exit 3", kept(house)))
    assert again.exited("b").exit_code == 3
    # Nobody else can serve the directory meanwhile.
    house.launch()
    assert house.wardens[-1].wait(60) == BUSY_CODE
    # What the journal holds is what the next agent needs.
    wait_until((agent / "journal").exists, "a journal")
    os.kill(again.inventory.agent_pid, signal.SIGKILL)
    again.closed_by_agent()
    wait_until(lambda: not is_alive(again.inventory.agent_pid), "nobody holds the lock any more")
    house.launch()
    third = house.daemon(epoch=3)
    assert known(third)["a"] == "running"
    assert is_alive(pid)
    third.send(Stop("a", 0.0))
    third.result("a")
    wait_until(lambda: not is_alive(pid), "it has ended")


def test_an_agent_whose_directory_another_one_serves_ends(house: House):
    daemon = house.daemon()
    (house.root / "agent").rename(house.root / "away")
    other = house.launch().wardens[-1]
    assert daemon.closed_by_agent()
    wait_until(lambda: not is_alive(daemon.inventory.agent_pid), "the first has ended")
    assert house.wardens[0].wait(60) == 0, "and its warden starts no other"
    assert other.poll() is None
    assert house.daemon(epoch=2).inventory.agent_pid != daemon.inventory.agent_pid
