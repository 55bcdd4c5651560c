"""The agent with real processes: exit codes, logs, limits, users, sandboxes, and death."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import require_part
from tests.waiting import wait_until
from windfall.agent.attempt_files import RECORD_BYTES, RecordedLog, times_path
from windfall.agent.client import connect
from windfall.agent.errors import AgentRejected
from windfall.agent.launching import agent_environment, prepare_directories, warden_command
from windfall.agent.line_reader import LineReader
from windfall.agent.messages import (
    Enrolled,
    Exited,
    Forget,
    Hello,
    Inventory,
    Lost,
    Message,
    Ping,
    Pong,
    Progressed,
    Refused,
    Rejected,
    Shutdown,
    Start,
    Started,
    Stop,
    ToDaemon,
    decode_for_daemon,
    encode,
)
from windfall.agent.reach import UnixReach
from windfall.agent.settings import AgentSettings
from windfall.agent.socket_paths import short_path
from windfall.agent.warden import BUSY_CODE

DEADLINE_S = 150.0
IS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can run jobs as another user")


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class Daemon:
    """A blocking client that remembers all it was told."""

    def __init__(self, path: Path, epoch: int = 1) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(DEADLINE_S)
        self._reader = LineReader()
        self.heard: list[ToDaemon] = []
        try:
            with short_path(str(path)) as reachable:
                self._socket.connect(reachable)
            self.send(Hello(epoch))
            self.greeting = self.until(lambda message: isinstance(message, Inventory | Rejected))
        except BaseException:
            self._socket.close()
            raise

    @property
    def inventory(self) -> Inventory:
        assert isinstance(self.greeting, Inventory)
        return self.greeting

    def send(self, *messages: Message) -> None:
        self._socket.sendall(encode(messages))

    def until(self, wanted: Callable[[ToDaemon], bool]) -> ToDaemon:
        """Return the first message heard that is wanted, waiting for it if need be."""
        checked = 0
        while True:
            for message in self.heard[checked:]:
                if wanted(message):
                    return message
            checked = len(self.heard)
            try:
                chunk = self._socket.recv(1 << 20)
            except TimeoutError:
                self._socket.close()  # or its warning would fail another test than this one
                raise
            if not chunk:
                raise ConnectionError(f"the agent closed the connection; heard {self.heard}")
            self.heard.extend(decode_for_daemon(self._reader.feed(chunk)))

    def started(self, token: str) -> Started:
        message = self.until(lambda m: isinstance(m, Started | Refused) and m.token == token)
        assert isinstance(message, Started), message
        return message

    def result(self, token: str) -> Exited | Refused | Lost:
        message = self.until(lambda m: isinstance(m, Exited | Refused | Lost) and m.token == token)
        assert isinstance(message, Exited | Refused | Lost)
        return message

    def exited(self, token: str) -> Exited:
        message = self.result(token)
        assert isinstance(message, Exited), message
        return message

    def closed_by_agent(self) -> bool:
        """Read to the end of the stream."""
        try:
            while self._socket.recv(1 << 16):
                pass
        except ConnectionError:
            return True
        return True

    def close(self) -> None:
        self._socket.close()


class House:
    """One agent with its directories."""

    def __init__(self, root: Path, **settings: object) -> None:
        self.root = root
        self.logs = root / "logs"
        self.logs.mkdir()
        for directory in (root, *root.parents[:4]):
            with contextlib.suppress(PermissionError):
                directory.chmod(directory.stat().st_mode | 0o011)  # pytest's directories let nobody pass
        defaults: dict[str, object] = {"gpus": "none"}
        self.settings = AgentSettings(str(root / "agent"), str(root / "attempts"), **{**defaults, **settings})  # type: ignore[arg-type]  # keyword arguments of any type
        self.wardens: list[subprocess.Popen[bytes]] = []
        self.daemons: list[Daemon] = []

    @property
    def socket(self) -> Path:
        return self.root / "agent" / "agent.sock"

    def launch(self) -> House:
        prepare_directories(self.settings)
        with (self.root / "agent.log").open("ab") as log:
            self.wardens.append(
                subprocess.Popen(
                    warden_command(self.settings),
                    env=agent_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        return self

    def daemon(self, epoch: int = 1) -> Daemon:
        connected = wait_until(lambda: self._try_daemon(epoch), "the agent answers", DEADLINE_S, 0.01)
        self.daemons.append(connected)
        return connected

    def _try_daemon(self, epoch: int) -> Daemon | None:
        try:
            return Daemon(self.socket, epoch)
        except OSError:
            return None

    def start(self, token: str, *argv: str, **fields: object) -> Start:
        values: dict[str, object] = {
            "task_id": token,
            "environment": {},
            "directory": None,
            "log_path": str(self.logs / f"{token}.log"),
            "vcpus": 1.0,
            "memory_mib": 1024,
            "gpu_ids": [],
        }
        return Start(token=token, argv=list(argv), **{**values, **fields})  # type: ignore[arg-type]  # keyword arguments of any type

    def shell(self, token: str, script: str, **fields: object) -> Start:
        return self.start(token, "/bin/sh", "-c", script, **fields)

    def log(self, token: str) -> str:
        return (self.logs / f"{token}.log").read_text()

    def kill_all(self) -> None:
        """Kill warden and agent, and wait until both are gone and others may take their place."""
        (daemon,) = self.daemons
        agent = daemon.inventory.agent_pid
        self.wardens[0].kill()
        os.kill(agent, signal.SIGKILL)
        self.wardens[0].wait()
        wait_until(lambda: not is_alive(agent), "nobody holds the lock any more")
        daemon.close()

    def close(self) -> None:
        for daemon in self.daemons:
            daemon.close()
        if any(warden.poll() is None for warden in self.wardens):
            # A test that was skipped at once leaves an agent that has just been started.
            with contextlib.suppress(AssertionError):
                wait_until(self.socket.exists, "the agent's socket")
        if self.socket.exists():  # Whoever started it: what a test began must not outlive it.
            with contextlib.suppress(AssertionError, OSError):
                last = self.daemon(epoch=1 << 40)
                last.send(Shutdown(kill=True, grace_s=0.0))
                last.closed_by_agent()
                last.close()
        for warden in self.wardens:
            try:
                warden.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                warden.kill()
                warden.wait()


@contextlib.contextmanager
def launched(root: Path, **settings: object) -> Iterator[House]:
    """An agent that lives as long as a test."""
    root.mkdir()
    built = House(root, **settings).launch()
    try:
        yield built
    finally:
        built.close()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with launched(tmp_path / "house") as built:
        yield built


@pytest.fixture
def make_house(tmp_path: Path) -> Iterator[Callable[..., House]]:
    built: list[House] = []

    def make(*, launched: bool = True, **settings: object) -> House:
        root = tmp_path / f"house{len(built)}"
        root.mkdir()
        built.append(House(root, **settings))
        return built[-1].launch() if launched else built[-1]

    yield make
    for one in built:
        one.close()


# --- starting and ending ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_exit_codes_are_those_of_a_container(house: House, script: str, code: int):
    daemon = house.daemon()
    daemon.send(house.shell("a", script))
    exited = daemon.exited("a")
    assert (exited.exit_code, exited.reason) == (code, None)
    assert exited.started_at <= exited.at
    assert daemon.started("a").pid > 0


def test_stdout_and_stderr_go_to_the_log_completely(house: House):
    daemon = house.daemon()
    daemon.send(
        house.shell("a", "i=0; while [ $i -lt 3000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done")
    )
    daemon.exited("a")
    lines = house.log("a").splitlines()
    assert lines == [f"{kind} {n}" for n in range(3000) for kind in ("out", "err")]
    assert (house.logs / "a.log").stat().st_mode & 0o777 == 0o400, "what a job has said it cannot unsay"
    assert RecordedLog(str(house.logs / "a.log")).timed_size == (house.logs / "a.log").stat().st_size


def test_a_silent_job_leaves_an_empty_log_and_no_times(house: House):
    daemon = house.daemon()
    daemon.send(house.start("a", "true"))
    daemon.exited("a")
    assert house.log("a") == ""
    assert not (house.logs / "a.log.times").exists()


def test_log_times_follow_a_log_that_grows(house: House):
    daemon = house.daemon()
    fifo = house.root / "go"
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    daemon.send(house.shell("a", f"echo first; read line < {fifo}; echo second"))
    log = str(house.logs / "a.log")
    wait_until(lambda: RecordedLog(log).timed_size, "the first line has a time")
    fifo.write_text("go\n")
    exited = daemon.exited("a")
    recorded = RecordedLog(log)
    assert Path(times_path(log)).stat().st_size == 2 * RECORD_BYTES
    assert recorded.at(6) <= recorded.at(7) == recorded.at(13) == exited.at


def test_many_attempts_at_once_each_keep_their_own_code(house: House):
    daemon = house.daemon()
    daemon.send(*(house.shell(f"t{n}", f"exit {n % 200}") for n in range(400)))
    assert [daemon.exited(f"t{n}").exit_code for n in range(400)] == [n % 200 for n in range(400)]


def test_what_cannot_be_started_is_refused_in_a_container_engines_words(house: House):
    (house.root / "not-a-program").write_text("hello")
    daemon = house.daemon()
    daemon.send(
        house.start("missing", "no-such-program"),
        house.start("locked", str(house.root / "not-a-program")),
        house.start("nowhere", "true", directory="/no/such/directory"),
        house.start("own-path", "true", environment={"PATH": "/nonexistent"}),
        house.start("empty"),
        house.start("strange", "true", task_id="../../etc"),
    )
    reasons = {
        token: daemon.result(token)
        for token in ("missing", "locked", "nowhere", "own-path", "empty", "strange")
    }
    assert all(isinstance(result, Refused) for result in reasons.values())
    words = {token: result.reason for token, result in reasons.items() if isinstance(result, Refused)}
    prefix = "CannotStartContainerError: "
    assert words["missing"] == prefix + 'exec: "no-such-program": executable file not found in $PATH'
    assert words["locked"] == prefix + f'exec: "{house.root}/not-a-program": permission denied'
    assert words["nowhere"] == prefix + 'chdir "/no/such/directory": no such file or directory'
    assert words["own-path"] == prefix + 'exec: "true": executable file not found in $PATH'
    assert words["empty"] == prefix + "no command specified"
    assert "cannot name a file" in words["strange"]


def test_a_known_token_is_never_started_again(house: House):
    daemon = house.daemon()
    once = house.shell("a", "echo ran")
    daemon.send(once)
    first = daemon.exited("a")
    daemon.heard.clear()
    daemon.send(once)
    assert daemon.exited("a") == first
    assert house.log("a") == "ran\n"


# --- what a job sees --------------------------------------------------------------------------------


def test_the_environment_is_the_given_one_and_gpus_are_not_the_jobs_to_choose(house: House):
    daemon = house.daemon()
    claimed = {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "0,1,2,3", "GREETING": "hello world"}
    daemon.send(
        house.start("none", "env", environment=claimed),
        house.start("two", "env", environment=claimed, gpu_ids=["GPU-simulated-0", "GPU-simulated-3"]),
    )
    seen = {}
    for token in ("none", "two"):
        assert daemon.exited(token).exit_code == 0
        seen[token] = dict(line.split("=", 1) for line in house.log(token).splitlines())
    home = str(house.root / "attempts" / "none")
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert seen["none"] == {
        "GREETING": "hello world",
        "HOME": home,
        "USER": daemon.inventory.job_user,
        "LOGNAME": daemon.inventory.job_user,
        "PATH": path,
        "WINDFALL_ATTEMPT": "none",
        "WINDFALL_AGENT": house.settings.agent_id,
        "NVIDIA_VISIBLE_DEVICES": "void",
        "CUDA_VISIBLE_DEVICES": "",
    }
    assert seen["two"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-simulated-0,GPU-simulated-3"
    assert seen["two"]["CUDA_VISIBLE_DEVICES"] == "GPU-simulated-0,GPU-simulated-3"


def test_signals_and_descriptors_of_a_job_are_clean(house: House):
    daemon = house.daemon()
    daemon.send(house.shell("a", "grep -E 'Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | wc -l; umask"))
    daemon.exited("a")
    blocked, ignored, descriptors, mask = house.log("a").split("\n")[:4]
    assert int(blocked.split()[1], 16) == 0
    assert int(ignored.split()[1], 16) & 0x7FFFFFFF == 0  # beyond are those that libc keeps for itself
    assert int(descriptors) == 4  # 0, 1, 2 and the directory that ls reads
    assert mask == "0022"


def test_a_private_directory_is_the_working_directory_and_goes_away_when_forgotten(house: House):
    daemon = house.daemon()
    daemon.send(house.shell("a", "pwd; stat -c %a .; touch left-behind; mkdir deep; touch deep/er"))
    assert daemon.exited("a").exit_code == 0
    private = house.root / "attempts" / "a"
    assert house.log("a").split() == [str(private), "700"]
    assert (private / "deep" / "er").exists()
    daemon.send(Forget(["a"]))
    wait_until(lambda: not private.exists(), "the directory is gone")


def test_a_directory_that_was_handed_on_is_empty_and_private(house: House):
    daemon = house.daemon()
    daemon.send(house.shell("a", "chmod 777 ."), house.shell("b", "true"))
    daemon.exited("a"), daemon.exited("b")
    daemon.send(
        Forget(["a", "b"]), house.shell("c", "ls -A | wc -l; stat -c %a ."), house.shell("d", "stat -c %a .")
    )
    daemon.exited("c"), daemon.exited("d")
    assert house.log("c").split() == ["0", "700"]
    assert house.log("d").split() == ["700"]


@needs_root
def test_jobs_are_not_root_and_see_neither_roots_files_nor_other_attempts(house: House):
    secret = house.root / "secret"
    secret.write_text("key")
    secret.chmod(0o600)
    daemon = house.daemon()
    daemon.send(
        house.shell("who", "id -u; id -G; grep CapEff /proc/self/status"),
        house.shell("secret", f"cat {secret}"),
        house.shell("list", f"ls {house.root}/attempts"),
        house.shell("agent", f"ls {house.root}/agent"),
        house.shell("kill", f"kill -9 {daemon.inventory.agent_pid}"),
    )
    assert daemon.inventory.job_user == "nobody"
    assert daemon.exited("who").exit_code == 0
    uid, groups, capabilities = house.log("who").strip().split("\n")
    assert int(uid) != 0
    assert "0" not in groups.split()
    assert int(capabilities.split()[1], 16) == 0
    for token in ("secret", "list", "agent", "kill"):
        assert daemon.exited(token).exit_code != 0, house.log(token)


@needs_root
def test_ancestors_of_a_working_directory_need_not_be_open_to_the_job(house: House):
    closed = house.root / "closed"
    mapped = closed / "mapped"
    mapped.mkdir(parents=True)
    (mapped / "file").write_text("content\n")
    closed.chmod(0o700)
    daemon = house.daemon()
    daemon.send(house.shell("a", "cat file", directory=str(mapped)))
    daemon.exited("a")
    assert house.log("a") == "content\n"
    assert mapped.exists()


@needs_root
def test_jobs_run_as_root_only_when_asked_and_that_is_said(make_house: Callable[..., House]):
    house = make_house(job_user="root")
    daemon = house.daemon()
    daemon.send(house.shell("a", "id -u"))
    daemon.exited("a")
    assert house.log("a") == "0\n"
    assert any("as root" in line for line in daemon.inventory.warnings)


# --- stopping ---------------------------------------------------------------------------------------


def test_stop_lets_the_job_end_in_its_grace(house: House):
    daemon = house.daemon()
    daemon.send(house.shell("a", "trap 'echo saved; exit 3' TERM; echo ready; while :; do sleep 0.02; done"))
    wait_until(
        lambda: "ready" in house.log("a") if (house.logs / "a.log").exists() else False, "the trap is set"
    )
    daemon.send(Stop("a", 20.0))
    assert daemon.exited("a").exit_code == 3
    assert "saved" in house.log("a")


def test_stop_kills_what_does_not_listen(house: House):
    daemon = house.daemon()
    daemon.send(house.shell("a", "trap '' TERM; echo ready; while :; do sleep 0.02; done"))
    wait_until(lambda: (house.logs / "a.log").exists() and house.log("a"), "the trap is set")
    daemon.send(Stop("a", 0.2))
    assert daemon.exited("a").exit_code == 137


def test_stop_of_the_unknown_is_lost_and_of_the_ended_its_result(house: House):
    daemon = house.daemon()
    daemon.send(Stop("never-heard-of", 1.0), house.shell("a", "exit 5"))
    assert isinstance(daemon.result("never-heard-of"), Lost)
    first = daemon.exited("a")
    daemon.heard.clear()
    daemon.send(Stop("a", 1.0))
    assert daemon.exited("a") == first


def test_a_stop_right_behind_the_start_is_honoured(house: House):
    daemon = house.daemon()
    daemon.send(house.start("a", "sleep", "1000"), Stop("a", 5.0))
    result = daemon.result("a")
    assert isinstance(result, Refused) or (isinstance(result, Exited) and result.exit_code == 143)


def test_children_die_with_the_job_even_those_that_left_its_session(house: House):
    daemon = house.daemon()
    script = "sleep 1001 & echo $!; (setsid sh -c 'echo $$; exec sleep 1002' &); sleep 0.3; exit 4"
    daemon.send(house.shell("a", script))
    assert daemon.exited("a").exit_code == 4
    children = [int(pid) for pid in house.log("a").split()]
    assert len(children) == 2
    wait_until(lambda: not any(is_alive(pid) for pid in children), "all children are gone")


def test_a_daemon_that_a_running_job_started_is_left_alone(house: House):
    daemon = house.daemon()
    daemon.send(
        house.shell("long", "(setsid sh -c 'echo $$; exec sleep 1003' &); echo up; exec sleep 1004"),
        house.start("short", "true"),
    )
    daemon.exited("short")
    wait_until(lambda: len(house.log("long").split()) == 2, "both are up")
    background = next(int(word) for word in house.log("long").split() if word != "up")
    daemon.send(*(house.start(f"more{n}", "true") for n in range(20)))
    for n in range(20):
        daemon.exited(f"more{n}")
    assert is_alive(background)
    daemon.send(Stop("long", 5.0))
    assert daemon.exited("long").exit_code == 143
    wait_until(lambda: not is_alive(background), "the job's own daemon is gone too")


# --- limits -----------------------------------------------------------------------------------------

HOG = "import time; hog = bytearray(200 << 20); time.sleep(60)"


def public_python() -> str:
    program = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    if program is None:
        pytest.skip("no python3 that another user may run")
    return program


def python_hog(house: House, token: str, **fields: object) -> Start:
    return house.start(token, public_python(), "-c", HOG, memory_mib=80, **fields)


def test_a_job_over_its_memory_is_killed_by_the_sampler(make_house: Callable[..., House]):
    house = make_house(use_cgroups=False)
    daemon = house.daemon()
    daemon.send(python_hog(house, "a"))
    exited = daemon.exited("a")
    assert (exited.exit_code, exited.reason) == (
        137,
        "OutOfMemoryError: Container killed due to memory usage",
    )
    assert exited.isolation == "process"


def cgroups_or_skip(daemon: Daemon) -> str:
    words = [ability for ability in daemon.inventory.abilities if ability.startswith("cgroup")]
    if not words or "memory" not in words[0]:
        pytest.skip("the memory cgroup cannot be written here")
    return words[0]


def test_a_job_over_its_memory_is_killed_by_its_cgroup(house: House):
    daemon = house.daemon()
    words = cgroups_or_skip(daemon)
    gate = house.root / "gate"
    script = f"while [ ! -e {gate} ]; do sleep 0.02; done; {public_python()} -c '{HOG}'; echo survived"
    daemon.send(house.shell("a", script, memory_mib=80))
    daemon.until(lambda m: isinstance(m, Enrolled))
    gate.touch()
    exited = daemon.exited("a")
    assert (exited.exit_code, exited.reason) == (
        137,
        "OutOfMemoryError: Container killed due to memory usage",
    )
    assert exited.isolation == f"process + {words}"
    house.close()
    # os.walk passes over directories that vanish meanwhile: other tests make and remove cgroups too.
    names = {Path(directory).name for directory, _, _ in os.walk("/sys/fs/cgroup")}
    assert f"windfall-{house.settings.agent_id}" not in names


def test_a_long_job_is_enrolled_with_all_its_processes(house: House):
    daemon = house.daemon()
    words = cgroups_or_skip(daemon)
    daemon.send(house.shell("a", "sleep 1005 & echo $!; wait", memory_mib=300))
    enrolled = daemon.until(lambda m: isinstance(m, Enrolled))
    assert isinstance(enrolled, Enrolled)
    assert enrolled.isolation == f"process + {words}"
    for pid in (daemon.started("a").pid, int(house.log("a"))):
        assert "windfall-" in Path(f"/proc/{pid}/cgroup").read_text()
    daemon.send(Stop("a", 5.0))
    assert daemon.exited("a").isolation == f"process + {words}"


# --- the daemon comes and goes ----------------------------------------------------------------------


def test_results_are_repeated_until_they_are_forgotten(house: House):
    first = house.daemon()
    first.send(
        house.shell("a", "exit 9"), house.start("b", "no-such-program"), house.start("c", "sleep", "1000")
    )
    ended = {first.result("a"), first.result("b")}
    first.started("c")
    first.close()

    second = house.daemon()
    assert {second.result("a"), second.result("b")} == ended
    states = {status.token: status.state for status in second.inventory.attempts}
    assert states == {"a": "exited", "b": "refused", "c": "running"}
    second.send(Forget(["a", "b", "c"]), Stop("nobody", 0.0))
    second.result("nobody")
    second.close()

    third = house.daemon()
    assert [status.token for status in third.inventory.attempts] == ["c"]
    third.send(Stop("c", 5.0))
    assert third.exited("c").exit_code == 143


def test_an_exit_while_no_daemon_is_there_is_told_the_next_one(house: House):
    first = house.daemon()
    first.send(house.shell("a", "sleep 0.2; exit 11"))
    first.started("a")
    first.close()
    wait_until(lambda: b"11" in (house.root / "agent" / "journal").read_bytes(), "the exit is on record")
    assert house.daemon().exited("a").exit_code == 11


def test_an_older_daemon_is_refused_and_a_newer_one_replaces_the_old(house: House):
    old = house.daemon(epoch=5)
    new = house.daemon(epoch=6)
    assert old.closed_by_agent()
    stale = house.daemon(epoch=5)
    assert isinstance(stale.greeting, Rejected)
    assert stale.greeting.epoch == 6
    assert stale.closed_by_agent()
    new.send(house.start("a", "true"))
    assert new.exited("a").exit_code == 0


def test_the_epoch_survives_the_agent(house: House):
    daemon = house.daemon(epoch=5)
    os.kill(daemon.inventory.agent_pid, signal.SIGKILL)
    assert daemon.closed_by_agent()
    assert isinstance(house.daemon(epoch=4).greeting, Rejected)


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b'{"type":"Forget","tokens":["\xff"]}\n'])
def test_garbage_closes_only_its_own_connection(house: House, garbage: bytes):
    daemon = house.daemon()
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(DEADLINE_S)
        stranger.connect(str(house.socket))
        stranger.sendall(garbage)
        assert stranger.recv(100) == b""
    daemon.send(house.start("a", "true"))
    assert daemon.exited("a").exit_code == 0


# --- death ------------------------------------------------------------------------------------------


def test_killing_the_agent_loses_no_exit_code_and_starts_nothing_twice(house: House):
    daemon = house.daemon()
    count = 120
    gate = house.root / "gate"
    runs = house.root / "runs"
    runs.mkdir()
    runs.chmod(0o777)
    script = "echo $$ >> {runs}/{n}; while [ ! -e {gate}{half} ]; do sleep 0.03; done; exit {code}"
    starts = [
        house.shell(f"t{n}", script.format(runs=runs, n=n, gate=gate, half=n % 2, code=n % 100))
        for n in range(count)
    ]
    daemon.send(*starts)
    for n in range(count):
        daemon.started(f"t{n}")
    agent = daemon.inventory.agent_pid
    (house.root / "gate0").touch()  # One half ends around the moment of death, the other half after it.
    os.kill(agent, signal.SIGKILL)
    daemon.close()

    again = house.daemon()
    assert again.inventory.agent_pid != agent
    again.send(*starts)
    (house.root / "gate1").touch()
    codes = [again.exited(f"t{n}").exit_code for n in range(count)]
    assert codes == [n % 100 for n in range(count)]
    assert all(len((runs / str(n)).read_text().split()) == 1 for n in range(count))


def test_killing_the_agent_again_and_again_while_it_starts_attempts(house: House):
    count = 300
    runs = house.root / "runs"
    runs.mkdir()
    runs.chmod(0o777)
    starts = [house.shell(f"t{n}", f"echo run >> {runs}/{n}; exit {n % 100}") for n in range(count)]
    results: dict[str, Exited | Refused | Lost] = {}
    daemon = house.daemon()
    for round_ in range(4):
        daemon.send(*starts[round_ * 75 : (round_ + 1) * 75])
        daemon.started(f"t{round_ * 75 + 20}")
        os.kill(daemon.inventory.agent_pid, signal.SIGKILL)
        daemon.close()
        daemon = house.daemon()
        known = {status.token for status in daemon.inventory.attempts}
        # What the journal does not know was never started, and only that may be sent again.
        daemon.send(*(start for start in starts[: (round_ + 1) * 75] if start.token not in known))
    for n in range(count):
        result = daemon.result(f"t{n}")
        results[result.token] = result
    for n in range(count):
        ran = (runs / str(n)).read_text().count("run") if (runs / str(n)).exists() else 0
        result = results[f"t{n}"]
        if isinstance(result, Exited):
            assert (result.exit_code, ran) == (n % 100, 1), (result, house.log(f"t{n}"))
        else:
            # Begun in the instant between the start and its line in the journal, and ended before anybody looked.
            assert isinstance(result, Lost)
            assert ran <= 1
    lost = [n for n in range(count) if isinstance(results[f"t{n}"], Lost)]
    # Four kills, and at most one such start in each of the two spawners at each.
    assert len(lost) <= 8, lost


def test_killing_warden_and_agent_leaves_the_jobs_running_to_be_adopted(house: House):
    daemon = house.daemon()
    gate = house.root / "gate"
    daemon.send(
        house.shell("a", f"while [ ! -e {gate} ]; do sleep 0.02; done; exit 21"),
        house.start("b", "sleep", "1000"),
    )
    pids = {token: daemon.started(token).pid for token in ("a", "b")}
    house.kill_all()
    assert all(is_alive(pid) for pid in pids.values())

    house.launch()
    again = house.daemon()
    assert {s.token: (s.state, s.pid) for s in again.inventory.attempts} == {
        token: ("running", pid) for token, pid in pids.items()
    }
    gate.touch()
    result = again.result("a")
    assert isinstance(result, Lost) or (isinstance(result, Exited) and result.exit_code == 21)
    again.send(Stop("b", 5.0))
    ended = again.result("b")
    assert isinstance(ended, Lost) or (isinstance(ended, Exited) and ended.exit_code == 143)
    assert not any(is_alive(pid) for pid in pids.values())


def test_a_shutdown_without_kill_leaves_jobs_to_the_next_agent(house: House):
    daemon = house.daemon()
    daemon.send(house.shell("a", "sleep 0.3; exit 12"), house.start("b", "sleep", "1000"))
    daemon.started("a"), daemon.started("b")
    daemon.send(Shutdown(kill=False))
    assert daemon.closed_by_agent()
    wait_until(lambda: not is_alive(daemon.inventory.agent_pid), "the agent has ended")
    assert house.wardens[0].poll() is None

    async def revive() -> None:
        await UnixReach(house.settings).bring_up()

    asyncio.run(revive())
    again = house.daemon()
    assert again.exited("a").exit_code == 12
    again.send(Shutdown(kill=True, grace_s=5.0))
    assert again.exited("b").exit_code == 143
    assert house.wardens[0].wait(DEADLINE_S) == 0


def test_an_agent_that_comes_back_leaves_another_agents_attempts_alone(make_house: Callable[..., House]):
    ours, theirs = make_house(), make_house()
    their_daemon, our_daemon = theirs.daemon(), ours.daemon()
    their_daemon.send(theirs.start("same", "sleep", "1006"))
    started = their_daemon.started("same")
    our_daemon.send(ours.start("same", "true"))
    our_daemon.exited("same")
    os.kill(our_daemon.inventory.agent_pid, signal.SIGKILL)
    assert our_daemon.closed_by_agent()
    assert ours.daemon().exited("same").exit_code == 0
    assert is_alive(started.pid)


def test_a_second_warden_is_refused(house: House):
    house.daemon()
    second = subprocess.run(
        warden_command(house.settings),
        env=agent_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert second.returncode == BUSY_CODE
    assert "another agent serves" in second.stderr


def test_an_agent_that_may_open_no_more_files_waits_with_what_it_cannot_start(house: House):
    daemon = house.daemon()
    pid = daemon.inventory.agent_pid
    usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, usual[1]))
    daemon.send(house.shell("a", "exit 3"))
    waiting = daemon.until(lambda message: isinstance(message, Progressed) and message.doing is not None)
    assert "too many open files" in str(waiting)
    with socket.socket(socket.AF_UNIX) as knocking:
        knocking.settimeout(DEADLINE_S)
        knocking.connect(str(house.socket))
        knocking.sendall(encode([Ping()]))
        wait_until(lambda: "no connections are accepted" in (house.root / "agent.log").read_text(), "a pause")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)
        [answer] = decode_for_daemon(knocking.recv(100))
        assert isinstance(answer, Pong)
    assert daemon.exited("a").exit_code == 3
    assert house.daemon(2).inventory.agent_pid == pid


def test_an_agent_whose_directory_was_removed_ends_for_good(house: House):
    daemon = house.daemon()
    # It may write a file while they are being removed.
    while (house.root / "agent").exists():
        shutil.rmtree(house.root / "agent", ignore_errors=True)
    daemon.send(Shutdown(kill=False))
    assert daemon.closed_by_agent()
    assert house.wardens[0].wait(DEADLINE_S) == 0


# --- the sandbox ------------------------------------------------------------------------------------


def sandbox_or_skip(daemon: Daemon) -> None:
    require_part("bubblewrap" in daemon.inventory.abilities, "bubblewrap is missing or not permitted here")


@pytest.fixture
def hiding_house(make_house: Callable[..., House], tmp_path: Path) -> House:
    hidden = tmp_path / "house0"
    return make_house(hide=(str(hidden),))


def test_a_sandbox_has_its_own_shared_memory_tmp_and_processes(hiding_house: House):
    house = hiding_house
    daemon = house.daemon()
    sandbox_or_skip(daemon)
    script = (
        "df -P -k /dev/shm | tail -1 | awk '{print $2}'; touch /tmp/mine && echo wrote; "
        "ls -d /proc/[0-9]* | wc -l; id -u; pwd; echo text > file; cat file; "
    )
    with tempfile.NamedTemporaryFile(dir="/tmp") as outside:
        script += f"[ -e {outside.name} ] && echo seen || echo hidden"
        daemon.send(house.shell("a", script, shared_memory_mib=7))
        exited = daemon.exited("a")
    shm, wrote, processes, uid, directory, content, others = house.log("a").split()
    assert exited.exit_code == 0
    assert exited.isolation.startswith("bubblewrap")
    assert (shm, wrote, content, others) == (str(7 * 1024), "wrote", "text", "hidden")
    assert int(processes) < 10
    assert uid == str(os.geteuid()) if not IS_ROOT else uid != "0"
    assert directory == str(house.root / "attempts" / "a")
    assert (house.root / "attempts" / "a" / "file").read_text() == "text\n"
    assert not Path("/tmp/mine").exists()
    daemon.send(Forget(["a"]))
    wait_until(lambda: not (house.root / "attempts" / "a.tmp").exists(), "its /tmp is gone")


def test_a_sandbox_hides_the_daemons_directory_but_not_the_jobs_own(hiding_house: House):
    house = hiding_house
    daemon = house.daemon()
    sandbox_or_skip(daemon)
    mapped = house.root / "mapped"
    mapped.mkdir()
    (mapped / "train.txt").write_text("here\n")
    daemon.send(
        house.shell("a", f"ls {house.root}; cat train.txt", needs_sandbox=True, directory=str(mapped)),
        house.shell("b", f"cat {house.root}/agent/journal", needs_sandbox=True),
        # By its whole path too, whatever lies between is made for it.
        house.shell("c", 'echo text > file; cd /; cat "$HOME/file"', needs_sandbox=True),
    )
    assert daemon.exited("a").exit_code == 0
    assert house.log("a").split() == ["mapped", "here"]
    assert daemon.exited("b").exit_code != 0
    assert (daemon.exited("c").exit_code, house.log("c")) == (0, "text\n")


def test_environment_and_exit_code_pass_through_a_sandbox(hiding_house: House):
    house = hiding_house
    daemon = house.daemon()
    sandbox_or_skip(daemon)
    odd = {
        "QUOTED": 'it\'s $HOME `x` "y"\nsecond line',
        "odd.name": "kept",
        "UID": "77",
        "LD_PRELOAD": "/nonexistent.so",
    }
    program = public_python()
    code = "import os, json, sys; print(json.dumps(dict(os.environ))); sys.stdout.flush(); os._exit(33)"
    daemon.send(
        house.start("a", program, "-c", code, environment=odd, needs_sandbox=True),
        house.shell("killed", "kill -SEGV $$", needs_sandbox=True),
        house.start("missing", "no-such-program", needs_sandbox=True),
    )
    assert daemon.exited("a").exit_code == 33
    line = next(line for line in house.log("a").splitlines() if line.startswith("{"))
    seen = json.loads(line)
    assert {name: seen[name] for name in odd} == odd
    assert seen["WINDFALL_ATTEMPT"] == "a"
    assert daemon.exited("killed").exit_code == 139
    refused = daemon.result("missing")
    assert isinstance(refused, Refused)
    assert refused.reason.endswith("executable file not found in $PATH")


def test_stop_reaches_the_job_in_a_sandbox_and_its_code_comes_through(hiding_house: House):
    house = hiding_house
    daemon = house.daemon()
    sandbox_or_skip(daemon)
    stubborn = "trap '' TERM; echo ready; while :; do sleep 0.02; done"
    daemon.send(
        house.shell("a", "trap 'exit 6' TERM; echo ready; while :; do sleep 0.02; done", needs_sandbox=True),
        house.shell("b", stubborn, needs_sandbox=True),
    )
    for token in ("a", "b"):
        daemon.started(token)
        wait_until(lambda token=token: house.log(token), "the trap is set")
    daemon.send(Stop("a", 20.0), Stop("b", 0.2))
    assert daemon.exited("a").exit_code == 6
    assert daemon.exited("b").exit_code == 137


def test_a_sandboxed_job_over_its_memory_is_killed(hiding_house: House):
    house = hiding_house
    daemon = house.daemon()
    sandbox_or_skip(daemon)
    cgroups_or_skip(daemon)
    daemon.send(python_hog(house, "a", needs_sandbox=True))
    exited = daemon.exited("a")
    assert (exited.exit_code, exited.reason) == (
        137,
        "OutOfMemoryError: Container killed due to memory usage",
    )
    assert "cgroup" in exited.isolation


def test_a_sandboxed_job_survives_the_agent(hiding_house: House):
    house = hiding_house
    daemon = house.daemon()
    sandbox_or_skip(daemon)
    daemon.send(
        house.shell("a", "echo up; while [ ! -e go ]; do sleep 0.02; done; exit 8", needs_sandbox=True)
    )
    daemon.started("a")
    wait_until(lambda: house.log("a"), "the job is up")
    os.kill(daemon.inventory.agent_pid, signal.SIGKILL)
    daemon.close()
    again = house.daemon()
    (house.root / "attempts" / "a" / "go").touch()
    assert again.exited("a").exit_code == 8


# --- the asyncio client -----------------------------------------------------------------------------


def test_the_daemons_client_starts_an_agent_and_speaks_with_it(make_house: Callable[..., House]):
    house = make_house(gpus="simulated:2", launched=False)

    async def talk() -> tuple[list[str], int | None]:
        reach = UnixReach(house.settings)
        await reach.bring_up()
        connection = await connect(reach, epoch=3)
        gpus = [gpu.id for gpu in connection.inventory.gpus]
        await connection.send([house.shell("a", "exit 2")])
        code = None
        async for batch in connection:
            for message in batch:
                if isinstance(message, Exited):
                    code = message.exit_code
            if code is not None:
                break
        with pytest.raises(AgentRejected):
            await connect(reach, epoch=2)
        await connection.close()
        return gpus, code

    assert asyncio.run(talk()) == (["GPU-simulated-0", "GPU-simulated-1"], 2)


def test_an_agent_refuses_a_daemon_that_it_cannot_understand_and_goes_on_with_its_own(house: House):
    daemon = house.daemon()
    daemon.send(house.start("a", "sleep", "1000"))
    daemon.started("a")
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(house.socket))
        stranger.settimeout(DEADLINE_S)
        stranger.sendall(encode([Hello(1_000, protocol=9, oldest_protocol=7)]))
        said = b"".join(iter(lambda: stranger.recv(4096), b""))
    [refusal] = decode_for_daemon(said)
    assert isinstance(refusal, Rejected)
    assert refusal.incompatible
    assert "the daemon speaks protocol 7 to 9" in refusal.reason
    daemon.send(Stop("a", 0))
    assert daemon.exited("a").exit_code == 137


def test_a_machine_keeps_its_name_on_its_agents_disk(house: House):
    daemon = house.daemon()
    name = daemon.inventory.machine_id
    assert re.fullmatch("[0-9a-f]{32}", name)
    assert (house.root / "agent" / "machine-id").read_text() == f"{name}\n"
    os.kill(daemon.inventory.agent_pid, signal.SIGKILL)
    wait_until(lambda: house.daemon().inventory.agent_pid != daemon.inventory.agent_pid, "the next agent")
    assert house.daemon().inventory.machine_id == name
