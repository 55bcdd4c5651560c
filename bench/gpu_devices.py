"""What a real GPU says of itself, and what two shares of it get: run on a machine that has one.

    python -m bench.gpu_devices DIRECTORY [--mig]

Writes DIRECTORY/devices.json (a recorded set that can be played again) and prints what was seen: the cost of a reading,
whether XID events can be waited for, and what two programs at once see of one GPU under MPS. `--mig` also turns MIG on,
makes two slices, records them (devices-mig.json) and turns MIG off again; it needs root and an idle GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from windfall.agent.devices.health import Judge
from windfall.agent.devices.mps import DeviceShares
from windfall.agent.devices.readings import write_set
from windfall.agent.devices.sources import DeviceSource, find_driver, record
from windfall.agent.gpus import GpuDevice

READS = 50
SHARES = (0.5, 0.25)
#: Runs in a process of its own; asks for more memory than its share at the end.
CLIENT = """
import os, sys, time
import torch
device = torch.device("cuda:0")
start = time.perf_counter()
a = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
for _ in range(20):
    a @ a
torch.cuda.synchronize()
start = time.perf_counter()
for _ in range(200):
    a @ a
torch.cuda.synchronize()
seconds = time.perf_counter() - start
free, total = torch.cuda.mem_get_info(0)
sms = torch.cuda.get_device_properties(0).multi_processor_count
print(f"share {os.environ['WINDFALL_GPU_SHARE']} as uid {os.getuid()}: {sms} SMs,"
      f" memory total {total >> 20} MiB, free {free >> 20} MiB, {200 * 2 * 8192**3 / seconds / 1e12:.0f} TFLOP/s")
limit_mib = int(os.environ["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"].partition("=")[2].rstrip("M"))
for part in (0.8, 1.05):
    try:
        block = torch.empty(int(limit_mib * part) << 20, dtype=torch.uint8, device=device)
        print(f"share {os.environ['WINDFALL_GPU_SHARE']}: {part:.0%} of its {limit_mib} MiB: allowed")
        del block
        torch.cuda.empty_cache()
    except torch.OutOfMemoryError:
        print(f"share {os.environ['WINDFALL_GPU_SHARE']}: {part:.0%} of its {limit_mib} MiB: out of memory")
sys.stdout.flush()
"""


def main(arguments: list[str]) -> int:
    """Look at this machine's GPUs."""
    if not arguments or arguments[0].startswith("-"):
        print("say where the recorded devices go: python -m bench.gpu_devices DIRECTORY [--mig]")
        return 2
    directory = Path(arguments[0])
    source = find_driver()
    if source is None:
        print("no NVIDIA driver answers here")
        return 1
    print(f"source {type(source).__name__}")
    recorded = record(source)
    directory.mkdir(parents=True, exist_ok=True)
    write_set(str(directory / "devices.json"), recorded)
    for reading in recorded.gpus:
        print(reading)
    devices = Judge(source.rules).hear(recorded.gpus, time.time_ns() // 1_000_000)
    print(*devices, sep="\n")
    _cost(source)
    start = time.perf_counter()
    source.wait()
    print(f"waited {time.perf_counter() - start:.1f} s for an XID")
    _shares(devices)
    if "--mig" in arguments:
        _mig(source, directory)
    return 0


def _cost(source: DeviceSource) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(READS):
        source.read()
    wall, cpu = (time.perf_counter() - wall) / READS, (time.process_time() - cpu) / READS
    print(f"one reading: {wall * 1000:.2f} ms wall, {cpu * 1000:.2f} ms CPU")


def _shares(devices: list[GpuDevice]) -> None:
    shared = next((device for device in devices if device.sharing == "mps"), None)
    if shared is None:
        print("no device can be shared by MPS here")
        return
    shares = DeviceShares(devices, f"bench-{os.getpid()}")
    start = time.perf_counter()
    programs = []
    for number, part in enumerate(SHARES):
        variables = shares.variables(f"token-{number}", shared.id, part, own_memory=False)
        if not number:
            print(f"the control daemon was ready after {(time.perf_counter() - start) * 1000:.0f} ms")
        print(variables)
        environment = {**os.environ, **variables, "CUDA_VISIBLE_DEVICES": shared.id, "HOME": "/tmp"}
        command = [sys.executable, "-c", CLIENT]
        programs.append(subprocess.Popen(command, env=environment, user="nobody", cwd="/"))
    for program in programs:
        print("exit code", program.wait(timeout=180))
    shares.rest(lambda _: False, at_once=True)
    for log in sorted(Path(variables["CUDA_MPS_PIPE_DIRECTORY"], "log").iterdir()):
        print(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}")


def _mig(source: DeviceSource, directory: Path) -> None:
    for command in ("-mig 1", "mig -cgi 1g.18gb,1g.18gb -C", "-L"):
        done = subprocess.run(
            ["nvidia-smi", *command.split()], capture_output=True, text=True, check=False, timeout=60
        )
        print(f"nvidia-smi {command}: {done.returncode}\n{done.stdout}{done.stderr}")
        if command == "-mig 1":
            print("without a slice:", *source.read(), sep="\n")
    recorded = record(source)
    write_set(str(directory / "devices-mig.json"), recorded)
    print(*recorded.gpus, sep="\n")
    for command in ("mig -dci", "mig -dgi", "-mig 0"):
        subprocess.run(["nvidia-smi", *command.split()], check=False, timeout=60)
    print("after MIG:", *source.read(), sep="\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
