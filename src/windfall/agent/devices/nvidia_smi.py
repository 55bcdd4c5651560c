"""GPUs by the program nvidia-smi, where NVML itself cannot be loaded. Knows their names, nothing of their health."""

from __future__ import annotations

import os
import time

from windfall.agent.devices.readings import HealthRules, Reading
from windfall.agent.devices.sources import CannotRead

_QUERY_TIMEOUT_S = 20
#: Starting a program more often would cost a lot and tell little.
_READ_EVERY_S = 60.0
#: Where drivers put their programs; /usr/lib/wsl/lib is where Windows does.
PROGRAM_DIRECTORIES = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib")


def find_driver_program(name: str) -> str | None:
    """The path of one of the driver's programs, as PATH or the usual places have it."""
    directories = [*os.environ.get("PATH", "").split(os.pathsep), *PROGRAM_DIRECTORIES]
    candidates = (os.path.join(directory, name) for directory in directories if directory)
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


class NvidiaSmiSource:
    """What the program says, asked now and then: a device that is gone is noticed."""

    changes = True
    #: Nobody waits a minute for it.
    tells_within_s = 0.0

    def __init__(self, program: str) -> None:
        self.rules = HealthRules()
        self._program = program

    def read(self) -> list[Reading]:
        """The devices that it lists."""
        import subprocess  # Only where there is a driver: an agent without GPUs stays a megabyte lighter.

        fields = "uuid,name,memory.total,driver_version"
        command = [self._program, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CannotRead(f"{self._program} does not answer: {error}") from None
        readings = parse_nvidia_smi(done.stdout)
        if not readings:  # Another thread may have reaped this process and have its exit code.
            raise CannotRead(f"{self._program} lists no GPU: {done.stdout.strip()[:200]}")
        return readings

    def wait(self) -> None:
        """Until the next question."""
        time.sleep(_READ_EVERY_S)


def open_nvidia_smi() -> NvidiaSmiSource | None:
    """The source, if the program is there and answers."""
    program = find_driver_program("nvidia-smi")
    if program is None:
        return None
    source = NvidiaSmiSource(program)
    try:
        source.read()
    except CannotRead:
        return None
    return source


def parse_nvidia_smi(answer: str) -> list[Reading]:
    """Read `uuid, name, MiB, driver` lines; a device whose memory is not told (unified memory) has none."""
    readings = []
    for line in answer.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) < 4 or not fields[0].startswith("GPU-"):
            continue
        memory = int(fields[-2]) if fields[-2].isdigit() else None
        note = "NVML cannot be loaded here (pip install nvidia-ml-py)"
        name = ", ".join(fields[1:-2])
        readings.append(Reading(fields[0], name, memory, fields[-1], sharing_note=note))
    return readings
