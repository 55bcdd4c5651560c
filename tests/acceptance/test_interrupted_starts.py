"""What becomes of attempts whose agent is killed while it starts them: begun once, never twice, and none in vain lost.

The moment is made by hand: the warden is halted, the agent killed, and its journal given the end that it would have.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.acceptance.test_agent import Daemon, House, launched, public_python
from tests.acceptance.test_staging import FENCE, kept
from tests.waiting import wait_until
from windfall.agent.log_room import open_log
from windfall.agent.messages import Exited, Lost, Start
from windfall.agent.processes import AGENT_VARIABLE, TOKEN_VARIABLE, boot_ticks
from windfall.agent.records import Accepted, Forgotten, Intended, Launching, Record, Spawning
from windfall.agent.sandbox import BUBBLEWRAP, NAMESPACES


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with launched(tmp_path / "house") as built:
        yield built


def wrote(house: House, *records: Record) -> None:
    """The last lines of the agent that was killed."""
    with (house.root / "agent" / "journal").open("ab") as journal:
        journal.write(b"".join(msgspec.json.encode(record) + b"\n" for record in records))


def intended(start: Start, house: House) -> Intended:
    own = [f"{house.root}/attempts/{start.task_id}"]
    return Intended(start.token, start.task_id, start.log_path, own, start.memory_mib, 1.0, False, 1)


@contextmanager
def killed(house: House, daemon: Daemon) -> Iterator[None]:
    """Nobody is there meanwhile."""
    (warden,) = house.wardens
    os.kill(warden.pid, signal.SIGSTOP)
    try:
        os.kill(daemon.inventory.agent_pid, signal.SIGKILL)
        daemon.closed_by_agent()
        yield
    finally:
        os.kill(warden.pid, signal.SIGCONT)


def known(daemon: Daemon) -> dict[str, str]:
    return {status.token: status.state for status in daemon.inventory.attempts}


def test_what_was_only_intended_is_not_known_any_more_and_runs_when_it_is_sent_again(house: House):
    daemon = house.daemon()
    start = house.shell("a", "echo run; exit 7")
    left = house.root / "attempts" / "a"
    with killed(house, daemon):
        wrote(house, intended(start, house))
        left.mkdir(0o700)
        os.close(open_log(start.log_path))
    again = house.daemon()
    assert known(again) == {}
    assert left.is_dir(), "it is the attempt's own when it comes again"
    again.send(start)
    assert again.exited("a").exit_code == 7
    assert house.log("a") == "run\n"
    again.send(house.start("b", "true"))
    again.exited("b")


@contextmanager
def only_prepared(house: House, daemon: Daemon, start: Start, *, sandboxed: bool) -> Iterator[None]:
    """As if the agent had been killed when all was there for an attempt, and its process was not started."""
    daemon.send(start)
    daemon.exited("a")
    journal = house.root / "agent" / "journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    with killed(house, daemon):
        journal.write_bytes(b"".join(lines[:2]))
        (house.logs / "a.log").unlink()
        ends = ("", ".tmp", ".ml") if sandboxed else ("", ".ml")
        private = [f"{house.root}/attempts/a{end}" for end in ends]
        about = Intended("a", "a", start.log_path, private, 1024, 1.0, sandboxed, 1)
        wrote(house, about, Accepted(start), Launching("a", 1, 1))
        yield


def has_sandbox(daemon: Daemon) -> bool:
    return any(ability in daemon.inventory.abilities for ability in (BUBBLEWRAP, NAMESPACES))


def test_a_staged_one_that_was_only_prepared_is_begun_by_the_next_agent_itself(house: House):
    daemon = house.daemon()
    start = house.start("a", public_python(), "-c", "print('began')", staging=kept(house), fence=FENCE)
    with only_prepared(house, daemon, start, sandboxed=has_sandbox(daemon)):
        pass
    again = house.daemon()
    assert known(again) == {"a": "starting"}
    assert again.exited("a").exit_code == 0
    assert house.log("a") == "began\n"


def test_one_that_was_prepared_for_a_sandbox_which_is_gone_is_not_known_and_runs_when_it_is_sent_again(
    tmp_path: Path,
):
    """bubblewrap may have been removed, or namespaces forbidden, since the agent before."""
    with launched(tmp_path / "house", use_sandbox=False) as house:
        daemon = house.daemon()
        start = house.start("a", public_python(), "-c", "print('began')", staging=kept(house), fence=FENCE)
        with only_prepared(house, daemon, start, sandboxed=True):
            pass
        again = house.daemon()
        assert known(again) == {}
        again.send(start)
        assert again.exited("a").exit_code == 0
        assert house.log("a") == "began\n"


def test_a_start_that_was_announced_and_left_no_trace_was_none(house: House):
    daemon = house.daemon()
    start = house.shell("a", "exit 7")
    with killed(house, daemon):
        wrote(house, intended(start, house), Spawning("a", boot_ticks()))
    again = house.daemon()
    assert known(again) == {}
    again.send(start)
    assert again.exited("a").exit_code == 7


def test_a_start_that_was_announced_and_whose_process_runs_is_adopted(house: House):
    daemon = house.daemon()
    start = house.shell("a", "exit 7")
    agent_id = house.settings.agent_id
    with killed(house, daemon):
        announced = Spawning("a", boot_ticks())
        process = subprocess.Popen(
            ["sleep", "1000"], env={AGENT_VARIABLE: agent_id, TOKEN_VARIABLE: "a"}, start_new_session=True
        )
        wrote(house, intended(start, house), announced)
    again = house.daemon()
    try:
        assert known(again) == {"a": "running"}
        again.send(start)
    finally:
        process.kill()
        process.wait()
    assert isinstance(again.result("a"), Exited | Lost)


#: A process of a job that hides whose it is, and ends when the file is there.
HIDES = "(setsid env -i /bin/sh -c 'while [ ! -e {gate} ]; do sleep 0.02; done' &); echo up; exec sleep 1000"


def test_where_something_ended_that_may_have_been_it_it_is_lost(house: House):
    daemon = house.daemon()
    gate, announced = house.root / "gate", Spawning("a", boot_ticks())
    daemon.send(house.shell("beside", HIDES.format(gate=gate)))
    wait_until(lambda: (house.logs / "beside.log").exists() and house.log("beside") == "up\n", "it is up")
    with killed(house, daemon):
        wrote(house, intended(house.start("a", "true"), house), announced)
        gate.touch()
    again = house.daemon()
    assert isinstance(again.result("a"), Lost)
    assert known(again)["beside"] == "running"


def test_with_another_warden_nobody_knows_what_became_of_it(house: House):
    house.daemon()
    announced = Spawning("a", boot_ticks())
    house.kill_all()
    wrote(house, intended(house.start("a", "true"), house), announced)
    house.launch()
    again = house.daemon()
    assert isinstance(again.result("a"), Lost)


def test_what_was_forgotten_again_stays_forgotten(house: House):
    daemon = house.daemon()
    with killed(house, daemon):
        wrote(house, intended(house.start("a", "true"), house), Forgotten(["a"]))
    assert known(house.daemon()) == {}
