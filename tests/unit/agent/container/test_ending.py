"""How containers are stopped, and what becomes of them when a keeper, an agent or the engine dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docker_engine import IMAGE, RunningEngine, require_docker, running_engine
from tests.unit.agent.container.house import ContainerHouse, over_both
from tests.waiting import wait_until
from windfall.agent.container.request import AGENT_LABEL, TOKEN_LABEL
from windfall.agent.messages import Exited, Interrupt, Refused, Shutdown, Stop
from windfall.jobs.containers import Mount

#: Says that it is there, and again when it is told to end.
LISTENS = "trap 'echo told; exit 3' TERM; echo ready; while true; do sleep 0.05; done"
#: Goes on whatever it is told.
DEAF = "trap '' TERM; echo ready; while true; do sleep 0.05; done"


def ready(house: ContainerHouse, token: str) -> None:
    path = house.logs / f"{token}.log"
    wait_until(lambda: path.exists() and "ready" in path.read_text(), f"{token} says that it is ready")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- stopping ---------------------------------------------------------------------------------------


@over_both
def test_a_stop_is_told_the_container_and_its_own_code_counts(house: ContainerHouse):
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", LISTENS))
    ready(house, "a")
    daemon.send(Stop("a", 60.0))
    assert daemon.exited("a").exit_code == 3
    assert house.log("a") == "ready\ntold\n"


@over_both
def test_a_container_that_has_said_nothing_can_be_stopped(house: ContainerHouse):
    daemon = house.daemon()
    daemon.send(house.contain("a", "sleep", "1000"))
    daemon.started("a")
    daemon.send(Stop("a", 0.0))
    assert daemon.exited("a").exit_code == 137


def test_the_stop_signal_is_the_images(house: ContainerHouse, engine: RunningEngine):
    image = engine.build_image("polite:1", StopSignal="SIGUSR2")
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", LISTENS.replace("TERM", "USR2"), image=image))
    ready(house, "a")
    daemon.send(Stop("a", 60.0))
    assert daemon.exited("a").exit_code == 3


def test_what_does_not_stop_is_killed_when_its_grace_is_over(house: ContainerHouse, engine: RunningEngine):
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", DEAF))
    ready(house, "a")
    daemon.send(Stop("a", 0.3))
    assert daemon.exited("a").exit_code == 137
    assert not engine.has(house.name("a"))


def test_a_notice_reaches_those_who_listen_behind_a_deaf_shell(house: ContainerHouse):
    daemon = house.daemon()
    # The first process does not listen; its child does, saves, and leaves; then the shell goes on to its end.
    daemon.send(house.contain_shell("a", f'sh -c "{LISTENS}"; echo child $?; exit 9'))
    ready(house, "a")
    daemon.send(Interrupt("a", now_ms() + 600_000))
    assert daemon.exited("a").exit_code == 9
    assert house.log("a") == "ready\ntold\nchild 3\n"


def test_a_notice_ends_with_a_kill_at_its_deadline(house: ContainerHouse):
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", DEAF))
    ready(house, "a")
    daemon.send(Interrupt("a", now_ms() + 1_000))
    assert daemon.exited("a").exit_code == 137


def test_a_shutdown_of_the_agent_stops_containers_too(house: ContainerHouse, engine: RunningEngine):
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", LISTENS))
    ready(house, "a")
    daemon.send(Shutdown(kill=True, grace_s=60.0))
    assert daemon.exited("a").exit_code == 3
    daemon.closed_by_agent()
    assert not engine.has(house.name("a"))


# --- deaths -----------------------------------------------------------------------------------------


@over_both
def test_a_killed_keeper_is_replaced_and_no_line_is_lost_or_doubled(house: ContainerHouse):
    daemon = house.daemon()
    script = "i=0; echo ready; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); [ $i = 1500 ] && sleep 0.5; done; exit 5"
    daemon.send(house.contain_shell("a", script))
    started = daemon.started("a")
    for _ in range(3):
        keeper = house.state("a")["keeper"]
        os.kill(keeper, signal.SIGKILL)
        wait_until(
            lambda keeper=keeper: house.state("a").get("keeper") != keeper or "exit_code" in house.state("a"),
            "another keeper has come",
        )
    exited = daemon.exited("a")
    assert (exited.exit_code, exited.started_at) == (5, started.at)
    assert house.log("a").splitlines() == ["ready", *(str(n) for n in range(3000))]


def test_a_stop_is_not_lost_with_the_keeper_that_should_have_told_it(house: ContainerHouse):
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", LISTENS))
    ready(house, "a")
    keeper = house.state("a")["keeper"]
    os.kill(keeper, signal.SIGKILL)
    daemon.send(Stop("a", 60.0))
    assert daemon.exited("a").exit_code == 3
    assert house.log("a") == "ready\ntold\n"


def test_a_new_keeper_that_is_stopped_at_once_reports_what_ran(house: ContainerHouse):
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", LISTENS))
    ready(house, "a")
    daemon.send(Stop("a", 60.0))
    for _ in range(2):
        with contextlib.suppress(ProcessLookupError):
            os.kill(house.state("a")["keeper"], signal.SIGKILL)
    exited = daemon.exited("a")
    assert (exited.exit_code, exited.started_at) == (3, daemon.started("a").at)


#: A keeper that dies in the moment in which it would tell the container.
MUTE = (
    "import os, sys; from windfall.agent.container import engine, keeper;"
    "engine.Engine.kill = lambda *_: os._exit(9); keeper.main(sys.argv[1])"
)


def test_a_stop_that_died_with_its_keeper_is_told_by_the_next(house: ContainerHouse):
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", LISTENS))
    ready(house, "a")
    os.kill(daemon.inventory.agent_pid, signal.SIGSTOP)  # or it would start a keeper of its own
    os.kill(house.state("a")["keeper"], signal.SIGKILL)
    mute = subprocess.Popen(
        [sys.executable, "-c", MUTE, str(house.keeper_directory("a"))], stdout=subprocess.DEVNULL
    )
    wait_until(lambda: house.state("a")["keeper"] == mute.pid, "the other keeper is there")
    mute.terminate()
    assert mute.wait(60) == 9
    os.kill(daemon.inventory.agent_pid, signal.SIGCONT)
    daemon.send(Stop("a", 600.0))
    assert daemon.exited("a").exit_code == 3


@over_both
def test_the_next_agent_adopts_a_container_and_learns_how_it_ends(house: ContainerHouse):
    daemon = house.daemon()
    go = house.root / "go"
    go.mkdir()
    script = "echo ready; while [ ! -e /go/now ]; do sleep 0.05; done; echo went; exit 6"
    daemon.send(house.contain_shell("a", script, mounts=(Mount(str(go), "/go"),)))
    ready(house, "a")
    started = daemon.started("a")
    keeper = house.state("a")["keeper"]
    os.kill(daemon.inventory.agent_pid, signal.SIGKILL)
    daemon.closed_by_agent()
    after = house.daemon(epoch=2)
    status = next(one for one in after.inventory.attempts if one.token == "a")
    assert (status.state, status.started_at) == ("running", started.at)
    assert house.state("a")["keeper"] == keeper, "a keeper outlives its agent"
    (go / "now").touch()
    exited = after.exited("a")
    assert (exited.exit_code, house.log("a")) == (6, "ready\nwent\n")


def test_a_container_that_ended_while_agent_and_keeper_were_dead_is_reported(house: ContainerHouse):
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", "echo ready; sleep 0.3; echo last; exit 4"))
    ready(house, "a")
    os.kill(daemon.inventory.agent_pid, signal.SIGKILL)
    os.kill(house.state("a")["keeper"], signal.SIGKILL)
    daemon.closed_by_agent()
    exited = house.daemon(epoch=2).exited("a")
    assert (exited.exit_code, house.log("a")) == (4, "ready\nlast\n")


def test_a_container_that_somebody_else_removes_is_not_run_again(
    house: ContainerHouse, engine: RunningEngine
):
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", DEAF))
    ready(house, "a")
    engine.api.remove(house.name("a"))
    result = daemon.exited("a")
    assert result.exit_code in (None, 137)
    assert house.log("a") == "ready\n"


@over_both
def test_containers_that_no_journal_knows_are_removed_and_those_of_others_are_not(
    make_house: Callable[..., ContainerHouse], engine: RunningEngine
):
    first, second = make_house(), make_house()
    one, two = first.daemon(), second.daemon()
    one.send(first.contain_shell("a", DEAF))
    two.send(second.contain_shell("a", DEAF))
    ready(first, "a")
    ready(second, "a")
    labels = {AGENT_LABEL: first.settings.agent_id, TOKEN_LABEL: "forgotten"}
    body = {"Image": IMAGE, "Cmd": ["sleep", "60"], "Labels": labels, "HostConfig": {"NetworkMode": "host"}}
    left = engine.api.create("left-behind", body)
    engine.api.start(left)
    os.kill(one.inventory.agent_pid, signal.SIGKILL)
    one.closed_by_agent()
    first.daemon(epoch=2)
    wait_until(lambda: not engine.has(left), "the leftover is removed")
    for house in (first, second):
        found = engine.api.inspect(house.name("a"))
        assert found is not None
        assert found["State"]["Running"], "a live attempt's container is nobody's leftover"


def test_an_engine_that_goes_away_and_comes_back_ends_in_an_answer(tmp_path: Path):
    require_docker()
    with running_engine() as engine:
        root = tmp_path / "house"
        root.mkdir()
        house = ContainerHouse(root, container_socket=str(engine.socket), sample_every_s=0.0)
        house.launch()
        try:
            daemon = house.daemon()
            daemon.send(house.contain_shell("a", LISTENS))
            ready(house, "a")
            # dockerd stops its containers when it ends.
            engine.down()
            engine.up()
            exited = daemon.exited("a")
            assert isinstance(exited, Exited)
            assert exited.exit_code in (3, 137)
            daemon.send(house.contain_shell("b", "exit 0"))
            assert daemon.exited("b").exit_code == 0
        finally:
            house.close()


def test_a_stop_before_the_container_runs_leaves_nothing(house: ContainerHouse, engine: RunningEngine):
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", "echo ran"), Stop("a", 0.0))
    result = daemon.result("a")
    assert isinstance(result, Refused | Exited)
    wait_until(lambda: not engine.has(house.name("a")), "no container is left")


@pytest.mark.parametrize("repeated", [1, 2])
def test_a_known_token_is_never_run_again(house: ContainerHouse, repeated: int):
    daemon = house.daemon()
    start = house.contain_shell("a", "echo ran")
    daemon.send(start)
    first = daemon.exited("a")
    daemon.heard.clear()
    for _ in range(repeated):
        daemon.send(start)
    assert daemon.exited("a") == first
    assert house.log("a") == "ran\n"
