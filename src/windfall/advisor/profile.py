"""A recording as a few numbers: means over time, and what was high while the GPU had nothing to do.

A sample is a mean over a second or two, in which a loop turns many times. What matters is therefore weighted: a value
"while idle" counts each sample by the part of it in which the GPUs did nothing. NaN stays "not known". Decides no
cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import isnan

from windfall.advisor import thresholds as at
from windfall.advisor.samples import NAN, GpuSample, Recording, Sample, SampledGpu


@dataclass(frozen=True, slots=True)
class Profile:
    """All numbers are means over the time after start-up unless their name says otherwise."""

    samples: int
    span_s: float
    #: Before the first work on a GPU, and whether there was any work.
    start_up_s: float
    worked: bool
    gpus: int
    #: Which of them did any work worth the name.
    used: tuple[int, ...]
    #: Of the GPUs that worked.
    busy: float
    #: Of all, over all the time, which is what is paid for.
    busy_of_all: float
    sm_active: float
    occupancy: float
    memory_active: float
    tensor_active: float
    #: As a share of the limit.
    power: float
    gpu_memory_peak_bytes: float
    #: What the smallest of its GPUs has.
    gpu_memory_bytes: float
    #: While the GPUs that worked had nothing to do.
    rx_idle: float
    rx_is_hosts: bool
    read_idle: float
    disk_waiters_idle: float
    thread_idle: float
    cores_idle: float
    pcie_idle: float
    #: Whole.
    rx: float
    thread: float
    cores: float
    pcie: float
    throttled: float
    data_wait: float
    saving: float
    #: How much the GPU's use goes up and down from sample to sample: the standard deviation over the mean.
    unevenness: float


Value = Callable[[Sample], float]


class _Lens:
    """Looks at samples by their length, and by how idle the GPUs were that work at all."""

    def __init__(self, samples: tuple[Sample, ...], used: tuple[int, ...]) -> None:
        self._samples = samples
        self._used = used
        #: Whether the traffic of the attempt itself is known.
        self.own = any(not isnan(sample.net_rx_bytes_s) for sample in samples)

    def busy(self, sample: Sample) -> float:
        return self.mean_of_used(sample, lambda gpu: gpu.busy) if self._used else 0.0

    def mean_of_used(self, sample: Sample, value: Callable[[GpuSample], float]) -> float:
        return _mean_of(value(sample.gpus[n]) for n in self._used if n < len(sample.gpus))

    def whole(self, value: Value) -> float:
        return _weighted((value(sample), sample.span_ms) for sample in self._samples)

    def idle(self, value: Value) -> float:
        def share(sample: Sample) -> float:
            busy = self.busy(sample)
            return 1.0 if isnan(busy) else max(0.0, 1.0 - busy)

        return _weighted((value(sample), sample.span_ms * share(sample)) for sample in self._samples)

    def gpu(self, value: Callable[[GpuSample], float]) -> float:
        return self.whole(lambda sample: self.mean_of_used(sample, value))

    def rx(self, sample: Sample) -> float:
        return sample.net_rx_bytes_s if self.own else sample.host_rx_bytes_s

    def unevenness(self) -> float:
        # The first and the last span are cut by the beginning and the end of the work.
        whole = self._samples[1:-1] if len(self._samples) >= at.FEWEST_SAMPLES else self._samples
        measured = [busy for sample in whole if not isnan(busy := self.busy(sample))]
        mean = sum(measured) / len(measured) if measured else 0.0
        if not mean:
            return NAN
        return float((sum((value - mean) ** 2 for value in measured) / len(measured)) ** 0.5 / mean)


def profile_of(recording: Recording) -> Profile:
    """The numbers of a recording; a recording without samples has none worth looking at."""
    samples = _thinned(recording.samples)
    count = max((len(sample.gpus) for sample in samples), default=0)
    used = tuple(n for n in range(count) if _mean_busy(samples, n) > at.UNUSED)
    begun = _first_work(samples, used)
    steady = samples[begun:]
    lens = _Lens(steady if len(steady) >= at.FEWEST_AFTER_START else samples, used)
    spans = [sample.span_ms / 1000 for sample in samples]
    sm_active = lens.gpu(lambda gpu: gpu.sm_active)
    return Profile(
        samples=len(samples),
        span_s=sum(spans),
        start_up_s=sum(spans[:begun]),
        worked=bool(used),
        gpus=max(count, len(recording.gpus)),
        used=used,
        busy=_largest((lens.whole(lens.busy), sm_active)),
        busy_of_all=_worked(
            (
                _mean_of(gpu.busy for gpu in each.gpus),
                _mean_of(gpu.sm_active for gpu in each.gpus),
                each.span_ms,
            )
            for each in samples
        ),
        sm_active=sm_active,
        occupancy=lens.gpu(lambda gpu: gpu.sm_occupancy),
        memory_active=lens.gpu(lambda gpu: gpu.memory_active),
        tensor_active=lens.gpu(lambda gpu: gpu.tensor_active),
        power=lens.whole(lambda sample: _power(sample, recording.gpus, used)),
        gpu_memory_peak_bytes=_largest(gpu.memory_bytes for sample in samples for gpu in sample.gpus),
        gpu_memory_bytes=min((float((gpu.memory_mib or NAN) * 2**20) for gpu in recording.gpus), default=NAN),
        rx_idle=lens.idle(lens.rx),
        rx_is_hosts=not lens.own,
        read_idle=lens.idle(lambda sample: sample.read_bytes_s),
        disk_waiters_idle=lens.idle(lambda sample: sample.disk_waiters),
        thread_idle=lens.idle(lambda sample: sample.busiest_thread),
        cores_idle=lens.idle(lambda sample: sample.cpu_cores),
        pcie_idle=lens.idle(_pcie),
        rx=lens.whole(lens.rx),
        thread=lens.whole(lambda sample: sample.busiest_thread),
        cores=lens.whole(lambda sample: sample.cpu_cores),
        pcie=lens.whole(_pcie),
        throttled=lens.whole(lambda sample: sample.cpu_throttled),
        data_wait=lens.whole(lambda sample: _a_second(sample.data_wait_s, sample)),
        saving=lens.whole(lambda sample: _a_second(sample.stall_s, sample)),
        unevenness=lens.unevenness(),
    )


def _pcie(sample: Sample) -> float:
    """The busier direction, per GPU."""
    return _mean_of(_largest((gpu.pcie_rx_bytes_s, gpu.pcie_tx_bytes_s)) for gpu in sample.gpus)


def _a_second(amount: float, sample: Sample) -> float:
    return amount / max(sample.span_ms / 1000, 1e-3)


def _thinned(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """Every n-th of very many, each for its neighbours too: means over hundreds of spans need no more."""
    step = -(-len(samples) // at.MOST_SAMPLES)
    if step <= 1:
        return samples
    return tuple(replace(sample, span_ms=sample.span_ms * step) for sample in samples[::step])


def _mean_busy(samples: Iterable[Sample], gpu: int) -> float:
    """How much of the time one GPU worked."""
    measured = [(each.gpus[gpu], each.span_ms) for each in samples if gpu < len(each.gpus)]
    return _worked((gpu.busy, gpu.sm_active, span_ms) for gpu, span_ms in measured)


def _worked(seen: Iterable[tuple[float, float, float]]) -> float:
    """The part of the time in which there was work, from the driver's word and from that of the SMs, by length.

    The driver looks a few times a second: short bursts it sees by luck, now many and now none. The counters of the SMs
    see every one, and can only say too little: a kernel that fills a few SMs counts for those.
    """
    listed = list(seen)
    return _largest(_weighted((each[n], each[2]) for each in listed) for n in (0, 1))


def _first_work(samples: tuple[Sample, ...], used: tuple[int, ...]) -> int:
    """The number of the first sample in which a GPU did real work; 0 when none did, as nothing began."""
    gpus = [[sample.gpus[n] for n in used if n < len(sample.gpus)] for sample in samples]
    seen, counted = len(samples), len(samples)
    for number in reversed(range(len(samples))):
        seen = number if any(gpu.busy > at.BEGUN for gpu in gpus[number]) else seen
        counted = number if any(gpu.sm_active > at.SMS_BEGUN for gpu in gpus[number]) else counted
    # The driver may be a span late with what it sees; if it is later than that, it missed bursts.
    begun = counted if counted < seen - 1 else seen
    return begun if begun < len(samples) else 0


def _power(sample: Sample, gpus: tuple[SampledGpu, ...], used: tuple[int, ...]) -> float:
    shares = []
    for n in used:
        limit = gpus[n].power_limit_w if n < len(gpus) else None
        if limit and n < len(sample.gpus):
            shares.append(sample.gpus[n].power_w / limit)
    return _mean_of(shares)


def _weighted(pairs: Iterable[tuple[float, float]]) -> float:
    total = weights = 0.0
    for value, weight in pairs:
        if not isnan(value):
            total += value * weight
            weights += weight
    return total / weights if weights else NAN


def _mean_of(values: Iterable[float]) -> float:
    measured = [value for value in values if not isnan(value)]
    return sum(measured) / len(measured) if measured else NAN


def _largest(values: Iterable[float]) -> float:
    return max((value for value in values if not isnan(value)), default=NAN)
