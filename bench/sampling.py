"""What measuring costs: 8 attempts of 20 processes each and 8 GPUs, every 2 seconds, as a share of one core.

    python -m bench.sampling [--attempts 8] [--processes 20] [--gpus 8] [--rounds 20] [--every 2] [--profile]

The processes are real: in each attempt a main one with a few threads that compute and workers that wake up often, as a
training with data loaders has them. With a driver the first GPU is measured for real, once for each of the GPUs asked
for; without one a recorded set stands in, and the answer says so. The processor time is that of the measuring process
alone, all its threads together.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from windfall.advisor.samples import GpuSample, SampledGpu
from windfall.agent.attempt import Attempt
from windfall.agent.attempt_files import AttemptDirectory
from windfall.agent.gpus import GpuDevice
from windfall.agent.sampling.meters import GpuMeter, RecordedMeter
from windfall.agent.sampling.nvml import open_nvml_meter
from windfall.agent.sampling.proc_files import pids
from windfall.agent.sampling.sampler import Sampler
from windfall.agent.settings import AgentSettings
from windfall.agent.stages import Intended, Spawned, Story

GOAL_PERCENT = 0.5
#: One attempt: threads that compute in the main process, and workers that do a little fifty times a second.
ATTEMPT = """
import os, sys, threading, time
workers, threads = int(sys.argv[1]) - 1, 8
for _ in range(workers):
    if os.fork() == 0:
        while os.getppid() != 1:
            time.sleep(0.02)
            sum(range(500))
        os._exit(0)
def compute():
    while True:
        sum(range(2000))
        time.sleep(0.05)
for _ in range(threads):
    threading.Thread(target=compute, daemon=True).start()
while True:
    time.sleep(0.1)
"""
METER = {
    "busy": [0.9, 0.5],
    "memory_bytes": 4e10,
    "power_w": [500, 300],
    "sm_clock_mhz": 1755,
    "temperature_c": 60,
}


class Repeated:
    """One real device under several names."""

    def __init__(self, meter: GpuMeter, real_id: str) -> None:
        self._meter = meter
        self._real_id = real_id

    def facts(self, gpu: GpuDevice) -> SampledGpu:
        """What the real one says of itself."""
        real = self._meter.facts(GpuDevice(self._real_id, gpu.name))
        return SampledGpu(
            gpu.id, gpu.name, None, real.power_limit_w, real.sm_clock_max_mhz, real.pcie_bytes_s
        )

    def read(self, gpu_id: str, *, closely: bool) -> GpuSample:  # noqa: ARG002 - all are the one
        """What the real one does."""
        return self._meter.read(self._real_id, closely=closely)


def main(arguments: list[str]) -> int:
    """Measure and print; a missed goal is told, not an error."""
    parser = argparse.ArgumentParser(prog="python -m bench.sampling")
    for name, default in (("attempts", 8), ("processes", 20), ("gpus", 8), ("rounds", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--every", type=float, default=2.0)
    parser.add_argument("--profile", action="store_true", help="say where the time goes")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        children = [_start(given.processes) for _ in range(given.attempts)]
        try:
            _measure(given, Path(directory), [child.pid for child in children])
        finally:
            for child in children:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    return 0


def _measure(given: Any, directory: Path, mains: list[int]) -> None:
    gpus, meter, words = _devices(given.gpus, directory)
    settings = AgentSettings(
        str(directory),
        str(directory),
        sample_every_s=given.every,
        machine_samples=f"{directory}/machine.samples",
    )
    attempts = {f"job#{n}": _attempt(n, pid, directory, gpus) for n, pid in enumerate(mains)}
    sampler = Sampler(settings, attempts, gpus, float(os.cpu_count() or 1), 1 << 14, meter=meter)
    time.sleep(2)
    sampler.round()  # Opens files and devices; that is paid once.
    profiler = cProfile.Profile()
    cpu, wall = [], []
    for _ in range(given.rounds):
        time.sleep(given.every)
        before, begun = time.process_time(), time.perf_counter()
        if given.profile:
            profiler.enable()
        sampler.round()
        profiler.disable()
        cpu.append(time.process_time() - before)
        wall.append(time.perf_counter() - begun)
    mean = sum(cpu) / len(cpu)
    print(f"machine: {os.cpu_count()} cores, {len(pids())} processes, {words}")
    print(
        f"attempts: {given.attempts} of {given.processes} processes; {given.gpus} GPUs; {given.rounds} rounds"
    )
    print(
        f"processor time of a round: mean {mean * 1e3:.2f} ms, least {min(cpu) * 1e3:.2f}, most {max(cpu) * 1e3:.2f}"
    )
    print(f"wall time of a round: mean {sum(wall) / len(wall) * 1e3:.2f} ms, most {max(wall) * 1e3:.2f}")
    share = mean / given.every * 100
    verdict = "reached" if share < GOAL_PERCENT else "missed"
    print(f"every {given.every:g} s: {share:.3f} % of one core (goal: under {GOAL_PERCENT} %: {verdict})")
    print(
        "files:",
        json.dumps({path.name: path.stat().st_size for path in sorted(directory.glob("*.samples"))[:2]}),
    )
    latest = AttemptDirectory(directory).recording("machine")
    if latest is not None and latest.gpus:
        print("first GPU:", latest.gpus[0])
        print("its last sample:", latest.samples[-1].gpus[0])
    if given.profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(14)


def _start(processes: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", ATTEMPT, str(processes)], start_new_session=True)


def _attempt(number: int, pid: int, directory: Path, gpus: list[GpuDevice]) -> Attempt:
    token = f"job#{number}"
    held = [gpus[number % len(gpus)].id] if gpus else []
    intended = Intended(
        token, f"t{number}", f"{directory}/t{number}.log", [], 1024, 4.0, sandboxed=False, at=0, gpu_ids=held
    )
    story = Story(intended)
    story.spawned = Spawned(token, pid, 0, time.time_ns() // 1_000_000, "process")
    return Attempt(story, None)


def _devices(count: int, directory: Path) -> tuple[list[GpuDevice], GpuMeter, str]:
    names = [f"GPU-{n}" for n in range(count)]
    real = open_nvml_meter()
    if real is not None:
        import pynvml

        uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
        real_id = uuid.decode() if isinstance(uuid, bytes) else uuid
        name = str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)))
        _print_costs(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0))
        return (
            [GpuDevice(one, name) for one in names],
            Repeated(real, real_id),
            f"one {name} read {count} times",
        )
    path = directory / "gpus.json"
    path.write_text(
        json.dumps({"gpus": [{"id": one, "name": "Recorded GPU", "meter": METER} for one in names]})
    )
    gpus = [GpuDevice(one, "Recorded GPU", 81_920, simulated=True) for one in names]
    return (
        gpus,
        RecordedMeter(str(path)),
        "GPUs from a recorded set: reading real ones is not in these figures",
    )


def _print_costs(nvml: Any, handle: Any) -> None:
    """What single questions cost, by processor and by the clock."""
    memory = getattr(nvml, "nvmlMemory_v2", None)
    questions = {
        "utilisation": lambda: nvml.nvmlDeviceGetUtilizationRates(handle),
        "utilisation samples": lambda: nvml.nvmlDeviceGetSamples(
            handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, 0
        ),
        "memory": lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=memory),
        "power": lambda: nvml.nvmlDeviceGetPowerUsage(handle),
        "clock": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "throttle reasons": lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
        "PCIe bytes (fields)": lambda: nvml.nvmlDeviceGetFieldValues(handle, [197, 198]),
        "PCIe throughput": lambda: nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES),
    }
    for name, ask in questions.items():
        try:
            answer: Any = ask()
            cpu, wall = time.process_time(), time.perf_counter()
            for _ in range(10):
                answer = ask()
            spent = (time.process_time() - cpu) * 100, (time.perf_counter() - wall) * 100
        except nvml.NVMLError as error:
            print(f"nvml {name}: {error}")
            continue
        extra = ""
        if name == "utilisation samples":
            extra = f", {len(answer[1])} values over {(answer[1][-1].timeStamp - answer[1][0].timeStamp) / 1e6:.1f} s"
        elif name.endswith("(fields)"):
            extra = ", " + ", ".join(f"type {one.valueType} value {one.value.ullVal}" for one in answer)
        print(f"nvml {name}: {spent[0]:.3f} ms of processor, {spent[1]:.3f} ms{extra}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
