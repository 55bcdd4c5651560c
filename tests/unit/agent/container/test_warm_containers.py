"""Warm workers in containers of a real engine: what they share, whose log is whose, and who dies with whom."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_agent import is_alive, public_python
from tests.docker_engine import RunningEngine
from tests.unit.agent.container.house import ContainerHouse, over_both
from tests.unit.agent.container.registry_server import serving
from tests.waiting import wait_until
from windfall.agent.container.keeper import OUT_OF_MEMORY
from windfall.agent.container.request import TOKEN_LABEL
from windfall.agent.messages import Progressed, Refused, Start, Stop
from windfall.jobs.containers import Mount, Pull, Secret, Tmpfs, Ulimit
from windfall.jobs.workers import Worker, WorkerKind

#: What a shell does for each child; `$i` is its index. Each child's log begins with the name of the container.
EACH = """
echo started >&2
while read -r line; do
    i=${line#*'"index":'}; i=${i%%%%,*}
    [ -e /tmp/box ] || cat /proc/sys/kernel/random/uuid > /tmp/box
    cat /tmp/box
    %s
    echo "{\\"exit_code\\": $i}" >&3
done
"""
GATED = "while [ ! -e /host/go ]; do sleep 0.05; done; echo through >> /host/done"
LISTENS = "told=; trap 'told=1' TERM; echo ready; while [ -z $told ]; do sleep 0.05; done; echo told"


def child(house: ContainerHouse, token: str, each: str = "", index: int = 0, **fields: Any) -> Start:
    """A child of an array that is served by a shell in a container."""
    given = house.root / "given"
    given.mkdir(exist_ok=True)
    values: dict[str, Any] = {
        "worker": Worker(WorkerKind.LINES, idle_s=float(fields.pop("idle_s", 60.0))),
        "worker_key": "array",
        "environment": {"AWS_BATCH_JOB_ARRAY_INDEX": str(index), "COLOUR": fields.pop("colour", "red")},
        "mounts": (Mount(str(given), "/host"),),
    }
    command = fields.pop("command", ("sh", "-c", fields.pop("script", EACH % each)))
    return house.contain(token, *command, **{**values, **fields})


def said(house: ContainerHouse, token: str) -> list[str]:
    path = house.logs / f"{token}.log"
    return path.read_text().splitlines() if path.exists() else []


def speaks(house: ContainerHouse, token: str, word: str) -> None:
    wait_until(lambda: word in said(house, token), f"{token} says {word}")


def boxes(house: ContainerHouse, engine: RunningEngine) -> dict[str, dict[str, Any]]:
    """The containers of the workers of a house's agent, by name, with what the engine knows of each."""
    found = engine.api.containers(f"windfall.agent={house.settings.agent_id}")
    known = {str(one["Labels"][TOKEN_LABEL]): engine.api.inspect(str(one["Id"])) for one in found}
    return {name: details for name, details in known.items() if details is not None}


def pid_of_box(house: ContainerHouse, engine: RunningEngine) -> int:
    [details] = boxes(house, engine).values()
    return int(details["State"]["Pid"])


def keepers(house: ContainerHouse, engine: RunningEngine) -> tuple[int, int]:
    """Who keeps the only worker, and who keeps its container."""
    [name] = boxes(house, engine)
    keeper = int(house.state(name)["keeper"])
    stat = Path(f"/proc/{keeper}/stat").read_text()
    return int(stat[stat.rindex(")") + 2 :].split()[1]), keeper


def none_left(house: ContainerHouse, engine: RunningEngine) -> None:
    wait_until(lambda: not boxes(house, engine), "no container is left")


@over_both
def test_children_share_a_container_and_have_logs_and_codes_of_their_own(
    house: ContainerHouse, engine: RunningEngine
):
    daemon = house.daemon()
    for index, colour in enumerate(("red", "blue")):
        daemon.send(child(house, f"a{index}", "echo child $i of $COLOUR", index, colour=colour))
        assert daemon.exited(f"a{index}").exit_code == index
    first, second = said(house, "a0"), said(house, "a1")
    assert (first[0], first[2]) == ("started", "child 0 of red"), (
        "what it said before its first child is that one's"
    )
    assert second == [first[1], "child 1 of red"], "one container; a shell's own variables stay"
    assert daemon.exited("a0").isolation.startswith(f"warm worker, container ({engine.kind} ")
    assert daemon.started("a0").at <= daemon.exited("a0").at
    daemon.send(child(house, "b", idle_s=0.3, worker_key="another", colour="green"))
    assert daemon.exited("b").exit_code == 0
    assert said(house, "b")[1] != first[1]
    wait_until(lambda: len(boxes(house, engine)) == 1, "the second array's worker was idle for long enough")


def test_a_function_is_called_in_the_image_with_all_that_a_container_has(
    make_house: Callable[..., ContainerHouse], tmp_path: Path, engine: RunningEngine
):
    secrets = tmp_path / "secrets"
    secrets.mkdir(0o700)
    (secrets / "token").write_text("s3cret")
    engine.build_image("entered:1", Entrypoint=["env", "ENTERED=yes"])
    house = make_house(secrets_directory=str(secrets))
    given = house.root / "given"
    given.mkdir()
    (given / "tasks.py").write_text(
        "import os, resource\n"
        "def touch(path):\n"
        "    try: open(path, 'w').close(); return True\n"
        "    except OSError: return False\n"
        "def work(index):\n"
        "    print(os.getuid(), os.getpid(), resource.getrlimit(resource.RLIMIT_NOFILE)[0], os.environ['ENTERED'])\n"
        "    print(os.environ['COLOUR'], os.environ['TOKEN'], open('/run/secrets/TOKEN').read())\n"
        "    shared = os.statvfs('/dev/shm').f_blocks * 4096\n"
        "    print(touch('/no'), touch('/memory/yes'), shared, os.environ['WINDFALL_ATTEMPT'])\n"
        "    os.system('echo from below')\n"
        "    if index: raise ValueError('no such index')\n"
    )
    host = [Mount(path, path, read_only=True) for path in ("/usr", "/lib", "/lib64") if Path(path).exists()]
    daemon = house.daemon()
    for index, colour in enumerate(("red", "blue")):
        daemon.send(
            child(
                house,
                f"a{index}",
                index=index,
                colour=colour,
                image="entered:1",
                command=(public_python(), "ignored.py"),
                environment={
                    "AWS_BATCH_JOB_ARRAY_INDEX": str(index),
                    "COLOUR": colour,
                    "PYTHONPATH": "/code",
                },
                worker=Worker(WorkerKind.CALLABLE, "tasks:work"),
                mounts=(*host, Mount(str(given), "/code", read_only=True)),
                user="worker",
                read_only_root=True,
                ulimits=(Ulimit("nofile", 77, 99),),
                tmpfs=(Tmpfs("/memory", 4, ("mode=1777",)),),
                shared_memory_mib=16,
                gpu_ids=["GPU-11111111-aaaa"],
                secrets=(Secret("TOKEN", "token"),),
            )
        )
        assert daemon.exited(f"a{index}").exit_code == index, said(house, f"a{index}")
    lines = [said(house, "a0"), said(house, "a1")]
    for index, colour in enumerate(("red", "blue")):
        assert lines[index][0] == "1234 1 77 yes", "the image's user, one process, the entrypoint's words"
        assert lines[index][1] == f"{colour} s3cret s3cret"
        assert lines[index][2] == f"False True {16 << 20} a{index}"
        assert lines[index][3] == "from below"
    assert lines[1][-1] == "ValueError: no such index"
    [details] = boxes(house, engine).values()
    assert details["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == ["GPU-11111111-aaaa"]
    assert (details["HostConfig"]["Memory"], details["HostConfig"]["NanoCpus"]) == (64 << 20, 1_000_000_000)


@over_both
def test_a_stop_is_heard_by_the_child_and_takes_the_container_with_it(
    house: ContainerHouse, engine: RunningEngine
):
    daemon = house.daemon()
    daemon.send(child(house, "a", LISTENS, 3))
    speaks(house, "a", "ready")
    daemon.send(Stop("a", 60.0))
    assert daemon.exited("a").exit_code == 3
    assert said(house, "a")[-1] == "told"
    none_left(house, engine)
    daemon.send(child(house, "b", "echo ready; sleep 1000"), child(house, "c", GATED, 4))
    speaks(house, "b", "ready")

    def running() -> set[int]:
        return {int(one["State"]["Pid"]) for one in boxes(house, engine).values()} - {0}

    pids = wait_until(lambda: pids if len(pids := running()) == 2 else None, "a container for each")
    daemon.send(Stop("b", 0.0))
    assert daemon.exited("b").exit_code == 137
    assert sum(is_alive(pid) for pid in pids) == 1, (
        "its container is gone before its end is told, the other is not"
    )
    (house.root / "given" / "go").touch()
    assert daemon.exited("c").exit_code == 4


def test_a_container_that_dies_fails_the_child_that_it_had(house: ContainerHouse, engine: RunningEngine):
    daemon = house.daemon()
    daemon.send(child(house, "a", "echo ready; sleep 1000"))
    speaks(house, "a", "ready")
    os.kill(pid_of_box(house, engine), signal.SIGKILL)
    assert daemon.exited("a").exit_code == 137
    daemon.send(child(house, "b", "exit 9"))
    assert daemon.exited("b").exit_code == 9
    assert said(house, "b")[0] == "started"
    daemon.send(child(house, "c", index=5))
    assert daemon.exited("c").exit_code == 5
    os.kill(pid_of_box(house, engine), signal.SIGKILL)
    daemon.send(child(house, "d", index=6))
    assert daemon.exited("d").exit_code == 6, "a container that dies without a child is no child's fault"
    before = {one["Name"] for one in boxes(house, engine).values()}
    daemon.send(child(house, "e", "echo ready; sleep 1000", worker_key="another"))
    speaks(house, "e", "ready")
    removed = next(one for one in boxes(house, engine).values() if one["Name"] not in before)
    engine.api.remove(str(removed["Id"]))
    assert daemon.exited("e").exit_code == 125
    assert said(house, "e")[-1] == "windfall: the container was removed by somebody else while it ran"


def test_memory_that_is_too_small_is_told_in_awss_words(house: ContainerHouse):
    daemon = house.daemon()
    daemon.send(child(house, "a", "exec tail /dev/zero", memory_mib=16, max_swap_mib=0))
    exited = daemon.exited("a")
    assert (exited.exit_code, exited.reason) == (137, OUT_OF_MEMORY)


@over_both
def test_a_child_outlives_its_agent_and_idle_containers_do_not(house: ContainerHouse, engine: RunningEngine):
    daemon = house.daemon()
    daemon.send(child(house, "a", "echo ready; " + GATED, 7), child(house, "idle", worker_key="another"))
    speaks(house, "a", "ready")
    assert daemon.exited("idle").exit_code == 0
    os.kill(daemon.inventory.agent_pid, signal.SIGKILL)
    daemon = house.daemon(epoch=2)
    assert {one.token: one.state for one in daemon.inventory.attempts}["a"] == "running"
    wait_until(lambda: len(boxes(house, engine)) == 1, "the idle one is gone")
    (house.root / "given" / "go").touch()
    assert daemon.exited("a").exit_code == 7
    assert (house.root / "given" / "done").read_text() == "through\n"
    none_left(house, engine)


def test_a_child_that_was_adopted_can_be_stopped_and_hears_of_it(
    house: ContainerHouse, engine: RunningEngine
):
    daemon = house.daemon()
    daemon.send(child(house, "b", LISTENS, 2))
    speaks(house, "b", "ready")
    os.kill(daemon.inventory.agent_pid, signal.SIGKILL)
    daemon = house.daemon(epoch=2)
    daemon.send(Stop("b", 60.0))
    assert daemon.exited("b").exit_code == 2
    none_left(house, engine)


@pytest.mark.parametrize("which", ["the worker's", "the container's", "both"])
def test_a_child_whose_keepers_are_killed_has_ended_when_that_is_told(
    house: ContainerHouse, engine: RunningEngine, which: str
):
    daemon = house.daemon()
    daemon.send(child(house, "a", "echo ready; " + GATED))
    speaks(house, "a", "ready")
    pid, (of_worker, of_container) = pid_of_box(house, engine), keepers(house, engine)
    killed = {"the worker's": [of_worker], "the container's": [of_container]}
    for one in killed.get(which, [of_container, of_worker]):
        os.kill(one, signal.SIGKILL)
    assert daemon.exited("a").exit_code == 137
    assert not is_alive(pid)
    none_left(house, engine)
    daemon.send(child(house, "b", index=3))
    assert daemon.exited("b").exit_code == 3


def test_another_job_gets_the_gpu_only_when_the_idle_container_is_gone(
    make_house: Callable[..., ContainerHouse], engine: RunningEngine
):
    house = make_house(gpus="simulated:1")
    daemon = house.daemon()
    gpus = [gpu.id for gpu in daemon.inventory.gpus]
    daemon.send(child(house, "a", gpu_ids=gpus))
    daemon.exited("a")
    pid = pid_of_box(house, engine)
    daemon.send(house.shell("b", f"[ -e /proc/{pid} ] && echo there || echo gone", gpu_ids=gpus))
    assert daemon.exited("b").exit_code == 0
    assert house.log("b") == "gone\n"
    daemon.send(child(house, "c", gpu_ids=gpus))
    daemon.exited("c")
    os.kill(keepers(house, engine)[0], signal.SIGKILL)
    pid = pid_of_box(house, engine)
    daemon.send(house.shell("d", f"[ -e /proc/{pid} ] && echo there || echo gone", gpu_ids=gpus))
    assert daemon.exited("d").exit_code == 0
    assert house.log("d") == "gone\n"
    daemon.send(child(house, "e", gpu_ids=gpus))
    daemon.exited("e")
    pid = pid_of_box(house, engine)
    os.kill(daemon.inventory.agent_pid, signal.SIGKILL)
    daemon = house.daemon(epoch=2)
    daemon.send(house.shell("f", f"[ -e /proc/{pid} ] && echo there || echo gone", gpu_ids=gpus))
    assert daemon.exited("f").exit_code == 0
    assert house.log("f") == "gone\n"


def test_a_worker_that_leaves_is_followed_by_another_container(house: ContainerHouse, engine: RunningEngine):
    daemon = house.daemon()
    script = 'read -r task; echo hello; echo \'{"exit_code": 4, "leave": true}\' >&3'
    for token in ("a", "b"):
        daemon.send(child(house, token, script=script))
        assert daemon.exited(token).exit_code == 4
        assert said(house, token) == ["hello"]


def test_a_container_that_cannot_be_had_refuses_the_child_as_it_would_any_other(house: ContainerHouse):
    daemon = house.daemon()
    daemon.send(child(house, "a", image="nowhere:1", pull=Pull.NEVER))
    refused = daemon.result("a")
    assert isinstance(refused, Refused)
    assert refused.reason.startswith("CannotPullContainerError: image nowhere:1 is not on this machine")
    daemon.send(child(house, "b", command=("python3",), worker=Worker(WorkerKind.CALLABLE, "tasks:work")))
    refused = daemon.result("b")
    assert isinstance(refused, Refused)
    assert refused.reason.startswith("CannotStartContainerError: ")
    daemon.send(child(house, "c", script="no-such-program"))
    assert daemon.exited("c").exit_code == 127
    assert any("no-such-program" in line for line in said(house, "c"))


def test_a_child_that_is_stopped_while_its_image_comes_is_never_begun(
    house: ContainerHouse, engine: RunningEngine
):
    with serving() as registry:
        registry.go_on.clear()
        daemon = house.daemon()
        daemon.send(child(house, "a", image=registry.image()))
        daemon.until(lambda message: isinstance(message, Progressed) and "pulling" in (message.doing or ""))
        daemon.send(Stop("a", 0.0))
        assert isinstance(daemon.result("a"), Refused)
        registry.go_on.set()
    directory = house.root / "agent" / "containers"
    wait_until(lambda: not list(directory.iterdir()), "nothing is left of its keepers")
