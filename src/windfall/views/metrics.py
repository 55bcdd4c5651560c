"""The metrics page in Prometheus's text format: the queues, the machines, their GPUs and the running jobs.

Decides names, labels, escaping and order. The number of running jobs is limited, newest first, so that a million
children do not become a million series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan

from windfall.advisor.samples import GpuSample, Sample
from windfall.capacity.machines import NAME_FACT
from windfall.control.state import State
from windfall.jobs.ids import MachineId, QueueName
from windfall.jobs.states import JobState
from windfall.views.capacity import holders
from windfall.views.measurements import MachineSample, RunningJob, running_job

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
JOBS_MOST = 500
_MIB = 1 << 20
_IN_LABEL = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})


@dataclass(slots=True)
class Family:
    """All samples of one name."""

    name: str
    #: gauge or counter.
    kind: str
    help: str
    samples: list[tuple[Mapping[str, str], float]] = field(default_factory=list)

    def add(self, value: float | None, **labels: str | None) -> None:
        """Add a sample; an unknown value is left out, as is a label without a value."""
        if value is None or isnan(value):
            return
        self.samples.append(({name: text for name, text in labels.items() if text is not None}, float(value)))


def rendered(families: Iterable[Family]) -> bytes:
    """The families that have a sample, as text."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        lines.append(f"# HELP {family.name} {family.help.translate(_IN_HELP)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += [f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in family.samples]
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{text.translate(_IN_LABEL)}"' for name, text in labels.items()) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


@dataclass(frozen=True, slots=True)
class _Device:
    id: str
    name: str
    memory_mib: int | None
    fence: str | None
    #: The newest job that holds it.
    holder: str | None
    simulated: bool
    #: The machine that has it, and the name that somebody gave that.
    machine: MachineId
    machine_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """What the page takes from the state, in one look."""

    waiting: int
    attempts: int
    interrupted: int
    jobs: list[RunningJob]
    devices: list[_Device]
    #: What all machines have of each resource, and what is held of it.
    totals: dict[str, tuple[float, float]]


def scraped(state: State) -> Scrape:
    """Everything that is taken from the state."""
    attempts = [(job, job.attempt) for job in state.attempts.values() if job.attempt is not None]
    by_gpu = holders(state)
    running = [(job, attempt) for job, attempt in attempts if attempt.started_at is not None]
    running.sort(key=lambda pair: pair[1].started_at or 0, reverse=True)
    totals = {"vcpus": (0.0, 0.0), "memory_bytes": (0.0, 0.0), "gpus": (0.0, 0.0)}
    for machine in state.machines.values():
        used = state.occupancy.used_on(machine.id)
        for name, total, used_amount in (
            ("vcpus", machine.total.vcpus, used.vcpus),
            ("memory_bytes", machine.total.memory_mib * _MIB, used.memory_mib * _MIB),
            ("gpus", machine.total.gpus, used.gpus),
        ):
            totals[name] = (totals[name][0] + total, totals[name][1] + used_amount)
    return Scrape(
        waiting=state.backlog.count,
        attempts=len(state.attempts),
        interrupted=sum(attempt.deadline_at is not None for _, attempt in attempts),
        jobs=[running_job(job, attempt) for job, attempt in running[:JOBS_MOST]],
        devices=[
            _Device(
                gpu.id,
                gpu.name,
                gpu.memory_mib,
                machine.why_fenced(gpu),
                by_gpu[machine.id, gpu.id][-1]["jobId"] if (machine.id, gpu.id) in by_gpu else None,
                gpu.simulated,
                machine.id,
                machine.facts.get(NAME_FACT),
            )
            for machine in state.machines.values()
            for gpu in machine.gpus
        ],
        totals=totals,
    )


def of_daemon(version: str, rounds: int, commit_s: float) -> list[Family]:
    """The daemon itself."""
    about = Family("windfall_info", "gauge", "The version of the daemon.")
    about.add(1, version=version)
    turns = Family("windfall_rounds_total", "counter", "Rounds of the control loop since it started.")
    turns.add(rounds)
    commits = Family("windfall_commit_seconds_total", "counter", "Seconds that rounds waited for the store.")
    commits.add(commit_s)
    return [about, turns, commits]


def of_capacity(seen: Scrape, counts: Mapping[tuple[QueueName, JobState], int]) -> list[Family]:
    """The queues and all machines together."""
    jobs = Family("windfall_jobs", "gauge", "Jobs by queue and state; an array counts as one.")
    for (queue, state), number in counts.items():
        jobs.add(number, queue=str(queue), state=str(state))
    waiting = Family("windfall_waiting_jobs", "gauge", "Jobs that wait for a place, children one by one.")
    waiting.add(seen.waiting)
    running = Family("windfall_attempts", "gauge", "Attempts that have a place.")
    running.add(seen.attempts)
    leaving = Family("windfall_attempts_with_notice", "gauge", "Attempts that have been asked to leave.")
    leaving.add(seen.interrupted)
    total = Family("windfall_capacity", "gauge", "What all machines have.")
    in_use = Family("windfall_capacity_held", "gauge", "What jobs hold of it.")
    for name, (have, used) in seen.totals.items():
        total.add(have, resource=name)
        in_use.add(used, resource=name)
    return [jobs, waiting, running, leaving, total, in_use]


#: Name, help, and how it follows from a sample.
_GPU_VALUES: tuple[tuple[str, str, Callable[[GpuSample], float]], ...] = (
    ("windfall_gpu_busy_ratio", "Part of the time in which a kernel ran.", lambda s: s.busy),
    ("windfall_gpu_memory_used_bytes", "Memory in use.", lambda s: s.memory_bytes),
    ("windfall_gpu_power_watts", "Power drawn.", lambda s: s.power_w),
    ("windfall_gpu_temperature_celsius", "Temperature.", lambda s: s.temperature_c),
    ("windfall_gpu_sm_active_ratio", "Part of the multiprocessors' time with a warp.", lambda s: s.sm_active),
    ("windfall_gpu_pcie_rx_bytes_per_second", "Traffic into the GPU.", lambda s: s.pcie_rx_bytes_s),
    ("windfall_gpu_pcie_tx_bytes_per_second", "Traffic out of the GPU.", lambda s: s.pcie_tx_bytes_s),
)
_JOB_VALUES: tuple[tuple[str, str, Callable[[Sample], float]], ...] = (
    ("windfall_job_cpu_cores", "Cores' worth of processor time.", lambda s: s.cpu_cores),
    ("windfall_job_memory_bytes", "Resident memory.", lambda s: s.memory_bytes),
    ("windfall_job_disk_read_bytes_per_second", "Read from storage.", lambda s: s.read_bytes_s),
    ("windfall_job_disk_write_bytes_per_second", "Written to storage.", lambda s: s.write_bytes_s),
    ("windfall_job_network_rx_bytes_per_second", "Received.", lambda s: s.net_rx_bytes_s),
    ("windfall_job_network_tx_bytes_per_second", "Sent.", lambda s: s.net_tx_bytes_s),
)


def of_gpus(
    devices: Sequence[_Device], newest_of: Callable[[str | None], MachineSample | None]
) -> list[Family]:
    """All GPUs, with the newest sample of each; asked by the id of a machine that has a name, or None for this host."""
    samples: dict[tuple[str, str], GpuSample] = {}
    for machine, is_named in {(device.machine, device.machine_name is not None) for device in devices}:
        if (newest := newest_of(machine if is_named else None)) is not None:
            sampled = zip((gpu.id for gpu in newest[0]), newest[1].gpus, strict=False)
            samples.update(((machine, gpu_id), sample) for gpu_id, sample in sampled)
    memory = Family("windfall_gpu_memory_bytes", "gauge", "Memory of the GPU.")
    fenced = Family("windfall_gpu_fenced", "gauge", "1 for a GPU that no new job gets.")
    in_use = Family("windfall_gpu_held", "gauge", "1 for a GPU that a job holds; job_id names the job.")
    values = [(Family(name, "gauge", text), value) for name, text, value in _GPU_VALUES]
    for device in devices:
        labels = {
            "gpu": device.id,
            "name": device.name,
            "simulated": "true" if device.simulated else None,
            "machine": device.machine_name,
        }
        memory.add(None if device.memory_mib is None else device.memory_mib * _MIB, **labels)
        fenced.add(float(device.fence is not None), **labels)
        in_use.add(float(device.holder is not None), **labels, job_id=device.holder)
        sample = samples.get((device.machine, device.id))
        if sample is not None:
            for family, value in values:
                family.add(value(sample), **labels)
    return [memory, fenced, in_use, *(family for family, _ in values)]


def of_jobs(sampled: Iterable[tuple[RunningJob, Sample]]) -> list[Family]:
    """Running jobs, each with its newest sample."""
    values = [(Family(name, "gauge", text), value) for name, text, value in _JOB_VALUES]
    busy = Family(
        "windfall_job_gpu_busy_ratio", "gauge", "Part of the time in which a kernel ran, of each GPU."
    )
    for job, sample in sampled:
        labels = {"job_id": str(job.job_id), "job_name": job.job_name, "queue": str(job.queue)}
        for family, value in values:
            family.add(value(sample), **labels)
        for number, gpu in enumerate(sample.gpus):
            busy.add(gpu.busy, **labels, index=str(number))
    return [*(family for family, _ in values), busy]
