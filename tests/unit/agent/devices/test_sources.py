"""Which devices a setting means, and that every source keeps what it promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windfall.agent.devices.nvidia_smi import open_nvidia_smi, parse_nvidia_smi
from windfall.agent.devices.readings import Reading, RecordedSet, read_set, write_set
from windfall.agent.devices.sources import CannotRead, RecordedSource, open_source
from windfall.agent.errors import AgentError
from windfall.agent.gpus import find_gpus

SETS = Path(__file__).parent / "sets"
ALL_SETS = sorted(path.stem for path in SETS.glob("*.json"))


def test_none_and_simulated():
    assert find_gpus("none") == []
    assert find_gpus("simulated:0") == []
    assert [gpu.id for gpu in find_gpus("simulated:2")] == ["GPU-simulated-0", "GPU-simulated-1"]
    assert all(gpu.simulated and gpu.sharing == "simulated" for gpu in find_gpus("simulated:2"))


@pytest.mark.parametrize("spec", ["", "two", "simulated", "simulated:", "simulated:-1", "recorded:x"])
def test_a_wrong_specification_says_what_is_right(spec: str):
    with pytest.raises(AgentError, match="use auto, none, simulated:N"):
        find_gpus(spec)


def test_without_a_driver_there_are_no_gpus():
    assert open_source("auto", real=lambda: None) is None


@pytest.fixture
def a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An nvidia-smi that prints what it is told."""

    def install(answer: str) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\necho '{answer}'\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return install


def test_nvidia_smi_answers_where_nvml_cannot_be_loaded(a_driver):
    a_driver("GPU-1b2c, NVIDIA H200, 143771, 580.159")
    source = open_nvidia_smi()
    assert source is not None
    [reading] = source.read()
    assert (reading.id, reading.name, reading.memory_mib, reading.driver) == (
        "GPU-1b2c",
        "NVIDIA H200",
        143771,
        "580.159",
    )
    assert reading.sharing is None
    a_driver("Unable to determine the device handle for GPU0: GPU is lost")
    with pytest.raises(CannotRead, match="lists no GPU"):
        source.read()


def test_a_driver_that_fails_means_no_gpus(a_driver):
    a_driver("NVIDIA-SMI has failed")
    assert open_nvidia_smi() is None


def test_lines_that_are_no_devices_are_left_out():
    readings = parse_nvidia_smi("GPU-a, NVIDIA GB10, [N/A], 580\nMIG-b, x, 1, 2\nnonsense\n")
    assert [(reading.id, reading.name, reading.memory_mib) for reading in readings] == [
        ("GPU-a", "NVIDIA GB10", None)
    ]


# Recorded sets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL_SETS)
def test_every_recorded_set_can_be_played(name: str, tmp_path: Path):
    source = open_source(f"recorded:{SETS / name}.json")
    assert source is not None
    first, second = source.read(), source.read()
    assert all(reading.simulated for reading in first)
    assert len({reading.id for reading in first}) == len(first)
    assert not any(reading.xids for reading in second), "an XID happens once"
    again = str(tmp_path / "again.json")
    write_set(again, RecordedSet(first))
    assert read_set(again).gpus == first
    devices = find_gpus(f"recorded:{SETS / name}.json")
    assert [device.id for device in devices] == [reading.id for reading in first]
    assert all(device.fence for device in devices if device.evacuate)


def test_the_sets_show_what_they_are_named_after():
    def devices(name: str):
        return find_gpus(f"recorded:{SETS / name}.json")

    assert [device.name for device in devices("h200")] == ["NVIDIA H200"]
    assert [(device.name, device.memory_mib) for device in devices("h200-mig")] == [
        ("NVIDIA H200 MIG 1g.18gb", 16_384)
    ] * 2
    assert [device.memory_mib for device in devices("eight-a100")] == [40_960] * 8
    assert {device.parent for device in devices("mig")} == {"GPU-8d0c5b4e-0001"}
    assert all("MIG" in device.name and device.id.startswith("MIG-") for device in devices("mig"))
    assert {device.sharing for device in devices("mig")} == {None}
    assert len({device.name for device in devices("mixed")}) == 3
    assert devices("none") == []
    sick = {device.id: device for device in devices("sick")}
    assert [device_id for device_id, device in sick.items() if device.fence is None] == [
        "GPU-well",
        "GPU-noted",
    ]
    assert sick["GPU-gone"].lost
    assert [d.id for d in sick.values() if d.evacuate] == ["GPU-xid", "GPU-gone", "GPU-recovery"]


def test_a_file_that_changes_is_read_again(tmp_path: Path):
    path = tmp_path / "gpus.json"
    write_set(str(path), RecordedSet([Reading("GPU-a", "A")]))
    source = RecordedSource(str(path))
    assert source.read()[0].xids == ()
    write_set(str(path), RecordedSet([Reading("GPU-a", "A", xids=(79,))]))
    assert source.read()[0].xids == (79,)
    assert source.read()[0].xids == ()
    path.write_text("{")
    with pytest.raises(CannotRead, match="not a set of recorded GPUs"):
        source.read()
    path.unlink()
    with pytest.raises(CannotRead, match="No such file"):
        source.read()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"gpus": [{"id": "a", "name": "A"}, {"id": "a", "name": "B"}]}, "an id of its own"),
        ({"gpus": [{"id": "a", "name": "A", "memmory": 1}]}, "memmory"),
        ({"devices": []}, "devices"),
        ({"gpus": [{"id": "a", "name": "A", "memory_mib": -1}]}, "a: memory_mib is -1"),
        ({"gpus": [{"id": "a", "name": "A", "recovery": "restart"}]}, "it may be none, drain, reset, reboot"),
        ({"gpus": [{"id": "a", "name": "A", "meter": {"bussy": 1}}]}, "nobody measures bussy"),
        ({"gpus": [{"id": "a", "name": "A", "meter": {"busy": []}}]}, "is empty"),
    ],
)
def test_a_wrong_set_says_what_is_wrong(content: object, problem: str, tmp_path: Path):
    path = tmp_path / "gpus.json"
    path.write_text(json.dumps(content))
    with pytest.raises(AgentError, match=problem):
        read_set(str(path))


def test_a_set_can_say_that_a_device_is_not_shared(tmp_path: Path):
    path = tmp_path / "gpus.json"
    write_set(str(path), RecordedSet([Reading("a", "A"), Reading("b", "B", sharing_note="too old")]))
    assert [gpu.sharing for gpu in find_gpus(f"recorded:{path}")] == ["simulated", None]
