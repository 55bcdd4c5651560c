"""Whole processes: killed trainers and writers, notices, a full disk. The end must equal the uninterrupted one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import windfall.checkpoint as ckpt
from tests.small_disk import mounted_at
from tests.waiting import wait_until

numpy = pytest.importorskip("numpy", reason="numpy is not installed")
PROGRAM = str(Path(__file__).with_name("training.py"))
STEPS = 1200
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def completed(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**ENVIRONMENT, **environment},
    )


@contextlib.contextmanager
def running(*arguments: object, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    for found in process.stdout:
        if found.strip() == line:
            return
    raise AssertionError(f"the trainer ended before it said {line!r}")


def last_step(process: subprocess.Popen[str], known: int) -> int:
    """The last step that the process told of, after one that is known; reads to its end."""
    assert process.stdout is not None
    # By the same file: `communicate` does not see the lines that were read ahead of the one that was waited for.
    steps = [int(line.split()[1]) for line in process.stdout if line.startswith("step ")]
    process.wait(timeout=60)
    return max([known, *steps])


def answer(outcome: subprocess.CompletedProcess[str], word: str) -> str:
    found = [line.split()[1] for line in outcome.stdout.splitlines() if line.startswith(word)]
    assert found, outcome.stdout[-2000:] + outcome.stderr[-2000:]
    return found[-1]


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> str:
    """The hash at the end of a run that nobody disturbed."""
    return answer(completed("train", tmp_path_factory.mktemp("straight"), STEPS), "hash")


def test_a_trainer_killed_again_and_again_ends_with_the_same_bits(tmp_path, expected):
    kills = 32
    outcome = completed("survive", tmp_path, STEPS, kills, 1)
    assert outcome.returncode == 0, outcome.stderr[-3000:]
    assert "torn" not in outcome.stdout
    assert outcome.stdout.count("killed") == kills
    steps = [int(line.split()[1]) for line in outcome.stdout.splitlines() if line.startswith("resumed")]
    assert steps == sorted(steps)
    assert steps[-1] > 0
    assert answer(outcome, "hash") == expected


def test_a_snapshot_that_was_handed_over_survives_the_trainer(tmp_path):
    """Killed right after the call, long before 40 MB can be on disk by chance alone."""
    program = (
        "import os, numpy, windfall.checkpoint as ckpt\n"
        "run = ckpt.open(os.environ['PLACE'], every=10**9)\n"
        "run.track(state={'x': numpy.full(5_000_000, 7.0)})\n"
        "run.resume()\n"
        "snapshot = run.snapshot(7)\n"
        "run._engine._queue.put(None)\n"
        "run._engine._drain.join()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    environment = {**ENVIRONMENT, "PLACE": str(tmp_path)}
    outcome = subprocess.run([sys.executable, "-c", program], env=environment, timeout=60, check=False)
    assert outcome.returncode == -signal.SIGKILL
    wait_until((tmp_path / "step-000000007").exists, "the writer's commit", 30)
    state = {"x": numpy.zeros(5_000_000)}
    with ckpt.open(tmp_path) as run:
        run.track(state=state)
        assert run.resume() == 7
    assert (state["x"] == 7.0).all()


def test_a_killed_writer_costs_one_save_and_no_more(tmp_path, caplog):
    state = {"x": numpy.zeros(2_000_000)}
    with ckpt.open(tmp_path, every=10**9) as run:
        run.track(state=state)
        run.resume()
        state["x"][:] = 1
        run.snapshot(1).result(200)
        state["x"][:] = 2
        os.kill(run._engine.link.process.pid, signal.SIGSTOP)
        doomed = run.snapshot(2)
        os.kill(run._engine.link.process.pid, signal.SIGKILL)
        with pytest.raises(ckpt.SaveFailed, match="writer"):
            doomed.result(200)
        state["x"][:] = 3
        run.snapshot(3).result(200)
    again = {"x": numpy.zeros(2_000_000)}
    with ckpt.open(tmp_path) as run:
        run.track(state=again)
        assert run.resume() == 3
    assert (again["x"] == 3).all()
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-000000001", "step-000000003"]


def notice(path: Path, seconds: float) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps({"action": "terminate", "deadline_at": int((time.time() + seconds) * 1000)}))
    draft.rename(path)


@pytest.mark.parametrize("way", ["file", "signal"])
def test_a_notice_costs_no_step(tmp_path, expected, way):
    place, told = tmp_path / "ck", tmp_path / "progress.json"
    files = {"WINDFALL_NOTICE_FILE": str(tmp_path / "notice"), "WINDFALL_PROGRESS_FILE": str(told)}
    with running("train", place, STEPS, 10**9, **files) as trainer:
        read_until(trainer, "step 40")
        if way == "file":
            notice(tmp_path / "notice", 60)
        else:
            trainer.send_signal(signal.SIGTERM)
        reached = last_step(trainer, 40)
        assert trainer.returncode == 143
    # The step that was saved is the one in hand when the notice was seen: one more than was told of.
    assert json.loads(told.read_text())["saved_step"] == reached + 1
    outcome = completed("train", place, STEPS)
    assert answer(outcome, "resumed") == str(reached + 1)
    assert answer(outcome, "hash") == expected


def test_a_second_sigterm_ends_it_at_once(tmp_path):
    program = (
        "import os, signal, windfall.checkpoint as ckpt\n"
        "run = ckpt.open(os.environ['PLACE'])\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('alive', run.notice > 0, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('still alive', flush=True)\n"
    )
    environment = {**ENVIRONMENT, "PLACE": str(tmp_path)}
    outcome = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert outcome.returncode == 143
    assert outcome.stdout == "alive True\n"


def test_without_a_step_boundary_the_process_ends_before_the_deadline(tmp_path):
    program = (
        "import os, threading, numpy, windfall.checkpoint as ckpt\n"
        "run = ckpt.open(os.environ['PLACE'], every=10**9)\n"
        "run.track(x={'x': numpy.ones(10)})\n"
        "run.resume()\n"
        "run.snapshot(5).result()\n"
        "print('ready', flush=True)\n"
        "threading.Event().wait()\n"  # a validation that does not end
    )
    told = tmp_path / "notice"
    environment = {**ENVIRONMENT, "PLACE": str(tmp_path / "ck"), "WINDFALL_NOTICE_FILE": str(told)}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as trainer:
        read_until(trainer, "ready")
        notice(told, 3)
        _, errors = trainer.communicate(timeout=60)
    assert trainer.returncode == 143
    assert "no step boundary came" in errors
    assert (tmp_path / "ck" / "step-000000005").is_dir()


def test_a_rebalance_recommendation_saves_early_and_goes_on(tmp_path):
    early = tmp_path / "rebalance"
    with running("train", tmp_path / "ck", 10**9, 10**9, WINDFALL_REBALANCE_FILE=str(early)) as trainer:
        read_until(trainer, "step 20")
        early.write_text("{}")
        wait_until(lambda: list((tmp_path / "ck").glob("step-*")), "the early checkpoint", 30)
        assert trainer.poll() is None


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")  # forking is what is tested
def test_a_forked_worker_ends_by_sigterm_as_before(tmp_path):
    """A data loader's worker inherits the trainer's handlers; it must neither save nor ignore the signal."""
    run = ckpt.open(tmp_path)
    try:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, b"x")
            signal.pause()
            os._exit(0)
        os.read(reader, 1)
        assert not int(caught_signals(child), 16) & 1 << (signal.SIGTERM - 1)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        assert run.notice is None
    finally:
        run.done()


def caught_signals(pid: int) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("SigCgt"))


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system of 12 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    with mounted_at(place, "size=12m"):
        yield place


def test_on_a_full_disk_older_checkpoints_make_room_and_the_newest_stays(small_disk):
    state = {"x": numpy.zeros(500_000)}  # 4 MB: three do not fit beside anything else
    with ckpt.open(small_disk, every=10**9, keep=10) as run:
        run.track(state=state)
        run.resume()
        for step in range(1, 6):
            state["x"][:] = step
            run.snapshot(step).result(200)
        state["y"] = numpy.ones(2_000_000)
        with pytest.raises(ckpt.SaveFailed, match=r"No space|no room"):
            run.snapshot(6).result(200)
        del state["y"]
    again = {"x": numpy.zeros(500_000)}
    with ckpt.open(small_disk) as run:
        run.track(state=again)
        assert run.resume() == 5
    assert (again["x"] == 5).all()
    assert not list(small_disk.glob(".step-*"))
