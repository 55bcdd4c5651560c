"""What limits a job, from recordings made by hand: one for each cause, and those that must not be mistaken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.advisor.builders import QUIET, a_gpu, a_recording, a_span, recording_of
from windfall.advisor.causes import MEANING, Cause
from windfall.advisor.finding import CONDITIONS, find_cause
from windfall.advisor.profile import profile_of
from windfall.advisor.samples import NAN, GpuSample, Recording
from windfall.advisor.signs import HardwareLimits

HARDWARE = HardwareLimits(8.0, pcie_bytes_s=63e9)
NO_COUNTERS = {"sm_active": NAN, "sm_occupancy": NAN, "memory_active": NAN, "tensor_active": NAN}


def found(recording: Recording, hardware: HardwareLimits = HARDWARE) -> Cause | None:
    return find_cause(recording, hardware).cause


NETWORK = a_recording(a_gpu(0.15), net_rx_bytes_s=3e8, busiest_thread=0.2, cpu_cores=0.3)
DISK = a_recording(a_gpu(0.1), read_bytes_s=8e8, disk_waiters=0.85, busiest_thread=0.15, cpu_cores=0.2)
CPU = a_recording(a_gpu(0.2), busiest_thread=0.99, cpu_cores=1.1)
ALL_CORES = a_recording(a_gpu(0.3), busiest_thread=0.5, cpu_cores=7.8)
TINY = a_recording(
    a_gpu(0.6, sm_active=0.01, sm_occupancy=0.0, tensor_active=0.0, power_w=130.0),
    busiest_thread=1.0,
    cpu_cores=1.0,
)
SYNC = a_recording(
    a_gpu(0.6, sm_active=0.5, tensor_active=0.1, power_w=350.0), busiest_thread=1.0, cpu_cores=1.0
)
PCIE = a_recording(a_gpu(0.03, pcie_rx_bytes_s=6e9, pcie_tx_bytes_s=6e9), busiest_thread=1.0, cpu_cores=1.0)
MEMORY = a_recording(
    a_gpu(0.99, sm_active=0.95, memory_active=0.9, tensor_active=0.0, power_w=420.0),
    busiest_thread=1.0,
    cpu_cores=1.0,
)
REQUESTS = a_recording(a_gpu(0.05), busiest_thread=0.06, cpu_cores=0.06)
HELD = a_recording(a_gpu(0.0), busiest_thread=0.01, cpu_cores=0.01)
COMPUTE = a_recording(
    a_gpu(0.99, sm_active=0.98, memory_active=0.3, tensor_active=0.8, power_w=690.0),
    busiest_thread=1.0,
    cpu_cores=1.0,
)
START_UP = recording_of(
    [a_span(a_gpu(0.0), busiest_thread=1.0, cpu_cores=1.0)] * 16
    + [a_span(a_gpu(0.98, tensor_active=0.8, power_w=680.0), busiest_thread=1.0, cpu_cores=1.0)] * 4
)
MADE = {
    "network": (NETWORK, Cause.NETWORK),
    "disk": (DISK, Cause.DISK),
    "one thread": (CPU, Cause.CPU),
    "all cores": (ALL_CORES, Cause.CPU),
    "tiny kernels": (TINY, Cause.LAUNCH),
    "asks after each step": (SYNC, Cause.SYNCHRONISATION),
    "pageable copies": (PCIE, Cause.PCIE),
    "elementwise": (MEMORY, Cause.MEMORY),
    "few requests": (REQUESTS, Cause.REQUESTS),
    "a forgotten notebook": (HELD, Cause.IDLE),
    "matrix products": (COMPUTE, Cause.COMPUTE),
    "prepares for long": (START_UP, Cause.START_UP),
}


@pytest.mark.parametrize("name", MADE)
def test_each_cause_is_named_with_its_evidence(name):
    recording, cause = MADE[name]
    finding = find_cause(recording, HARDWARE)
    assert finding.cause is cause
    assert finding.confidence >= 0.4
    assert any(character.isdigit() for character in " ".join(finding.evidence))
    assert finding.busy == pytest.approx(profile_of(recording).busy_of_all)


def test_every_cause_can_be_told():
    assert set(MEANING) == set(Cause) == set(CONDITIONS)


# --- time-aligned, not averages -----------------------------------------------------------------------


def test_what_is_high_while_the_gpu_works_does_not_explain_why_it_waits():
    """The network is fast while the GPU is busy, and quiet while it is not: the CPU is what it waits for then."""
    spans = [
        a_span(a_gpu(0.95), net_rx_bytes_s=6e8, busiest_thread=0.2, cpu_cores=0.3),
        a_span(a_gpu(0.02), net_rx_bytes_s=0.0, busiest_thread=1.0, cpu_cores=1.0),
        a_span(a_gpu(0.02), net_rx_bytes_s=0.0, busiest_thread=1.0, cpu_cores=1.0),
    ] * 4
    assert found(recording_of(spans)) is Cause.CPU


@pytest.mark.parametrize("seen", [(9,), ()], ids=["once", "never"])
def test_bursts_that_the_driver_hardly_sees_are_no_long_start_and_no_idle_gpu(seen):
    """As a server on an H200 was seen in spans of 1 s: 2 s of start, then 30 ms of work twice a second."""
    spans = [a_span(a_gpu(0.0, sm_active=0.0), busiest_thread=1.0, cpu_cores=1.3)] * 2
    spans += [
        a_span(a_gpu(0.29 if n in seen else 0.0, sm_active=0.057), busiest_thread=0.06, cpu_cores=0.06)
        for n in range(13)
    ]
    recording = recording_of(spans)
    profile = profile_of(recording)
    assert profile.start_up_s == 2 * spans[0].span_ms / 1000
    assert profile.busy == pytest.approx(0.057)
    assert found(recording) is Cause.REQUESTS


def test_a_context_that_is_made_is_no_work_yet():
    busy = {"busiest_thread": 1.0, "cpu_cores": 1.0}
    idle = a_span(a_gpu(0.0, sm_active=0.0), **busy)
    work = a_span(a_gpu(0.3, sm_active=0.2), **busy)
    recording = recording_of([idle, a_span(a_gpu(0.04, sm_active=0.008), **busy), *[idle] * 13, *[work] * 5])
    assert profile_of(recording).start_up_s == 15 * work.span_ms / 1000
    assert found(recording) is Cause.START_UP


def test_a_download_before_the_first_work_is_start_up_and_no_slow_network():
    spans = [a_span(a_gpu(0.0), net_rx_bytes_s=1.2e9)] * 12 + [a_span(a_gpu(0.97, tensor_active=0.8))] * 8
    assert found(recording_of(spans)) is Cause.START_UP


def test_one_of_four_gpus_works():
    recording = a_recording(
        a_gpu(0.97, tensor_active=0.8), a_gpu(0.0), a_gpu(0.0), a_gpu(0.0), busiest_thread=1.0
    )
    finding = find_cause(recording, HARDWARE)
    assert finding.cause is Cause.IDLE
    assert finding.unused_gpus == 3
    assert "3 of its 4 GPUs did no work" in finding.evidence[0]
    assert finding.busy == pytest.approx(0.97 / 4)


def test_a_model_that_was_loaded_and_left_is_held_and_not_a_server():
    spans = [a_span(a_gpu(0.06))] + [a_span(a_gpu(0.0))] * 15
    finding = find_cause(recording_of(spans), HARDWARE)
    assert finding.cause is Cause.IDLE
    assert "worked for 0.4 % of 32 s" in finding.evidence[0]


def test_collectives_that_wait_for_one_another_count_as_busy_and_fill_nothing():
    waiting = a_gpu(0.98, sm_active=0.06, tensor_active=0.0, power_w=150.0)
    recording = a_recording(waiting, waiting, busiest_thread=0.4, cpu_cores=0.8)
    assert found(recording) is Cause.SYNCHRONISATION


# --- what is missing ----------------------------------------------------------------------------------


def test_without_counters_power_tells_small_kernels_from_large_ones():
    tiny = a_gpu(0.7, power_w=130.0, **NO_COUNTERS)
    large = a_gpu(0.97, power_w=660.0, **NO_COUNTERS)
    assert found(a_recording(tiny, busiest_thread=1.0, cpu_cores=1.0)) is Cause.LAUNCH
    assert found(a_recording(large, busiest_thread=1.0, cpu_cores=1.0)) is Cause.COMPUTE


def test_only_the_use_of_the_gpu_is_known_so_that_both_branches_are_told():
    host = dict.fromkeys(QUIET, NAN)
    finding = find_cause(a_recording(GpuSample(busy=0.15), **host), HARDWARE)
    assert finding.cause is None
    assert {branch.cause for branch in finding.branches} >= {Cause.NETWORK, Cause.REQUESTS}
    assert all(gap.how for gap in finding.missing)


def test_unknown_network_is_not_a_quiet_network():
    recording = a_recording(a_gpu(0.05), busiest_thread=0.06, cpu_cores=0.06, net_rx_bytes_s=NAN)
    finding = find_cause(recording, HARDWARE)
    assert Cause.NETWORK in {finding.cause, *(branch.cause for branch in finding.branches)}
    assert finding.confidence < find_cause(REQUESTS, HARDWARE).confidence


def test_the_hosts_traffic_stands_in_with_less_confidence():
    theirs = a_recording(
        a_gpu(0.15), net_rx_bytes_s=NAN, host_rx_bytes_s=3e8, busiest_thread=0.2, cpu_cores=0.3
    )
    finding = find_cause(theirs, HARDWARE)
    assert finding.cause is Cause.NETWORK
    assert finding.confidence < find_cause(NETWORK, HARDWARE).confidence
    assert "the host receives" in finding.evidence[0]


def test_a_link_that_is_full_is_a_stronger_sign_than_one_with_room():
    """With room on the link it is the other end that is slow, or something else."""
    room = find_cause(NETWORK, HardwareLimits(8.0, network_bytes_s=12.5e9))
    assert room.cause is Cause.NETWORK
    assert room.confidence < find_cause(NETWORK, HARDWARE).confidence
    full = find_cause(NETWORK, HardwareLimits(8.0, network_bytes_s=3.2e8))
    assert full.cause is Cause.NETWORK
    assert full.confidence > find_cause(NETWORK, HARDWARE).confidence


def test_the_jobs_own_word_about_waiting_decides():
    """A busy thread may prepare data or launch kernels: a loop that says it never waits for data excludes the first."""
    recording = a_recording(a_gpu(0.35), busiest_thread=0.99, cpu_cores=1.0)
    waits = replace(recording, samples=tuple(replace(one, data_wait_s=1.2) for one in recording.samples))
    never = replace(recording, samples=tuple(replace(one, data_wait_s=0.01) for one in recording.samples))
    assert found(waits) is Cause.CPU
    assert "waits for data in 60 %" in " ".join(find_cause(waits, HARDWARE).evidence)
    assert found(never) is not Cause.CPU


def test_nothing_is_said_of_a_job_that_has_hardly_run_nor_of_gpus_nobody_measured():
    short = find_cause(a_recording(a_gpu(0.1), spans=2), HARDWARE)
    simulated = find_cause(a_recording(GpuSample()), HARDWARE)
    assert short.cause is None
    assert "there are 2 so far" in short.missing[0].how
    assert simulated.cause is None
    assert simulated.busy is None
    assert "the use of its GPUs" in simulated.missing[0].what


def test_a_week_of_samples_says_the_same_as_an_hour():
    hour, week = (a_recording(a_gpu(0.15), spans=spans, net_rx_bytes_s=3e8) for spans in (500, 4096))
    short, long = profile_of(hour), profile_of(week)
    assert long.samples <= 600
    assert long.span_s == pytest.approx(8192, rel=0.01)
    assert long.rx_idle == pytest.approx(short.rx_idle)
    assert found(week) is found(hour) is Cause.NETWORK
