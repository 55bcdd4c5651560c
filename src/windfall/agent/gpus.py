"""Which GPUs this machine has. Decides their ids, names and memory; must not know who gets them.

`find_gpus` is the seam for another source (NVML) later: a source is a function that returns devices.
"""

from __future__ import annotations

import os

import msgspec

from windfall.agent.errors import AgentError

_QUERY_TIMEOUT_S = 20
#: Where drivers put the program; /usr/lib/wsl/lib is where Windows does.
_PROGRAM_DIRECTORIES = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib")


class GpuDevice(msgspec.Struct, frozen=True):
    """One GPU; `simulated` devices have an id and nothing else."""

    id: str
    name: str
    memory_mib: int | None = None
    simulated: bool = False
    #: As capacity.machines.GpuDevice has them.
    fence: str | None = None
    evacuate: bool = False
    notes: tuple[str, ...] = ()
    sharing: str | None = None
    parent: str | None = None
    driver: str | None = None


def find_gpus(spec: str) -> list[GpuDevice]:
    """Return the GPUs for `auto`, `none` or `simulated:N`."""
    if spec == "none":
        return []
    if spec == "auto":
        return _ask_nvidia_smi()
    kind, _, count = spec.partition(":")
    if kind == "simulated" and count.isascii() and count.isdigit():
        return [
            GpuDevice(f"GPU-simulated-{n}", "Simulated GPU", None, simulated=True) for n in range(int(count))
        ]
    raise AgentError(f'"{spec}" does not name GPUs: use auto, none or simulated:N (for example simulated:2)')


def _ask_nvidia_smi() -> list[GpuDevice]:
    directories = [*os.environ.get("PATH", "").split(os.pathsep), *_PROGRAM_DIRECTORIES]
    candidates = (os.path.join(directory, "nvidia-smi") for directory in directories if directory)
    program = next((path for path in candidates if os.access(path, os.X_OK)), None)
    if program is None:
        return []
    import subprocess  # Only where there is a driver: an agent without GPUs stays a megabyte lighter.

    command = [program, "--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_nvidia_smi(answer)


def parse_nvidia_smi(answer: str) -> list[GpuDevice]:
    """Read `uuid, name, MiB` lines; a device whose memory is not told (unified memory) has none."""
    devices = []
    for line in answer.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) < 3 or not fields[0].startswith("GPU-"):
            continue
        memory = int(fields[-1]) if fields[-1].isdigit() else None
        devices.append(GpuDevice(fields[0], ", ".join(fields[1:-1]), memory, simulated=False))
    return devices
