"""Shares of a GPU: what an attempt is told, and the daemon that must listen before it starts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.waiting import wait_until
from windfall.agent.devices.mps import PROGRAM, CannotShare, DeviceShares, is_running
from windfall.agent.gpus import GpuDevice

SIMULATED = GpuDevice("GPU-s", "Simulated GPU", 16_000, simulated=True, sharing="simulated")
REAL = GpuDevice("GPU-r", "NVIDIA H200", 143_771, sharing="mps")
WHOLE = GpuDevice("GPU-w", "Tesla P100", 16_000)
#: A control daemon in the outline: serves until somebody says quit.
DAEMON = """#!/bin/sh
cd "$CUDA_MPS_PIPE_DIRECTORY" || exit 1
if [ "$1" = "-f" ]; then
    echo $$ > nvidia-cuda-mps-control.pid
    echo "$CUDA_VISIBLE_DEVICES" > begun; mv begun control
    n=0; while [ ! -e quit ] && [ $n -lt 1200 ]; do sleep 0.05; n=$((n + 1)); done
    rm nvidia-cuda-mps-control.pid control
else
    read -r word; echo "$word" > quit
fi
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("windfall.agent.devices.mps._runtime_directory", lambda: str(tmp_path))
    path = tmp_path / PROGRAM
    path.write_text(DAEMON)
    path.chmod(0o755)
    return str(path)


def test_a_simulated_device_needs_no_daemon():
    variables = DeviceShares([SIMULATED], "agent").variables("t", "GPU-s", 0.25, own_memory=True)
    assert variables == {
        "WINDFALL_GPU_SHARE": "0.25",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4000M",
    }


def test_a_tiny_share_is_still_a_limit():
    variables = DeviceShares([SIMULATED], "agent").variables("t", "GPU-s", 0.001, own_memory=True)
    assert variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "1"


@pytest.mark.parametrize("gpu_id", ["GPU-w", "GPU-nobody-knows"])
def test_what_cannot_be_shared_is_refused(gpu_id: str):
    with pytest.raises(CannotShare, match="windfall gpus"):
        DeviceShares([WHOLE], "agent").variables("t", gpu_id, 0.5, own_memory=False)


def test_shared_memory_of_its_own_is_refused():
    with pytest.raises(CannotShare, match="sharedMemorySize"):
        DeviceShares([REAL], "agent").variables("t", "GPU-r", 0.5, own_memory=True)


def test_one_daemon_serves_a_device_until_nobody_needs_it(program: str):
    spared: list[int] = []
    shares = DeviceShares([REAL], "agent", program)
    shares.spare = spared.append
    first = shares.variables("one", "GPU-r", 0.5, own_memory=False)
    pipes = first["CUDA_MPS_PIPE_DIRECTORY"]
    assert Path(pipes, "control").read_text() == "GPU-r\n", "it sees this device alone"
    assert Path(pipes).stat().st_mode & 0o777 == 0o755, "jobs run as another user"
    assert shares.variables("two", "GPU-r", 0.25, own_memory=False)["CUDA_MPS_PIPE_DIRECTORY"] == pipes
    assert len(spared) == 1
    # An agent that comes later finds it there.
    later = DeviceShares([REAL], "agent", program)
    later.spare = spared.append
    assert later.variables("one", "GPU-r", 0.5, own_memory=False)["CUDA_MPS_PIPE_DIRECTORY"] == pipes
    assert len(spared) == 1
    shares.rest(lambda token: token == "one", at_once=True)
    assert is_running(pipes)
    shares.rest(lambda _: False)
    assert is_running(pipes), "somebody may need it in a moment"
    assert shares.next_due is not None
    shares.rest(lambda _: False, at_once=True)
    wait_until(lambda: not is_running(pipes), "the daemon to end")
    assert shares.next_due is None
    for pid in spared:
        os.waitpid(pid, 0)


def test_a_daemon_that_does_not_serve_is_said(program: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("windfall.agent.devices.mps._READY_S", 0.2)
    Path(program).write_text("#!/bin/sh\necho no license >&2; exit 1\n")
    shares = DeviceShares([REAL], "agent", program)
    spared: list[int] = []
    shares.spare = spared.append
    with pytest.raises(CannotShare, match="does not begin to serve"):
        shares.variables("t", "GPU-r", 0.5, own_memory=False)
    for pid in spared:
        os.waitpid(pid, 0)


def test_a_directory_of_somebody_else_is_refused(program: str, tmp_path: Path):
    if os.geteuid() != 0:
        pytest.skip("only root can make one that belongs to somebody else")
    taken = tmp_path / "windfall-mps-agent"
    taken.mkdir()
    subprocess.run(["chown", "nobody", str(taken)], check=True)
    with pytest.raises(CannotShare, match="belongs to another user"):
        DeviceShares([REAL], "agent", program).variables("t", "GPU-r", 0.5, own_memory=False)
