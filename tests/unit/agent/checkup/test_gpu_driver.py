"""The NVIDIA driver, from hosts without a card to one whose library was updated under a running module."""

from __future__ import annotations

import pytest

from tests.unit.agent.checkup.hosts import AMAZON, DEBIAN, MadeHost
from windfall.agent.checkup.gpu_driver import check_driver
from windfall.agent.checkup.host import Ran
from windfall.agent.checkup.verdicts import State
from windfall.agent.gpus import GpuDevice

VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Sep 1 2026"
NODES = ["null", "nvidia0", "nvidiactl", "nvidia-uvm"]
H200 = GpuDevice("GPU-4605e639-c232", "NVIDIA H200", 143771)


def with_driver(**changes):
    host = MadeHost(
        files={"/proc/driver/nvidia/version": VERSION, "/etc/os-release": DEBIAN},
        directories={"/dev": NODES},
        programs={"nvidia-smi": Ran(0, "GPU 0: NVIDIA H200")},
    )
    for name, value in changes.items():
        setattr(host, name, value)
    return host


def test_a_healthy_host_says_version_devices_and_gpus():
    verdicts = list(check_driver(with_driver(), [H200]))
    assert [one.state for one in verdicts] == [State.GOOD] * 3
    assert "580.159.04" in verdicts[0].seen
    assert "1 x NVIDIA H200" in verdicts[2].seen


def test_a_host_without_a_card_needs_no_driver():
    (verdict,) = check_driver(MadeHost(), [])
    assert verdict.state is State.SKIPPED


@pytest.mark.parametrize(("system", "command"), [(DEBIAN, "apt-get"), (AMAZON, "dnf")])
def test_a_card_without_a_driver_is_bad_and_says_how_to_install_it(system, command):
    card = "/sys/bus/pci/devices/0000:00:1e.0"
    host = MadeHost(
        files={"/etc/os-release": system, f"{card}/vendor": "0x10de\n", f"{card}/class": "0x030200\n"},
        directories={"/sys/bus/pci/devices": ["0000:00:1e.0"]},
    )
    (verdict,) = check_driver(host, [])
    assert verdict.state is State.BAD
    assert command in verdict.mend


def test_a_card_of_another_maker_is_no_nvidia_card():
    card = "/sys/bus/pci/devices/0000:00:02.0"
    host = MadeHost(
        files={f"{card}/vendor": "0x8086\n", f"{card}/class": "0x030000\n"},
        directories={"/sys/bus/pci/devices": ["0000:00:02.0"]},
    )
    (verdict,) = check_driver(host, [])
    assert verdict.state is State.SKIPPED


def test_two_versions_of_the_driver_ask_for_a_reboot():
    said = "Failed to initialize NVML: Driver/library version mismatch"
    (verdict,) = check_driver(with_driver(programs={"nvidia-smi": Ran(18, said)}), [])
    assert verdict.state is State.BAD
    assert "reboot" in verdict.mend


def test_a_module_that_is_not_loaded_is_bad():
    host = with_driver(files={})
    (verdict,) = check_driver(host, [])
    assert verdict.state is State.BAD
    assert "modprobe" in verdict.mend


def test_in_a_container_the_runtime_is_to_blame():
    host = with_driver(files={"/.dockerenv": ""})
    (verdict,) = check_driver(host, [])
    assert "--gpus all" in verdict.mend


def test_missing_device_nodes_are_named():
    verdicts = list(check_driver(with_driver(directories={"/dev": ["nvidia0", "nvidiactl"]}), [H200]))
    assert verdicts[1].state is State.BAD
    assert "/dev/nvidia-uvm" in verdicts[1].seen


def test_a_sick_gpu_is_bad_and_a_throttled_one_doubtful():
    sick = GpuDevice("GPU-1", "NVIDIA A10G", 24576, fence="XID 79: fell off the bus")
    hot = GpuDevice("GPU-2", "NVIDIA A10G", 24576, notes=("held back by its temperature",))
    assert list(check_driver(with_driver(), [sick, hot]))[-1].state is State.BAD
    assert list(check_driver(with_driver(), [hot]))[-1].state is State.DOUBTFUL


def test_a_driver_that_lists_no_gpu_is_bad():
    assert list(check_driver(with_driver(), []))[-1].state is State.BAD
