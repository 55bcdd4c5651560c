"""Which GPUs a specification names."""

from __future__ import annotations

import pytest

from windfall.agent.errors import AgentError
from windfall.agent.gpus import GpuDevice, find_gpus, parse_nvidia_smi


def test_none_and_simulated():
    assert find_gpus("none") == []
    assert find_gpus("simulated:0") == []
    assert [gpu.id for gpu in find_gpus("simulated:2")] == ["GPU-simulated-0", "GPU-simulated-1"]
    assert all(gpu.simulated for gpu in find_gpus("simulated:2"))


@pytest.mark.parametrize("spec", ["", "two", "simulated", "simulated:", "simulated:-1", "simulated:x"])
def test_a_wrong_specification_says_what_is_right(spec: str):
    with pytest.raises(AgentError, match="use auto, none or simulated:N"):
        find_gpus(spec)


def test_auto_asks_the_driver(tmp_path, monkeypatch: pytest.MonkeyPatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU-1b2c, NVIDIA H200, 143771'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find_gpus("auto") == [GpuDevice("GPU-1b2c", "NVIDIA H200", 143771, False)]


def test_a_driver_that_fails_means_no_gpus(tmp_path, monkeypatch: pytest.MonkeyPatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find_gpus("auto") == []


def test_lines_that_are_no_devices_are_left_out():
    answer = "GPU-a, NVIDIA GB10, [N/A]\nMIG-b, x, 1\nnonsense\n"
    assert parse_nvidia_smi(answer) == [GpuDevice("GPU-a", "NVIDIA GB10", None, False)]
