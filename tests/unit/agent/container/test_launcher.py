"""What the agent does with what keepers have written, without an engine."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.agent.stories import PLAIN
from tests.unit.agent.test_preparation import a_machine, a_start
from windfall.agent.attempt import Attempt
from windfall.agent.container.finding import EngineFacts
from windfall.agent.container.launcher import ContainerLauncher
from windfall.agent.container.orders import keeper_directory, make_orders
from windfall.agent.container.state import KeeperState
from windfall.agent.errors import CannotStart
from windfall.agent.events import AgentEvent, Began, Failed
from windfall.agent.gpus import GpuDevice
from windfall.agent.launchers import Launcher
from windfall.agent.machine import Machine
from windfall.agent.messages import Exited, Lost, Message, Progressed, Start
from windfall.agent.preparation import intend
from windfall.agent.records import Accepted, Begun, Launching, Spawned
from windfall.agent.stages import Story
from windfall.jobs.containers import ContainerOptions, ContainerRun
from windfall.jobs.staging import Checkpoints, Staging

DOCKER = EngineFacts("/d.sock", "1.41", "docker", "20.10.24", 8.0)


def a_container(**fields: Any) -> Start:
    network = fields.pop("network", None)
    run = ContainerRun("image:1", None, ("train",), ContainerOptions(network=network))
    return a_start(argv=[], container=run, **fields)


def an_attempt(machine: Machine, start: Start, pid: int = 77, launcher: Launcher = PLAIN) -> Attempt:
    attempt = Attempt(Story(intend(start, machine, 1)), launcher)
    attempt.story.add(Spawned(start.token, pid, 0, 5, "container (docker)"))
    return attempt


class Watched:
    """Containers of an agent, and all that they lead to."""

    def __init__(self, root: Path) -> None:
        self.machine = a_machine(root)
        self.said: list[Message] = []
        self.happened: list[AgentEvent] = []
        self.again: list[Attempt] = []
        self.results: list[Exited | Lost] = []
        attempts: dict[str, Attempt] = {}
        self.containers = ContainerLauncher(
            self.machine,
            attempts,
            self.said.append,
            self.again.append,
            self.react,
            lambda _, result: self.results.append(result),
        )
        self.attempt = an_attempt(self.machine, a_container(), launcher=self.containers)
        attempts[self.attempt.token] = self.attempt
        self.directory = Path(keeper_directory(self.machine, self.attempt.token))
        self.directory.mkdir(parents=True)

    def react(self, event: AgentEvent) -> None:
        self.happened.append(event)
        if isinstance(event, Began):
            self.attempt.story.add(Begun(event.at, event.pid))

    def written(self, **state: object) -> None:
        (self.directory / "state").write_text(json.dumps(state))


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_news_is_passed_on_once_and_the_start_when_the_container_runs(watched: Watched):
    watched.written(keeper=77, doing="pulling image i: 5 %")
    watched.containers.on_news("t")
    watched.containers.look_at_all()
    (news,) = watched.said
    assert isinstance(news, Progressed)
    assert news.doing == "pulling image i: 5 %"
    assert watched.attempt.story.state == "starting"
    watched.written(keeper=77, pid=99, started_at=1234)
    watched.containers.on_news("t")
    (cleared,) = watched.said[1:]
    assert watched.happened == [Began("t", 1234, 99)]
    assert isinstance(cleared, Progressed)
    assert cleared.doing is None
    assert (watched.attempt.story.state, watched.attempt.container_pid) == ("running", 99)


def test_an_end_is_what_the_keeper_wrote_and_not_what_it_ended_with(watched: Watched):
    watched.written(started_at=10, ended_at=20, exit_code=3, reason="why")
    watched.containers.lost(watched.attempt, 99)
    (result,) = watched.results
    assert isinstance(result, Exited)
    assert (result.exit_code, result.reason, result.started_at, result.at) == (3, "why", 10, 20)


def test_what_never_ran_is_refused(watched: Watched):
    watched.written(ended_at=20, failure="CannotPullContainerError: no")
    watched.containers.lost(watched.attempt, 99)
    assert watched.happened == [Failed("t", "CannotPullContainerError: no", 20)]
    assert watched.results == []


def test_keepers_that_die_at_the_same_point_are_not_replaced_for_ever(watched: Watched):
    for keeper in range(5):
        watched.written(keeper=keeper, container="abc")
        watched.containers.lost(watched.attempt, 99)
    assert (len(watched.again), watched.results) == (5, [])
    watched.written(keeper=9, container="abc", started_at=1)
    watched.containers.lost(watched.attempt, 99)
    assert len(watched.again) == 6, "it has got further, so the count begins anew"
    for _ in range(5):
        watched.containers.lost(watched.attempt, 99)
    assert watched.results == [Lost("t", 99)]


def test_an_attempt_without_orders_is_lost(watched: Watched):
    watched.containers.forget("t")
    assert not watched.directory.exists()
    watched.containers.lost(watched.attempt, 99)
    assert watched.results == [Lost("t", 99)]


def test_tidying_removes_the_files_of_keepers_that_nobody_knows(watched: Watched):
    other = watched.directory.parent / "0123456789abcdef"
    (other / "secrets").mkdir(parents=True)
    (other / "secrets" / "TOKEN").write_text("hush")
    (other / "orders").touch()
    watched.containers.tidy([watched.attempt])
    assert watched.directory.exists()
    assert not other.exists()


def test_a_keeper_is_signalled_only_when_it_understands(watched: Watched):
    with subprocess.Popen(["sleep", "60"]) as process:
        attempt = an_attempt(watched.machine, a_container(), process.pid)
        assert watched.containers.signal_all(attempt, signal.SIGTERM, {}) == 0
        attempt.container = KeeperState(keeper=process.pid - 1)
        assert watched.containers.signal_all(attempt, signal.SIGKILL, {}) == 0
        assert process.poll() is None
        attempt.container = KeeperState(keeper=process.pid)
        assert watched.containers.signal_all(attempt, signal.SIGKILL, {}) == 1
        assert process.wait(30) == -signal.SIGUSR1


# --- orders -----------------------------------------------------------------------------------------


def test_a_containers_path_and_home_are_the_images(tmp_path: Path):
    machine = a_machine(tmp_path)
    plain = a_container(environment={"A": "b"})
    variables = make_orders(an_attempt(machine, plain), plain, machine, DOCKER, "/k").body["Env"]
    assert "A=b" in variables
    assert not [line for line in variables if line.startswith(("PATH=", "HOME="))]
    named = a_container(environment={"PATH": "/mine"})
    assert "PATH=/mine" in make_orders(an_attempt(machine, named), named, machine, DOCKER, "/k").body["Env"]


@pytest.mark.parametrize(
    ("network", "told"), [(None, True), ("host", True), ("bridge", False), ("none", False)]
)
def test_the_metadata_endpoint_is_told_where_it_can_be_reached(
    tmp_path: Path, network: str | None, told: bool
):
    machine = a_machine(tmp_path)
    start = a_container(network=network, staging=Staging(checkpoints=Checkpoints("file:///s")))
    attempt = an_attempt(machine, start)
    attempt.story.add(Accepted(start))
    attempt.story.add(Launching(start.token, 4321, 1))
    orders = make_orders(attempt, start, machine, DOCKER, "/k")
    endpoint = "AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:4321/"
    assert (endpoint in orders.body["Env"]) == told
    assert "WINDFALL_CHECKPOINT_DIR=/opt/ml/checkpoints" in orders.body["Env"]
    assert f"{tmp_path}/task.ml:/opt/ml" in orders.body["HostConfig"]["Binds"]
    assert orders.staged_root == f"{tmp_path}/task.ml"


def test_only_real_gpus_are_asked_for_and_only_of_who_gives_them(tmp_path: Path):
    machine = msgspec.structs.replace(
        a_machine(tmp_path), gpus=[GpuDevice("GPU-a", "H200"), GpuDevice("GPU-b", "Fake", simulated=True)]
    )
    start = a_container(gpu_ids=["GPU-a", "GPU-b", "GPU-simulated-0"])
    orders = make_orders(an_attempt(machine, start), start, machine, DOCKER, "/k")
    assert orders.body["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == ["GPU-a"]
    old = msgspec.structs.replace(DOCKER, kind="podman", version="4.9.3")
    with pytest.raises(
        CannotStart, match=r"podman 4\.9\.3 gives no GPUs .* use Podman 5\.4 or newer, or Docker"
    ):
        make_orders(an_attempt(machine, start), start, machine, old, "/k")


def test_a_container_needs_no_directory_of_its_own(tmp_path: Path):
    machine = a_machine(tmp_path)
    assert intend(a_container(), machine, 1).private_directories == []
    staged = intend(a_container(staging=Staging()), machine, 1)
    assert staged.private_directories == [f"{tmp_path}/task", f"{tmp_path}/task.ml"]
    assert staged.keeper
    assert keeper_directory(machine, "t").startswith(f"{tmp_path}/agent/containers/")
