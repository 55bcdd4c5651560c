"""What GPUs say of themselves: by a recorded file, by NVML (a stand-in that answers like it), and when one hangs."""

from __future__ import annotations

import json
import math
import threading
from types import SimpleNamespace

import pytest

from windfall.advisor.samples import GpuSample, SampledGpu
from windfall.agent.gpus import GpuDevice
from windfall.agent.sampling.gpu_watch import GpuWatch
from windfall.agent.sampling.meters import NoMeter, RecordedMeter, open_meter
from windfall.agent.sampling.nvml import NvmlMeter


def a_gpu(number: int = 1, **more) -> GpuDevice:
    return GpuDevice(f"GPU-{number}", "NVIDIA H200", 143_771, **more)


# --- recorded -----------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "gpus.json"
    device = {"id": "GPU-1", "name": "x", "power_limit_w": 700, "meter": {"busy": [0.9, 0.1], "power_w": 310}}
    path.write_text(json.dumps({"gpus": [device, {"id": "GPU-2", "name": "y"}]}))
    return path


def test_a_recorded_script_is_played_from_the_start_again(recorded):
    meter = RecordedMeter(str(recorded))
    read = [meter.read("GPU-1", closely=False) for _ in range(3)]
    assert [(one.busy, one.power_w) for one in read] == [(0.9, 310.0), (0.1, 310.0), (0.9, 310.0)]
    assert math.isnan(read[0].temperature_c)
    assert meter.facts(a_gpu()) == SampledGpu("GPU-1", "NVIDIA H200", 143_771, power_limit_w=700.0)


def test_a_recorded_device_without_a_meter_tells_nothing(recorded):
    meter = RecordedMeter(str(recorded))
    assert math.isnan(meter.read("GPU-2", closely=True).busy)
    assert math.isnan(meter.read("GPU-9", closely=True).busy)


def test_a_recorded_file_that_changes_is_read_again_and_a_broken_one_is_not(recorded):
    meter = RecordedMeter(str(recorded))
    meter.read("GPU-1", closely=False)
    recorded.write_text(json.dumps([{"id": "GPU-1", "meter": {"busy": 0.25, "nonsense": 3, "power_w": "x"}}]))
    assert meter.read("GPU-1", closely=False).busy == 0.25
    recorded.write_text("{ half")
    assert meter.read("GPU-1", closely=False).busy == 0.25


def test_the_meter_follows_the_setting(recorded):
    assert isinstance(open_meter(f"recorded:{recorded}", real=False), RecordedMeter)
    assert isinstance(open_meter("simulated:2", real=False), NoMeter)
    assert math.isnan(open_meter("none", real=False).read("GPU-1", closely=True).busy)


# --- NVML ---------------------------------------------------------------------------------------------


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


class FakeNvml:
    """Answers like pynvml for one H200; what is in `fails` raises that error."""

    NVMLError = NVMLError
    NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NO_PERMISSION = 2, 3, 4
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_CLOCK_SM = NVML_TEMPERATURE_GPU = 0
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
    NVML_GPM_METRICS_GET_VERSION = 1

    def __init__(self, *, profiling: bool = True) -> None:
        self.fails: dict[str, int] = {}
        self.asked: list[str] = []
        self.profiling = profiling
        self.taken = 0

    def __getattr__(self, name: str):
        answers = {
            "nvmlDeviceGetHandleByUUID": lambda uuid: f"handle of {uuid}",
            "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=87, memory=40),
            "nvmlDeviceGetMemoryInfo": lambda _, version=None: SimpleNamespace(used=80 << 30),
            "nvmlDeviceGetPowerUsage": lambda _: 512_000,
            "nvmlDeviceGetClockInfo": lambda *_: 1755,
            "nvmlDeviceGetTemperature": lambda *_: 61,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 4,
            "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700_000,
            "nvmlDeviceGetMaxClockInfo": lambda *_: 1980,
            "nvmlDeviceGetMaxPcieLinkGeneration": lambda _: 5,
            "nvmlDeviceGetMaxPcieLinkWidth": lambda _: 16,
            "nvmlDeviceGetPcieThroughput": lambda _, counter: 1000 * (counter + 1),
            "nvmlGpmQueryDeviceSupport": lambda _: SimpleNamespace(isSupportedDevice=int(self.profiling)),
            "nvmlGpmSampleAlloc": lambda: SimpleNamespace(at=0),
            "nvmlGpmSampleGet": self._take,
            "c_nvmlGpmMetricsGet_t": lambda: SimpleNamespace(metrics=[SimpleNamespace() for _ in range(99)]),
            "nvmlGpmMetricsGet": self._metrics,
        }
        if name not in answers:
            raise AttributeError(name)

        def answer(*arguments, **named):
            self.asked.append(name)
            if name in self.fails:
                raise NVMLError(self.fails[name])
            return answers[name](*arguments, **named)

        return answer

    def _take(self, _handle, sample) -> None:
        self.taken += 1
        sample.at = self.taken

    def _metrics(self, asked) -> None:
        assert asked.sample2.at == asked.sample1.at + 1
        values = {2: 91.0, 3: 35.0, 5: 60.0, 10: 52.0, 20: 100.0, 21: 3000.0}
        for metric in asked.metrics[: asked.numMetrics]:
            metric.value, metric.nvmlReturn = values[metric.metricId], 0 if metric.metricId != 3 else 3


def test_nvml_answers_become_shares_bytes_and_watts():
    read = NvmlMeter(FakeNvml()).read("GPU-1", closely=False)
    assert (read.busy, read.memory_active, read.memory_bytes, read.power_w) == (
        0.87,
        0.4,
        80 * 2.0**30,
        512.0,
    )
    assert (read.sm_clock_mhz, read.temperature_c, read.throttle) == (1755.0, 61.0, 4.0)
    assert math.isnan(read.sm_active)


def test_nvml_says_what_a_device_can_do_at_most():
    facts = NvmlMeter(FakeNvml()).facts(a_gpu())
    assert (facts.power_limit_w, facts.sm_clock_max_mhz) == (700.0, 1980.0)
    assert facts.pcie_bytes_s == pytest.approx(63e9, rel=0.01)


def test_profiling_counters_are_means_since_the_last_close_look_and_stay_until_the_next():
    meter = NvmlMeter(FakeNvml())
    close = [meter.read("GPU-1", closely=True), meter.read("GPU-1", closely=True)][-1]
    assert (close.sm_active, close.tensor_active, close.memory_active) == (0.91, 0.6, 0.52)
    assert (close.pcie_tx_bytes_s, close.pcie_rx_bytes_s) == (100 * 2.0**20, 3000 * 2.0**20)
    assert math.isnan(close.sm_occupancy)
    assert meter.read("GPU-1", closely=False).sm_active == 0.91


def test_a_device_without_profiling_tells_its_pcie_traffic_the_slow_way():
    close = NvmlMeter(FakeNvml(profiling=False)).read("GPU-1", closely=True)
    assert (close.pcie_tx_bytes_s, close.pcie_rx_bytes_s) == (1_024_000.0, 2_048_000.0)
    assert close.memory_active == 0.4


def test_what_a_device_does_not_support_is_asked_once():
    nvml = FakeNvml()
    nvml.fails["nvmlDeviceGetPowerUsage"] = nvml.NVML_ERROR_NOT_SUPPORTED
    meter = NvmlMeter(nvml)
    read = [meter.read("MIG-1", closely=False) for _ in range(3)]
    assert [math.isnan(one.power_w) for one in read] == [True] * 3
    assert nvml.asked.count("nvmlDeviceGetPowerUsage") == 1


def test_a_lost_device_tells_nothing_and_is_opened_anew():
    nvml = FakeNvml()
    meter = NvmlMeter(nvml)
    meter.read("GPU-1", closely=False)
    nvml.fails["nvmlDeviceGetUtilizationRates"] = nvml.NVML_ERROR_GPU_IS_LOST
    assert math.isnan(meter.read("GPU-1", closely=False).power_w)
    nvml.fails.clear()
    assert meter.read("GPU-1", closely=False).busy == 0.87
    assert nvml.asked.count("nvmlDeviceGetHandleByUUID") == 2


# --- one that hangs -----------------------------------------------------------------------------------


class Hanging:
    """A meter in which one device blocks until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.closely: list[str] = []

    def facts(self, gpu: GpuDevice) -> SampledGpu:
        return SampledGpu(gpu.id, gpu.name, power_limit_w=1.0)

    def read(self, gpu_id: str, *, closely: bool) -> GpuSample:
        if closely:
            self.closely.append(gpu_id)
        if gpu_id == "GPU-2":
            self.go.wait()
        return GpuSample(busy=0.5)


def test_a_device_that_hangs_does_not_stop_the_others_and_comes_back():
    meter = Hanging()
    watch = GpuWatch(meter, patience_s=0.1)
    gpus = [a_gpu(1), a_gpu(2), a_gpu(3)]
    try:
        assert sorted(watch.read(gpus, [])) == ["GPU-1", "GPU-3"]
        # Nobody waits for it again.
        assert sorted(watch.read(gpus, [])) == ["GPU-1", "GPU-3"]
        assert watch.facts(gpus[0]).power_limit_w == 1.0
    finally:
        meter.go.set()
    for asking in watch._hung.values():
        asking.join(120)
    assert sorted(watch.read(gpus, [])) == ["GPU-1", "GPU-2", "GPU-3"]


def test_those_that_are_held_are_asked_closely_in_turn():
    meter = Hanging()
    meter.go.set()
    watch = GpuWatch(meter)
    for _ in range(4):
        watch.read([a_gpu(1), a_gpu(2), a_gpu(3)], ["GPU-1", "GPU-3"])
    watch.read([a_gpu(1)], [])
    assert meter.closely == ["GPU-1", "GPU-3", "GPU-1", "GPU-3"]
