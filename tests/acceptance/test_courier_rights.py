"""Who moves a job's data, and what that process can and cannot do: tried with a real agent of root."""

from __future__ import annotations

import contextlib
import gzip
import os
import pwd
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import windfall
from tests.acceptance.test_agent import House, needs_root, public_python
from tests.acceptance.test_staging import (
    FENCE,
    WAITS,
    a_tar,
    in_seconds,
    inside,
    kept,
    ready,
    staged,
    store_of,
)
from tests.waiting import wait_until
from windfall.agent.launching import agent_environment
from windfall.agent.messages import Interrupt, Progressed, Refused
from windfall.agent.processes import snapshot
from windfall.jobs.job_users import RunAs
from windfall.jobs.staging import Archive, Channel, Output, Staging, TextFile
from windfall.jobs.storage import Grant, StorageAccess

pytestmark = needs_root
NOBODY = pwd.getpwnam("nobody")


@pytest.fixture(params=["sandbox", "process"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    root = tmp_path / "house"
    root.mkdir()
    built = House(root, use_sandbox=request.param == "sandbox").launch()
    yield built
    built.close()


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[House]:
    root = tmp_path / "plain"
    root.mkdir()
    built = House(root, use_sandbox=False).launch()
    yield built
    built.close()


def companions(agent_pid: int, module: str) -> list[int]:
    """The processes below an agent that run a module of ours."""
    found = []
    processes = snapshot()
    for pid in processes:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if module.encode() in words and _is_below(pid, agent_pid, processes):
                found.append(pid)
    return found


def _is_below(pid: int, above: int, processes: dict) -> bool:
    while pid in processes:
        pid = processes[pid].ppid
        if pid == above:
            return True
    return False


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def has_no_rights(pid: int) -> None:
    fields = status(pid)
    assert fields["Uid"].split() == [str(NOBODY.pw_uid)] * 4
    assert fields["Gid"].split() == [str(NOBODY.pw_gid)] * 4
    assert set(fields["Groups"].split()) <= {str(NOBODY.pw_gid)}
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[name], 16) == 0, (name, fields[name])
    assert fields["NoNewPrivs"] == "1"


def as_nobody(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        user=NOBODY.pw_uid,
        group=NOBODY.pw_gid,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )


def test_the_process_that_moves_data_is_the_jobs_user_without_any_rights(house: House):
    daemon = house.daemon()
    daemon.send(staged(house, "a", "echo 1 > $WINDFALL_CHECKPOINT_DIR/state; " + WAITS, kept(house)))
    daemon.until(lambda m: isinstance(m, Progressed) and m.checkpoint is not None)
    agent = daemon.inventory.agent_pid
    (courier,) = companions(agent, "windfall.agent.courier")
    has_no_rights(courier)
    (steward,) = companions(agent, "windfall.agent.steward")
    assert status(steward)["Uid"].split()[0] == "0"
    # Nothing of it is open to others of its user: neither memory nor environment nor descriptors.
    for name in ("mem", "environ", "maps", "fd", "cwd"):
        looked = as_nobody(
            "/bin/sh", "-c", f"cat /proc/{courier}/{name} 2>/dev/null || ls /proc/{courier}/{name}/"
        )
        assert looked.returncode != 0, name
        assert looked.stdout == ""
    held = [str(name.readlink()) for name in Path(f"/proc/{courier}/fd").iterdir()]
    files = [path for path in held if path.startswith("/")]
    assert all(
        path in ("/dev/null", f"{house.root}/agent.log", f"{house.root}/agent/door")
        or path.startswith((f"{house.root}/agent/courier.lock", "/memfd:", f"{house.root}/attempts"))
        for path in files
    ), files


def test_a_courier_has_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    root = tmp_path / "house"
    root.mkdir()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "SOME_PASSWORD"):
        monkeypatch.setenv(name, "windfall-test-credential")
    house = House(root, use_sandbox=False).launch()
    try:
        daemon = house.daemon()
        daemon.send(staged(house, "a", WAITS, kept(house)))
        wait_until(ready(house, "a"), "it runs")
        agent = daemon.inventory.agent_pid
        (courier,) = companions(agent, "windfall.agent.courier")
        assert b"windfall-test-credential" not in Path(f"/proc/{courier}/environ").read_bytes()
        assert b"windfall-test-credential" in Path(f"/proc/{agent}/environ").read_bytes()
        assert b"windfall-test-credential" not in _memory(courier)
        assert house.root.joinpath("agent").stat().st_mode & 0o077 == 0
    finally:
        house.close()


def _memory(pid: int) -> bytes:
    """What a process has written into its own memory."""
    content = b""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            if "w" not in rights:
                continue
            start, end = (int(at, 16) for at in span.split("-"))
            with contextlib.suppress(OSError, OverflowError):
                memory.seek(start)
                content += memory.read(end - start) or b""
    return content


def test_what_the_courier_runs_as_cannot_read_the_daemons_keys(plain: House):
    """The same user, in the same groups, with the same way to look."""
    keys = plain.root / "agent" / "keys.json"
    daemon = plain.daemon()
    keys.write_text("{}")
    keys.chmod(0o600)
    daemon.send(staged(plain, "a", WAITS, kept(plain)))
    wait_until(ready(plain, "a"), "it runs")
    assert as_nobody("cat", str(keys)).returncode != 0
    (courier,) = companions(daemon.inventory.agent_pid, "windfall.agent.courier")
    # Entering the courier's own place changes nothing: nsenter takes its user and its working directory.
    entered = subprocess.run(
        [
            "setpriv",
            "--reuid",
            str(NOBODY.pw_uid),
            "--regid",
            str(NOBODY.pw_gid),
            "--clear-groups",
            "cat",
            str(keys),
        ],
        capture_output=True,
        cwd=f"/proc/{courier}/cwd",
        check=False,
    )
    assert entered.returncode != 0


def test_a_job_cannot_reach_the_steward(plain: House):
    """Its socket is behind a directory that lets nobody pass, and the courier's descriptors are closed to a job."""
    daemon = plain.daemon()
    script = (
        f"ls {plain.root}/agent/door; ls -l {plain.root}/agent; "
        "for p in /proc/[0-9]*; do ls $p/fd/ >/dev/null 2>&1 "
        "&& tr '\\0' '\\n' < $p/cmdline | grep -qx windfall.agent.courier "
        f"&& grep -q {plain.root}/agent $p/cmdline && echo FOUND; done; "
        "echo done"
    )
    daemon.send(staged(plain, "a", script, kept(plain)))
    assert daemon.exited("a").exit_code == 0
    log = plain.log("a")
    assert log.count("Permission denied") == 2, log
    assert "FOUND" not in log
    assert log.endswith("done\n")


def test_everything_is_moved_by_the_jobs_user(house: House):
    store = house.root / "store"
    for name, content in {"train/a.csv": "1", "train/deep/b.csv": "2"}.items():
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text(content)
    (store / "piped").mkdir()
    (store / "piped" / "x.gz").write_bytes(gzip.compress(b"epoch\n"))
    a_tar(store / "code.tar.gz", main="print")
    shutil.chown(store, 0, 0)
    store.chmod(0o700)
    uri = store_of(house)
    staging = kept(
        house,
        archives=(Archive(f"{uri}/code.tar.gz", "/opt/ml/code"),),
        channels=(
            Channel("train", f"{uri}/train"),
            Channel("piped", f"{uri}/piped", "Pipe", compression="Gzip"),
        ),
        files=(TextFile("/opt/ml/input/config/x.json", "{}"),),
        outputs=(Output("/opt/ml/model", f"{uri}/model.tar.gz"),),
    )
    script = (
        'cd "$0" 2>/dev/null || cd /opt/ml; find . -not -user nobody -type f; '
        "cat code/main.txt input/data/train/a.csv input/data/train/deep/b.csv input/config/x.json; "
        "cat input/data/piped_0; cat input/data/piped_1; "
        "echo weights > model/weights; echo saved > $WINDFALL_CHECKPOINT_DIR/state; " + WAITS
    )
    daemon = house.daemon()
    daemon.send(house.start("a", "/bin/sh", "-c", script, "/opt/ml", staging=staging, fence=FENCE))
    wait_until(ready(house, "a"), "everything was read")
    assert house.log("a") == "print12{}epoch\nepoch\nready\n"
    (feeder,) = companions(daemon.inventory.agent_pid, "windfall.agent.courier.feeder")
    has_no_rights(feeder)
    daemon.send(Interrupt("a", in_seconds(5), ""))
    first = daemon.exited("a")
    assert first.checkpoint is not None
    wait_until(
        lambda: not companions(daemon.inventory.agent_pid, "windfall.agent.courier.feeder"), "it has ended"
    )
    end = (
        'cd "$0" 2>/dev/null || cd /opt/ml; cat $WINDFALL_CHECKPOINT_DIR/state; echo weights > model/weights'
    )
    daemon.send(house.start("b", "/bin/sh", "-c", end, "/opt/ml", staging=staging, fence=FENCE + 1))
    assert daemon.exited("b").exit_code == 0
    assert house.log("b") == "saved\n"
    with tarfile.open(store / "model.tar.gz") as archive:
        assert archive.getnames() == ["weights"]
    # What is in the store is the daemon's, whoever has brought it.
    owners = {path.stat().st_uid for path in store.rglob("*") if path.is_file()}
    assert owners == {0}


def test_each_user_has_a_courier_of_its_own(plain: House):
    daemon = plain.daemon()
    users = {"a": 231_001, "b": 231_002}
    for token, uid in users.items():
        script = "echo 1 > $WINDFALL_CHECKPOINT_DIR/state; " + WAITS
        daemon.send(staged(plain, token, script, kept(plain, token), run_as=RunAs(uid=uid)))
    for token in users:
        daemon.until(
            lambda m, token=token: isinstance(m, Progressed) and m.token == token and m.checkpoint is not None
        )
    couriers = companions(daemon.inventory.agent_pid, "windfall.agent.courier")
    assert {int(status(pid)["Uid"].split()[0]) for pid in couriers} == set(users.values())
    assert all(int(status(pid)["CapEff"], 16) == 0 for pid in couriers)
    assert len(companions(daemon.inventory.agent_pid, "windfall.agent.steward")) == 1
    directories = [inside(plain, token).stat() for token in users]
    assert [(one.st_gid, one.st_mode & 0o007) for one in directories] == [(uid, 0) for uid in users.values()]


def test_the_steward_keeps_a_courier_to_the_grants_of_its_attempt(plain: House):
    """Not the courier alone: the same URI is refused by both, each with the reason."""
    store = plain.root / "store"
    (store / "mine").mkdir(parents=True)
    (store / "theirs").mkdir()
    (store / "theirs" / "x").write_text("secret")
    uri = store_of(plain)
    access = StorageAccess((Grant(f"{uri}/mine", write=True),))
    daemon = plain.daemon()
    staging = Staging(channels=(Channel("train", f"{uri}/theirs"),))
    daemon.send(staged(plain, "a", "true", staging, storage=access))
    result = daemon.result("a")
    assert isinstance(result, Refused)
    assert "may not read" in result.reason
    assert "secret" not in (plain.root / "agent.log").read_text()


@pytest.mark.parametrize("victim", ["steward", "courier", "both"])
def test_the_death_of_either_costs_nothing(plain: House, victim: str):
    daemon = plain.daemon()
    store = plain.root / "store" / "piped"
    store.mkdir(parents=True)
    (store / "x").write_text("epoch\n")
    staging = kept(plain, channels=(Channel("train", f"{store_of(plain)}/piped", "Pipe"),))
    script = (
        f"cd {inside(plain, 'a')}; cat input/data/train_0; echo 1 > checkpoints/one; "
        "while [ ! -e go ]; do sleep 0.05; done; cat input/data/train_1; echo 2 > checkpoints/two; " + WAITS
    )
    daemon.send(staged(plain, "a", script, staging))
    daemon.until(lambda m: isinstance(m, Progressed) and m.checkpoint is not None)
    agent = daemon.inventory.agent_pid
    victims = [
        pid
        for name in (("steward", "courier") if victim == "both" else (victim,))
        for pid in companions(agent, f"windfall.agent.{name}")
    ]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    (inside(plain, "a") / "go").touch()
    daemon.until(
        lambda m: isinstance(m, Progressed) and m.checkpoint is not None and m.checkpoint.name == "two"
    )
    assert plain.log("a") == "epoch\nepoch\nready\n"
    daemon.send(Interrupt("a", in_seconds(5), ""))
    assert daemon.exited("a").checkpoint is not None
    assert set(companions(agent, "windfall.agent.courier")).isdisjoint(victims)


def test_code_that_the_jobs_user_cannot_read_moves_data_all_the_same(tmp_path: Path):
    """As of a daemon that is installed in root's home."""
    root = tmp_path / "house"
    root.mkdir()
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    package = Path(windfall.__file__).parent
    shutil.copytree(package, hidden / "windfall", ignore=shutil.ignore_patterns("__pycache__"))
    house = House(root, use_sandbox=False)
    # The agent's directories too are where nobody else can go; the job does not name them.
    environment = {**agent_environment(), "PYTHONPATH": str(hidden)}
    from windfall.agent.launching import prepare_directories, warden_command

    prepare_directories(house.settings)
    command = [
        word.replace(str(package), str(hidden / "windfall")) for word in warden_command(house.settings)
    ]
    with (root / "agent.log").open("ab") as log:
        house.wardens.append(
            subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        )
    try:
        daemon = house.daemon()
        store = root / "store"
        (store / "train").mkdir(parents=True)
        (store / "train" / "x").write_text("data\n")
        a_tar(store / "code.tar.gz", main="print")
        staging = kept(
            house,
            archives=(Archive(f"{store_of(house)}/code.tar.gz", "/opt/ml/code"),),
            channels=(Channel("train", f"{store_of(house)}/train", "Pipe"),),
            outputs=(Output("/opt/ml/model", f"{store_of(house)}/model.tar.gz"),),
        )
        script = f"cd {inside(house, 'a')}; cat code/main.txt input/data/train_0; echo 1 > model/x"
        daemon.send(staged(house, "a", script, staging))
        assert daemon.exited("a").exit_code == 0, house.log("a")
        assert house.log("a") == "printdata\n"
        assert (store / "model.tar.gz").exists()
        assert "Traceback" not in (root / "agent.log").read_text()
        (courier,) = companions(daemon.inventory.agent_pid, "windfall.agent.courier")
        has_no_rights(courier)
    finally:
        house.close()


def test_directories_that_are_closed_above_keep_nobody_from_moving(tmp_path: Path):
    """The job reaches its own directory by the sandbox or a descriptor; so does the courier."""
    closed = tmp_path / "c"
    closed.mkdir()
    root = closed / "h"
    root.mkdir()
    house = House(root, use_sandbox=False).launch()
    closed.chmod(0o700)
    try:
        daemon = house.daemon()
        staging = kept(house, files=(TextFile("/opt/ml/input/config/x.json", "{}"),))
        daemon.send(staged(house, "a", "echo here > state", staging))
        assert daemon.exited("a").exit_code == 0, (root / "agent.log").read_text()
        (courier,) = companions(daemon.inventory.agent_pid, "windfall.agent.courier")
        has_no_rights(courier)
    finally:
        house.close()


def test_a_job_cannot_trace_or_stop_being_watched(plain: House):
    """Tracing the courier is refused; killing it, which its own user may do, only starts another."""
    daemon = plain.daemon()
    python = public_python()
    program = (
        "import ctypes,os,sys,glob\n"
        "libc=ctypes.CDLL(None,use_errno=True)\n"
        "for p in glob.glob('/proc/[0-9]*/cmdline'):\n"
        "    try: words=open(p,'rb').read().split(b'\\0')\n"
        "    except OSError: continue\n"
        f"    if b'windfall.agent.courier' in words and b'{plain.root}/agent' in words[4]:\n"
        "        pid=int(p.split('/')[2])\n"
        "        print('traced' if libc.ptrace(16,pid,0,0)==0 else 'refused',flush=True)\n"
        "        os.kill(pid,9)\n"
        "        break\n"
    )
    script = f'{python} -c "$0"; echo 1 > $WINDFALL_CHECKPOINT_DIR/after; ' + WAITS
    daemon.send(plain.start("a", "/bin/sh", "-c", script, program, staging=kept(plain), fence=FENCE))
    daemon.until(
        lambda m: isinstance(m, Progressed) and m.checkpoint is not None and m.checkpoint.name == "after"
    )
    assert plain.log("a") == "refused\nready\n"
