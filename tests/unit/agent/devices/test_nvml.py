"""How NVML's answers become readings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.agent.devices.fake_nvml import Board, FakeNvml
from windfall.agent.devices.health import Judge
from windfall.agent.devices.nvml import NvmlSource, slowdowns
from windfall.agent.devices.sources import CannotRead


@pytest.fixture
def with_mps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-cuda-mps-control"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("with_mps")
def test_a_gpu_with_all_that_it_can_tell():
    [reading] = NvmlSource(FakeNvml(Board("GPU-a", errors={0: 7, 1: 2}, remapped=(1, 1, 1, 0)))).read()
    assert (reading.id, reading.name, reading.memory_mib) == ("GPU-a", "NVIDIA H200", 143_771)
    assert (reading.driver, reading.bus_id, reading.compute_capability) == (
        "580.159.03",
        "00000000:0A:00.0",
        "9.0",
    )
    assert (reading.corrected_errors, reading.uncorrected_errors) == (7, 2)
    assert (reading.remap_pending, reading.remap_failed, reading.recovery) == (True, False, "none")
    assert (reading.temperature_c, reading.shutdown_c, reading.sharing) == (41, 95, "mps")


@pytest.mark.usefixtures("with_mps")
def test_an_old_gpu_tells_less_and_is_not_shared():
    board = Board("GPU-a", capability=(6, 1), errors=None, remapped=None, recovery=None)
    [reading] = NvmlSource(FakeNvml(board)).read()
    assert (reading.uncorrected_errors, reading.recovery, reading.remap_pending) == (None, None, False)
    assert reading.sharing is None
    assert "7.0" in (reading.sharing_note or "")


def test_without_the_program_nothing_is_shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("windfall.agent.devices.nvidia_smi.PROGRAM_DIRECTORIES", ())
    [reading] = NvmlSource(FakeNvml(Board("GPU-a"))).read()
    assert reading.sharing_note == "nvidia-cuda-mps-control is not installed"


def test_mig_slices_stand_in_for_their_gpu_and_share_its_health():
    slices = [Board(f"MIG-{n}", "NVIDIA H200 MIG 1g.18gb", 16_384 << 20) for n in range(2)]
    board = Board("GPU-a", slices=slices, errors={0: 0, 1: 3})
    readings = NvmlSource(FakeNvml(board, Board("GPU-b"))).read()
    assert [(one.id, one.parent, one.memory_mib) for one in readings] == [
        ("MIG-0", "GPU-a", 16_384),
        ("MIG-1", "GPU-a", 16_384),
        ("GPU-b", None, 143_771),
    ]
    assert [one.uncorrected_errors for one in readings] == [3, 3, 0]
    assert readings[0].sharing is None


def test_mig_without_slices_and_a_forbidden_gpu_say_what_to_do():
    readings = NvmlSource(FakeNvml(Board("GPU-a", slices=[]), Board("GPU-b", compute_mode=2))).read()
    assert "nvidia-smi mig -cgi" in (readings[0].unusable or "")
    assert "nvidia-smi -c DEFAULT" in (readings[1].unusable or "")


@pytest.mark.parametrize("code", [FakeNvml.NVML_ERROR_GPU_IS_LOST, FakeNvml.NVML_ERROR_RESET_REQUIRED])
def test_a_gpu_that_is_lost_is_left_out_and_the_others_are_read(code: int):
    nvml = FakeNvml(Board("GPU-a"), Board("GPU-b"))
    source = NvmlSource(nvml)
    judge = Judge(source.rules)
    judge.hear(source.read(), 1)
    nvml.boards[0].trouble = code
    assert [reading.id for reading in source.read()] == ["GPU-b"]
    devices = judge.hear(source.read(), 2)
    assert [(device.id, device.lost) for device in devices] == [("GPU-b", False), ("GPU-a", True)]


def test_a_driver_that_does_not_answer_is_begun_anew():
    nvml = FakeNvml(Board("GPU-a"))
    source = NvmlSource(nvml)
    nvml.trouble = 1
    with pytest.raises(CannotRead, match="driver does not answer"):
        source.read()
    assert nvml.begun == 1
    nvml.trouble = None
    assert len(source.read()) == 1


def test_an_xid_is_told_with_the_next_reading_and_once():
    nvml = FakeNvml(Board("GPU-a"), Board("GPU-b"))
    source = NvmlSource(nvml)
    source.read()
    assert nvml.registered == ["GPU-a", "GPU-b"]
    nvml.events = [(nvml.boards[1], 45), (nvml.boards[1], 79)]
    source.wait()
    assert [reading.xids for reading in source.read()] == [(), (45, 79)]
    assert [reading.xids for reading in source.read()] == [(), ()]


def test_slowdowns_in_words():
    assert slowdowns(0x1 | 0x4) == (), "idle and the power cap are ordinary"
    assert slowdowns(0x8) == ("hardware slowdown",)
    assert slowdowns(0x8 | 0x80) == ("power brake",)
    assert slowdowns(0x20 | 0x40) == ("heat, by the driver", "heat, by the hardware")
