"""Containers of a real engine, through a real agent: what they are given, what they say, how they end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docker_engine import IMAGE, RunningEngine
from tests.unit.agent.container.house import ContainerHouse, over_both
from tests.waiting import wait_until
from windfall.agent.messages import Forget, Refused
from windfall.jobs.containers import Device, Mount, Pull, Secret, Tmpfs, Ulimit


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("sh -c 'kill -9 $$'; exit $?", 137), ("kill -9 $$", 0)],
)
def test_exit_codes_are_the_containers(house: ContainerHouse, engine: RunningEngine, script: str, code: int):
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", f"echo said; {script}"))
    exited = daemon.exited("a")
    started = daemon.started("a")
    assert (exited.exit_code, exited.reason) == (code, None)
    assert exited.started_at == started.at <= exited.at
    assert started.isolation.startswith(f"container ({engine.kind} ")
    assert "said\n" in house.log("a")


def test_the_inventory_names_the_engine(house: ContainerHouse, engine: RunningEngine):
    inventory = house.daemon().inventory
    assert inventory.containers.startswith(f"{engine.kind} ")
    assert f"containers ({inventory.containers})" in inventory.abilities


@over_both
def test_nothing_is_left_of_a_container_that_ended(house: ContainerHouse, engine: RunningEngine):
    daemon = house.daemon()
    daemon.send(house.contain_shell("a", "echo x > /vol/file", mounts=(Mount(None, "/vol"),)))
    assert daemon.exited("a").exit_code == 0
    assert not engine.has(house.name("a"))
    daemon.send(Forget(["a"]))
    wait_until(lambda: not house.keeper_directory("a").exists(), "the keeper's files are gone")


def test_memory_that_is_too_small_is_told_in_awss_words(house: ContainerHouse):
    daemon = house.daemon()
    daemon.send(house.contain("a", "tail", "/dev/zero", memory_mib=16, max_swap_mib=0))
    exited = daemon.exited("a")
    assert (exited.exit_code, exited.reason) == (
        137,
        "OutOfMemoryError: Container killed due to memory usage",
    )


@pytest.mark.parametrize(
    ("entrypoint", "command", "said"),
    [
        (None, (), "from the image\n"),
        (None, ("mine",), "from mine\n"),
        (("sh", "-c", "echo new $0"), (), "new sh\n"),
        (("sh", "-c", "echo new $0"), ("mine",), "new mine\n"),
        ((), ("sh", "-c", "echo none"), "none\n"),
    ],
)
def test_entrypoint_and_command_meet_those_of_the_image(
    house: ContainerHouse,
    engine: RunningEngine,
    entrypoint: tuple[str, ...] | None,
    command: tuple[str, ...],
    said: str,
):
    image = engine.build_image("spoken:1", Entrypoint=["sh", "-c", "echo from $0 $1"], Cmd=["the", "image"])
    daemon = house.daemon()
    daemon.send(house.contain("a", *command, image=image, entrypoint=entrypoint))
    assert daemon.exited("a").exit_code == 0
    assert house.log("a").replace(" \n", "\n") == said


def test_an_image_may_be_named_by_its_digest(house: ContainerHouse, engine: RunningEngine):
    found = engine.api.image(IMAGE)
    assert found is not None
    daemon = house.daemon()
    daemon.send(house.contain("a", "env", image=found["Id"]))
    assert daemon.exited("a").exit_code == 0


@pytest.mark.parametrize(
    ("pull", "words"),
    [(Pull.NEVER, "its pull policy is never"), (Pull.MISSING, "Error response from daemon: ")],
)
def test_an_image_that_cannot_be_had_is_a_pull_error(house: ContainerHouse, pull: Pull, words: str):
    daemon = house.daemon()
    # Nobody listens there: the machine of a test reaches no registry.
    image = "127.0.0.1:9/nobody/nothing:1"
    daemon.send(house.contain("a", "env", image=image, pull=pull))
    result = daemon.result("a")
    assert isinstance(result, Refused)
    assert result.reason.startswith("CannotPullContainerError: ")
    assert words in result.reason


def test_a_program_that_is_not_in_the_image_is_a_start_error(house: ContainerHouse, engine: RunningEngine):
    daemon = house.daemon()
    daemon.send(house.contain("a", "no-such-program"))
    result = daemon.result("a")
    assert isinstance(result, Refused)
    assert result.reason.startswith("CannotStartContainerError: Error response from daemon: ")
    assert "no-such-program" in result.reason
    assert not engine.has(house.name("a"))


def test_what_the_engine_refuses_to_make_is_a_create_error(house: ContainerHouse):
    daemon = house.daemon()
    daemon.send(house.contain("a", "env", tmpfs=(Tmpfs("relative", 1),)))
    result = daemon.result("a")
    assert isinstance(result, Refused)
    assert result.reason.startswith("CannotCreateContainerError: Error response from daemon: ")


def test_without_an_engine_a_container_is_refused_with_what_to_do(make_house: Callable[..., ContainerHouse]):
    house = make_house(container_socket="/nobody/listens", runtime="container")
    daemon = house.daemon()
    assert daemon.inventory.containers == ""
    assert any("start Docker or Podman" in line for line in daemon.inventory.warnings)
    daemon.send(house.contain("a", "env"))
    result = daemon.result("a")
    assert isinstance(result, Refused)
    assert result.reason.startswith("CannotCreateContainerError: no container engine answers here")


@over_both
def test_what_a_definition_says_is_in_force(house: ContainerHouse, tmp_path: Path):
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "file").write_text("from the host\n")
    script = (
        "id -u; id -g; ulimit -n; ulimit -Hn; cat /shown/file; touch /shown/x 2>/dev/null || echo read-only mount;"
        " touch /x 2>/dev/null || echo read-only root; touch /scratch/x && mount | while read a b c d e; do"
        " case $c in /scratch|/dev/shm) echo $c $e;; esac; done;"
        " stat -c %t:%T /dev/mine; echo $FROM_IMAGE"
    )
    daemon = house.daemon()
    daemon.send(
        house.contain_shell(
            "a",
            script,
            user="1000:2000",
            read_only_root=True,
            # Podman chooses one of the two itself where the other alone is given: more than some machines let it.
            ulimits=(Ulimit("nofile", 123, 456), Ulimit("nproc", 1000, 1000)),
            mounts=(Mount(str(shown), "/shown", read_only=True),),
            tmpfs=(Tmpfs("/scratch", 3, ("mode=1777",)),),
            devices=(Device("/dev/zero", "/dev/mine"), Device("/dev/nvidia0", "/dev/nvidia0")),
            shared_memory_mib=5,
        )
    )
    exited = daemon.exited("a")
    said = house.log("a")
    assert exited.exit_code == 0, said
    lines = said.splitlines()
    assert lines[:7] == ["1000", "2000", "123", "456", "from the host", "read-only mount", "read-only root"]
    assert any(line.startswith("/scratch") and "size=3072k" in line for line in lines), said
    assert any(line.startswith("/dev/shm") and "size=5120k" in line for line in lines), said
    assert lines[-2:] == ["1:5", "yes"]


def test_an_init_process_is_there_when_it_is_wanted(house: ContainerHouse):
    daemon = house.daemon()
    daemon.send(
        house.contain("a", "cat", "/proc/1/comm", init=True), house.contain("b", "cat", "/proc/1/comm")
    )
    assert daemon.exited("a").exit_code == daemon.exited("b").exit_code == 0
    assert house.log("a") == "docker-init\n"
    assert house.log("b") == "cat\n"


@over_both
def test_variables_arrive_as_they_are_and_gpus_are_not_the_jobs_to_choose(house: ContainerHouse):
    odd = {"QUOTED": "a 'b' \"c\" $D `e` \\", "LINES": "one\ntwo", "EMPTY": "", "EQUAL": "a=b", "ÜML": "ä€"}
    claimed = {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "0,1"}
    daemon = house.daemon()
    daemon.send(house.contain("a", "cat", "/proc/self/environ", environment={**odd, **claimed}))
    daemon.exited("a")
    seen = dict(line.partition("=")[::2] for line in house.log("a").rstrip("\0").split("\0"))
    assert {name: seen[name] for name in odd} == odd
    assert (seen["NVIDIA_VISIBLE_DEVICES"], seen["CUDA_VISIBLE_DEVICES"]) == ("void", "")
    assert (seen["PATH"], seen["WINDFALL_ATTEMPT"]) == ("/bin", "a")
    assert seen["HOME"] != ""


@pytest.mark.parametrize("user", [None, "1000", "worker", "worker:0"])
def test_secrets_are_variables_and_files_and_on_no_command_line(
    make_house: Callable[..., ContainerHouse], tmp_path: Path, user: str | None
):
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "db").write_text("p w\n'")
    house = make_house(secrets_directory=str(secrets))
    daemon = house.daemon()
    script = (
        'echo "$PASSWORD"; cat $PASSWORD_FILE; touch /run/secrets/x 2>/dev/null || echo;'
        " stat -c '%a %u' $PASSWORD_FILE; sleep 60"
    )
    daemon.send(house.contain_shell("a", script, user=user, secrets=(Secret("PASSWORD", "db"),)))
    daemon.started("a")
    wait_until(lambda: "400" in house.log("a"), "the container has said it all")
    uid = {None: 0, "1000": 1000, "worker": 1234, "worker:0": 1234}[user]
    said = house.log("a")
    assert said.startswith("p w\n'\np w\n'"), said
    assert said.endswith(f"400 {uid}\n")
    assert "p w" not in (house.keeper_directory("a") / "orders").read_text()
    assert "p w" not in Path(f"/proc/{house.state('a')['keeper']}/cmdline").read_text()
    assert "p w" not in Path(f"/proc/{house.state('a')['keeper']}/environ").read_text()
    house.stop_now("a")
    daemon.exited("a")
    assert not (house.keeper_directory("a") / "secrets").exists()


def test_a_secret_that_is_not_there_is_told_with_its_name(house: ContainerHouse, engine: RunningEngine):
    daemon = house.daemon()
    daemon.send(house.contain("a", "env", secrets=(Secret("PASSWORD", "db"),)))
    result = daemon.result("a")
    assert isinstance(result, Refused)
    assert result.reason.startswith("ResourceInitializationError: ")
    assert "windfall secret set db" in result.reason
    assert not engine.has(house.name("a"))


@pytest.mark.parametrize("name", ["../../escaped", "A=B", "", ".."])
def test_a_secret_cannot_be_written_elsewhere(
    make_house: Callable[..., ContainerHouse], tmp_path: Path, name: str
):
    (tmp_path / "db").write_text("value")
    house = make_house(secrets_directory=str(tmp_path))
    daemon = house.daemon()
    daemon.send(house.contain("a", "env", secrets=(Secret(name, "db"),)))
    result = daemon.result("a")
    assert isinstance(result, Refused)
    assert "cannot name a secret" in result.reason
    assert not (house.root / "agent" / "escaped").exists()


def test_a_large_log_is_complete_and_in_order(house: ContainerHouse):
    daemon = house.daemon()
    line = "x" * 90
    script = f"i=0; while [ $i -lt 100000 ]; do echo $i {line}; i=$((i+1)); done; echo last line"
    daemon.send(house.contain_shell("a", script))
    assert daemon.exited("a").exit_code == 0
    said = house.log("a").splitlines()
    assert len(said) == 100_001
    assert said[:-1] == [f"{n} {line}" for n in range(100_000)]
    assert said[-1] == "last line"


@over_both
def test_lines_longer_than_the_engines_own_limit_stay_whole(house: ContainerHouse):
    daemon = house.daemon()
    daemon.send(
        house.contain_shell("a", "dd if=/dev/zero bs=100000 count=1 2>/dev/null | tr '\\0' y; echo; echo z")
    )
    daemon.exited("a")
    assert house.log("a") == "y" * 100_000 + "\nz\n"


def test_the_ids_of_the_allotted_gpus_reach_the_engines_driver(
    house: ContainerHouse, docker_engine: RunningEngine
):
    docker_engine.hook_calls.unlink(missing_ok=True)
    daemon = house.daemon()
    ids = ["GPU-11111111-aaaa", "GPU-22222222-bbbb"]
    daemon.send(house.contain("a", "env", gpu_ids=ids, environment={"NVIDIA_VISIBLE_DEVICES": "all"}))
    assert daemon.exited("a").exit_code == 0
    assert f"NVIDIA_VISIBLE_DEVICES={','.join(ids)}\n" in house.log("a")
    call = docker_engine.hook_calls.read_text()
    assert call.startswith("argv=prestart\n")
    bundle = json.loads(call.split("\n", 1)[1].strip().splitlines()[0])
    assert bundle["status"] in ("creating", "created")
    daemon.send(house.contain("b", "env", gpu_ids=["GPU-simulated-0"]))
    assert daemon.exited("b").exit_code == 0
    assert docker_engine.hook_calls.read_text() == call, "a GPU that is none is asked of nobody"


def test_the_started_report_names_a_process_of_the_container(house: ContainerHouse):
    daemon = house.daemon()
    daemon.send(house.contain("a", "sleep", "60"))
    started = daemon.started("a")
    assert Path(f"/proc/{started.pid}/cmdline").read_bytes() == b"sleep\00060\0"
    assert os.getpgid(started.pid) != os.getpgid(house.state("a")["keeper"])
    house.stop_now("a")
    assert daemon.exited("a").exit_code == 137
