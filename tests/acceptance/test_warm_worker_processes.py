"""Warm workers of a real agent: who dies with whom, who waits for whom, and what nobody may run twice."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_agent import House, cgroups_or_skip, is_alive, public_python, sandbox_or_skip
from tests.waiting import wait_until
from windfall.agent.messages import Exited, Interrupt, Shutdown, Start, Stop
from windfall.jobs.workers import Worker, WorkerKind

MODULE = """
import os, signal, sys, time

def say(*words):
    print(*words, flush=True)

def quick(index):
    say("pid", os.getpid(), os.environ["COLOUR"], os.environ["WINDFALL_ATTEMPT"], os.getuid())
    return index

def until_gate(index):
    say("pid", os.getpid())
    while not os.path.exists(os.environ["GATE"]):
        time.sleep(0.02)
    say("through", index)

def deaf(index):
    say("pid", os.getpid())
    if os.fork() == 0:
        time.sleep(1000)
    time.sleep(1000)

def listens(index):
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    say("pid", os.getpid())
    while not told:
        time.sleep(0.02)
    say("told")
    return 9

def hungry(index):
    say("pid", os.getpid())
    if index:
        hog = bytearray(200 << 20)
        time.sleep(60)

def forks(index):
    say("pid", os.getpid())
    if os.fork() == 0:
        sys.exit(5)
    os.wait()
"""
LINES = Worker(WorkerKind.LINES)


@pytest.fixture
def make_house() -> Iterator[Callable[..., House]]:
    """Agents whose directories another user can pass through at any time, in a sandbox too: not below /tmp."""
    built: list[House] = []

    def make(**settings: object) -> House:
        built.append(House(Path(tempfile.mkdtemp(prefix="windfall-test-", dir="/var/tmp")), **settings))
        return built[-1].launch()

    yield make
    for one in built:
        one.close()
        shutil.rmtree(one.root, ignore_errors=True)


@pytest.fixture
def house(make_house: Callable[..., House]) -> House:
    return make_house()


def child(house: House, token: str, function: str, index: int = 0, **fields: object) -> Start:
    """A child of an array that calls a function of the module."""
    code = house.root / "code"
    if not code.exists():
        code.mkdir()
        code.chmod(0o755)
        (code / "tasks.py").write_text(MODULE)
        (code / "tasks.py").chmod(0o644)
    environment = {
        "AWS_BATCH_JOB_ARRAY_INDEX": str(index),
        "AWS_BATCH_JOB_ID": f"array:{index}",
        "GATE": str(house.root / "gate"),
        "COLOUR": str(fields.pop("colour", "red")),
    }
    values: dict[str, object] = {
        "directory": str(code),
        "environment": environment,
        "worker": Worker(WorkerKind.CALLABLE, f"tasks:{function}", float(fields.pop("idle_s", 30.0))),  # type: ignore[arg-type]  # a number
        "worker_key": "array",
    }
    return house.start(token, public_python(), **{**values, **fields})


def pid_of(house: House, token: str) -> int:
    """The process that a child has run in, as it said itself."""
    lines = wait_until(
        lambda: [line for line in said(house, token) if line.startswith("pid ")], f"{token} says its pid"
    )
    return int(lines[-1].split()[1])


def said(house: House, token: str) -> list[str]:
    path = house.logs / f"{token}.log"
    return path.read_text().splitlines() if path.exists() else []


def is_gone(pid: int) -> None:
    wait_until(lambda: not is_alive(pid), f"process {pid} is gone")


def test_children_of_one_array_run_in_one_process_each_with_its_own_variables(house: House):
    daemon = house.daemon()
    for index, colour in enumerate(("red", "blue", "red")):
        daemon.send(child(house, f"a{index}", "quick", index, colour=colour))
        assert daemon.exited(f"a{index}").exit_code == index
    assert len({pid_of(house, f"a{index}") for index in range(3)}) == 1
    assert said(house, "a1")[0].split()[2:4] == ["blue", "a1"]
    assert said(house, "a2")[0].split()[2:4] == ["red", "a2"]
    uid = int(said(house, "a0")[0].split()[4])
    assert uid != 0 or os.geteuid() != 0, "the job's user, not the agent's"
    assert daemon.exited("a0").isolation.startswith("warm worker, process")


def test_children_that_run_at_once_have_a_worker_each(house: House):
    daemon = house.daemon()
    daemon.send(child(house, "a", "until_gate"), child(house, "b", "until_gate", 1))
    assert pid_of(house, "a") != pid_of(house, "b")
    (house.root / "gate").touch()
    assert (daemon.exited("a").exit_code, daemon.exited("b").exit_code) == (0, 0)


def test_an_idle_worker_ends_by_itself(house: House):
    daemon = house.daemon()
    daemon.send(child(house, "a", "quick", idle_s=0.2))
    daemon.exited("a")
    is_gone(pid_of(house, "a"))
    daemon.send(child(house, "b", "quick", idle_s=0.2))
    assert daemon.exited("b").exit_code == 0
    assert pid_of(house, "b") != pid_of(house, "a")


def test_a_stopped_child_takes_its_worker_with_it_and_the_next_gets_a_new_one(house: House):
    daemon = house.daemon()
    daemon.send(child(house, "a", "deaf"))
    pid = pid_of(house, "a")
    daemon.send(Stop("a", grace_s=30.0))
    assert daemon.exited("a").exit_code == 128 + signal.SIGTERM
    assert not is_alive(pid), "gone before its end is told"
    daemon.send(child(house, "b", "quick"))
    assert daemon.exited("b").exit_code == 0


def test_a_function_that_listens_is_told_of_a_stop_and_its_worker_is_not_used_again(house: House):
    daemon = house.daemon()
    daemon.send(child(house, "a", "listens"))
    pid = pid_of(house, "a")
    daemon.send(Stop("a", grace_s=30.0))
    assert daemon.exited("a").exit_code == 9
    assert said(house, "a")[-1] == "told"
    is_gone(pid)


def test_a_notice_reaches_the_function_that_listens_and_spares_the_one_that_does_not(house: House):
    daemon = house.daemon()
    daemon.send(child(house, "a", "listens"), child(house, "b", "until_gate", 1))
    pid_of(house, "a"), pid_of(house, "b")
    deadline_at = daemon.started("b").at + 600_000
    daemon.send(Interrupt("b", deadline_at), Interrupt("a", deadline_at))
    assert daemon.exited("a").exit_code == 9
    (house.root / "gate").touch()
    assert daemon.exited("b").exit_code == 0
    assert said(house, "b")[-1] == "through 1"


@pytest.mark.parametrize("grace_s", [0.0])
def test_a_killed_child_leaves_nothing_of_its_worker(house: House, grace_s: float):
    daemon = house.daemon()
    daemon.send(child(house, "a", "deaf"))
    pid = pid_of(house, "a")
    daemon.send(Stop("a", grace_s))
    assert daemon.exited("a").exit_code == 137
    is_gone(pid)


def test_a_childs_shell_that_is_killed_takes_the_worker_with_it(house: House):
    daemon = house.daemon()
    daemon.send(child(house, "a", "deaf"))
    pid = pid_of(house, "a")
    os.kill(daemon.started("a").pid, signal.SIGKILL)
    assert daemon.exited("a").exit_code == 137
    is_gone(pid)


def test_a_worker_that_dies_fails_its_child_with_its_code_and_others_go_on(house: House):
    daemon = house.daemon()
    daemon.send(child(house, "a", "deaf"), child(house, "b", "until_gate", 1))
    pid_of(house, "b")
    os.kill(pid_of(house, "a"), signal.SIGSEGV)
    assert daemon.exited("a").exit_code == 128 + signal.SIGSEGV
    (house.root / "gate").touch()
    assert daemon.exited("b").exit_code == 0


def test_a_keeper_that_is_killed_fails_its_child_and_leaves_nothing(house: House):
    daemon = house.daemon()
    daemon.send(child(house, "a", "deaf"))
    pid = pid_of(house, "a")
    keeper = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(keeper, signal.SIGKILL)
    assert daemon.exited("a").exit_code == 137
    is_gone(pid)
    daemon.send(child(house, "b", "quick"))
    assert daemon.exited("b").exit_code == 0


def test_a_worker_over_its_memory_fails_its_child_as_any_job_would(house: House):
    daemon = house.daemon()
    cgroups_or_skip(daemon)
    daemon.send(child(house, "a", "hungry", 0, memory_mib=80))
    assert daemon.exited("a").exit_code == 0
    daemon.send(child(house, "b", "hungry", 1, memory_mib=80))
    exited = daemon.exited("b")
    assert (exited.exit_code, exited.reason) == (
        137,
        "OutOfMemoryError: Container killed due to memory usage",
    )
    daemon.send(child(house, "c", "hungry", 0, memory_mib=80))
    assert daemon.exited("c").exit_code == 0


def test_without_cgroups_the_sampler_counts_the_workers_memory(make_house: Callable[..., House]):
    house = make_house(use_cgroups=False)
    daemon = house.daemon()
    daemon.send(child(house, "a", "hungry", 1, memory_mib=80))
    assert daemon.exited("a").reason == "OutOfMemoryError: Container killed due to memory usage"
    is_gone(pid_of(house, "a"))


def test_a_killed_agent_finds_its_children_again_and_nothing_runs_twice(house: House):
    daemon = house.daemon()
    daemon.send(child(house, "idle", "quick"))
    daemon.exited("idle")
    daemon.send(child(house, "a", "until_gate"), child(house, "b", "until_gate", 1))
    pids = [pid_of(house, token) for token in "ab"]
    agent = daemon.inventory.agent_pid
    os.kill(agent, signal.SIGKILL)
    daemon = house.daemon(epoch=2)
    assert daemon.inventory.agent_pid != agent
    assert {status.token: status.state for status in daemon.inventory.attempts} == {
        "idle": "exited",
        "a": "running",
        "b": "running",
    }
    (house.root / "gate").touch()
    assert (daemon.exited("a").exit_code, daemon.exited("b").exit_code) == (0, 0)
    assert not any(is_alive(pid) for pid in pids), "workers of a dead agent end with their last child"
    assert [said(house, token).count(f"through {index}") for index, token in enumerate("ab")] == [1, 1]
    daemon.send(child(house, "c", "quick"))
    assert daemon.exited("c").exit_code == 0


def test_idle_workers_of_a_dead_agent_end(house: House):
    daemon = house.daemon()
    daemon.send(child(house, "a", "quick"))
    daemon.exited("a")
    os.kill(daemon.inventory.agent_pid, signal.SIGKILL)
    is_gone(pid_of(house, "a"))


def test_a_child_that_was_adopted_can_be_stopped_and_hears_of_it(house: House):
    daemon = house.daemon()
    daemon.send(child(house, "a", "listens"))
    pid = pid_of(house, "a")
    os.kill(daemon.inventory.agent_pid, signal.SIGKILL)
    daemon = house.daemon(epoch=2)
    daemon.send(Stop("a", grace_s=30.0))
    assert daemon.exited("a").exit_code == 9
    is_gone(pid)


def test_another_job_gets_the_gpu_only_when_the_idle_worker_is_gone(make_house: Callable[..., House]):
    house = make_house(gpus="simulated:2")
    daemon = house.daemon()
    gpus = [gpu.id for gpu in daemon.inventory.gpus]
    daemon.send(child(house, "a", "quick", gpu_ids=gpus[:1]), child(house, "b", "quick", gpu_ids=gpus[1:]))
    daemon.exited("a"), daemon.exited("b")
    pid = pid_of(house, "a")
    assert is_alive(pid)
    look = f"kill -0 {pid} 2>/dev/null && echo there || echo gone"
    daemon.send(house.shell("c", f"[ -e /proc/{pid} ] && echo there || echo gone; {look}", gpu_ids=gpus[:1]))
    assert daemon.exited("c").exit_code == 0
    assert house.log("c").split() == ["gone", "gone"]
    assert is_alive(pid_of(house, "b")), "nobody wanted its GPU"
    daemon.send(child(house, "d", "quick", gpu_ids=gpus[1:]))
    daemon.exited("d")
    assert pid_of(house, "d") == pid_of(house, "b")


def test_idle_workers_make_room_for_jobs_that_need_their_memory(make_house: Callable[..., House]):
    house = make_house(memory_mib=2048)
    daemon = house.daemon()
    daemon.send(child(house, "a", "quick"))
    daemon.exited("a")
    daemon.send(house.shell("b", "exit 0", memory_mib=512))
    daemon.exited("b")
    pid = pid_of(house, "a")
    assert is_alive(pid), "there is room for both"
    daemon.send(house.shell("c", f"[ -e /proc/{pid} ] && echo there || echo gone", memory_mib=1500))
    assert daemon.exited("c").exit_code == 0
    assert house.log("c") == "gone\n"


def test_a_worker_in_a_sandbox_serves_its_children_there(house: House):
    daemon = house.daemon()
    sandbox_or_skip(daemon)
    for index in range(2):
        daemon.send(child(house, f"a{index}", "quick", index, shared_memory_mib=8))
        assert daemon.exited(f"a{index}").exit_code == index
    assert daemon.exited("a0").isolation.startswith("warm worker, bubblewrap")
    assert pid_of(house, "a0") == pid_of(house, "a1") < 20, "a process of its own namespace"
    daemon.send(child(house, "b", "listens", shared_memory_mib=8))
    pid_of(house, "b")
    daemon.send(Stop("b", grace_s=30.0))
    assert daemon.exited("b").exit_code == 9


def test_a_module_that_cannot_be_imported_says_so_in_every_childs_log(house: House):
    daemon = house.daemon()
    for token in ("a", "b"):
        daemon.send(child(house, token, "missing"))
        assert daemon.exited(token).exit_code == 1
        assert said(house, token)[-1].startswith("AttributeError: module 'tasks' has no attribute 'missing'")


def test_a_fork_of_the_function_has_no_say_in_the_childs_end(house: House):
    daemon = house.daemon()
    for token in ("a", "b"):
        daemon.send(child(house, token, "forks"))
        assert daemon.exited(token).exit_code == 0
    assert pid_of(house, "a") == pid_of(house, "b")


def test_a_program_that_does_not_speak_the_lines_fails_its_child(house: House):
    daemon = house.daemon()
    daemon.send(house.shell("a", "echo hello", worker=LINES, worker_key="k", environment={}))
    assert daemon.exited("a").exit_code == 1
    assert said(house, "a") == ["hello", "windfall: the worker left without an answer for this child"]
    daemon.send(house.shell("b", "read x; echo nonsense >&3; sleep 1000", worker=LINES, worker_key="k2"))
    assert daemon.exited("b").exit_code == 1
    assert "nonsense" in said(house, "b")[-1]


def test_a_program_that_is_not_there_is_refused_in_the_usual_words(house: House):
    daemon = house.daemon()
    daemon.send(house.start("a", "no-such-program", worker=LINES, worker_key="k"))
    reason = getattr(daemon.result("a"), "reason", None)
    assert reason == 'CannotStartContainerError: exec: "no-such-program": executable file not found in $PATH'


def test_lines_that_are_printed_before_the_answer_are_all_in_the_log(house: House):
    daemon = house.daemon()
    script = "while read -r task; do seq 1 20000; echo '{\"exit_code\": 4}' >&3; done"
    for token in ("a", "b"):
        daemon.send(house.shell(token, script, worker=LINES, worker_key="k"))
        assert daemon.exited(token).exit_code == 4
        assert said(house, token) == [str(number) for number in range(1, 20001)]


def test_a_worker_may_leave_after_an_answer_and_the_next_child_gets_another(house: House):
    daemon = house.daemon()
    script = 'read -r task; echo $$; echo \'{"exit_code": 0, "leave": true}\' >&3'
    for token in ("a", "b"):
        daemon.send(house.shell(token, script, worker=LINES, worker_key="k"))
        assert daemon.exited(token).exit_code == 0
    assert said(house, "a") != said(house, "b")


def test_nothing_of_a_worker_is_left_when_the_agent_is_shut_down(house: House):
    daemon = house.daemon()
    # Without a directory of the job's the worker has a private one.
    daemon.send(house.shell("a", "read -r t; pwd; echo {} >&3; read -r t", worker=LINES, worker_key="k"))
    assert isinstance(daemon.result("a"), Exited)
    [directory] = said(house, "a")
    assert Path(directory).parent == house.root / "attempts"
    daemon.send(Shutdown(kill=True, grace_s=0.0))
    daemon.closed_by_agent()
    wait_until(lambda: not Path(directory).exists(), "the worker's directory is removed")
