"""The NVIDIA driver: its kernel part, its library, its devices, whether both parts are of one version, and the GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from windfall.agent.checkup.host import Host
from windfall.agent.checkup.packages import system_of
from windfall.agent.checkup.verdicts import Verdict, bad, doubtful, good, skipped
from windfall.agent.gpus import GpuDevice

DRIVER, DEVICES, GPUS = "NVIDIA driver", "GPU device nodes", "GPUs"
_NVIDIA_VENDOR = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")
_VERSION = re.compile(r"\d{3,}\.\d+(\.\d+)?")


def check_driver(host: Host, gpus: Sequence[GpuDevice]) -> Iterator[Verdict]:
    """Look at the driver from the hardware up; a host without an NVIDIA GPU needs none."""
    loaded = host.read("/proc/driver/nvidia/version")
    asked = host.run("nvidia-smi", "-L")
    if loaded is None and asked is None:
        yield _nothing_there(host)
        return
    kernel = _version_in(loaded or "")
    if loaded is None:
        yield bad(DRIVER, "nvidia-smi is here, but the kernel module is not loaded", _load(host))
        return
    if asked is None:
        yield doubtful(
            DRIVER,
            f"kernel module {kernel}, but no nvidia-smi",
            "install the driver's utilities, same version",
        )
    elif "version mismatch" in asked.output.lower():
        yield bad(
            DRIVER,
            f"the kernel module is {kernel} and the library another version",
            "reboot, or unload and load the module: the driver was updated while it was in use",
        )
        return
    elif asked.code != 0:
        yield bad(DRIVER, f"nvidia-smi fails: {_first_line(asked.output)}", _load(host))
        return
    else:
        yield good(DRIVER, f"version {kernel}")
    yield _device_nodes(host)
    yield from _gpus(gpus)


def _nothing_there(host: Host) -> Verdict:
    cards = [name for name in host.names("/sys/bus/pci/devices") if _is_nvidia(host, name)]
    if not cards:
        return skipped(DRIVER, "this host has no NVIDIA GPU; jobs get CPUs alone")
    return bad(DRIVER, f"an NVIDIA card ({', '.join(cards)}) without a driver", _install(host))


def _is_nvidia(host: Host, name: str) -> bool:
    device = f"/sys/bus/pci/devices/{name}"
    vendor, kind = host.read(f"{device}/vendor"), host.read(f"{device}/class")
    return (vendor or "").strip() == _NVIDIA_VENDOR and (kind or "").strip()[:6] in _DISPLAY_CLASSES


def _install(host: Host) -> str:
    if system_of(host) == "debian":
        return (
            "sudo apt-get install -y nvidia-driver (Ubuntu: sudo ubuntu-drivers install --gpgpu), then reboot"
        )
    if system_of(host) == "fedora":
        return (
            "use the GPU-optimised AMI, or install NVIDIA's driver: sudo dnf install -y nvidia-driver; reboot"
        )
    return "install NVIDIA's driver, then reboot"


def _load(host: Host) -> str:
    in_container = host.read("/.dockerenv") is not None
    if in_container:
        return "this is a container: start it with --gpus all and NVIDIA's container runtime"
    return "sudo modprobe nvidia; if that fails, install the driver for this kernel again"


def _device_nodes(host: Host) -> Verdict:
    nodes = [name for name in host.names("/dev") if re.fullmatch(r"nvidia(\d+|ctl|-uvm)", name)]
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if name not in nodes]
    if not missing:
        return good(DEVICES, ", ".join(f"/dev/{name}" for name in nodes[:6]))
    return bad(
        DEVICES,
        f"/dev/{', /dev/'.join(missing)} is missing",
        "sudo nvidia-modprobe -u -c=0; and let it run at boot (nvidia-persistenced does)",
    )


def _gpus(gpus: Sequence[GpuDevice]) -> Iterator[Verdict]:
    real = [gpu for gpu in gpus if not gpu.simulated]
    if not real:
        yield bad(GPUS, "the driver is here and lists no GPU", "see `nvidia-smi` and `dmesg | grep -i xid`")
        return
    sick = [gpu for gpu in real if gpu.fence is not None]
    names: dict[str, int] = {}
    for gpu in real:
        names[gpu.name] = names.get(gpu.name, 0) + 1
    seen = ", ".join(f"{count} x {name}" for name, count in names.items())
    if sick:
        faults = "; ".join(f"{gpu.id[:12]}: {gpu.fence}" for gpu in sick)
        yield bad(GPUS, f"{seen}; {faults}", "reset it (nvidia-smi -r -i ID) when no job uses it, or reboot")
    elif notes := [f"{gpu.id[:12]}: {note}" for gpu in real for note in gpu.notes]:
        yield doubtful(GPUS, f"{seen}; {'; '.join(notes)}", "`windfall gpus` shows each device")
    else:
        yield good(GPUS, seen)


def _version_in(text: str) -> str:
    found = _VERSION.search(text)
    return found.group() if found else "of an unknown version"


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:200] or "it says nothing"
