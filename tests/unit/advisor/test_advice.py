"""What to do, and what it would bring: seed E's detector in both branches, and the model behind the numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.advisor.builders import QUIET, V100, a_gpu, a_recording
from tests.unit.advisor.test_finding import COMPUTE, CPU, DISK, HELD, MEMORY, NETWORK, PCIE, START_UP, TINY
from windfall.advisor.advice import Advice, AdviceKind, Holding, sped_up
from windfall.advisor.causes import Cause
from windfall.advisor.consulting import Consultation, consult
from windfall.advisor.samples import NAN, GpuSample, Recording
from windfall.advisor.signs import HardwareLimits
from windfall.advisor.types import SPEEDS, model_of, slower_by

GBIT = 1e9 / 8
P3 = HardwareLimits(64.0, 25 * GBIT, pcie_bytes_s=15.75e9)
ON_P3 = Holding(10.0, 24.48, "p3.16xlarge", gpus=8)
EIGHT = 8


def a_detector(busy: float, **host: float) -> Recording:
    """Seed E's endpoint: object detection on the eight V100 of a p3.16xlarge."""
    gpu = a_gpu(
        busy, memory_bytes=6e9, sm_active=NAN, sm_occupancy=NAN, tensor_active=NAN, power_w=60 + 200 * busy
    )
    return a_recording(*[gpu] * EIGHT, device=V100, vcpus=64.0, **host)


def network_bound() -> Consultation:
    return consult(a_detector(0.2, net_rx_bytes_s=2.9e9, busiest_thread=0.5, cpu_cores=6.0), P3, ON_P3)


def named(consultation: Consultation, kind: AdviceKind) -> list[Advice]:
    return [advice for advice in consultation.advice if advice.kind is kind]


# --- seed E, the branch in which the network is the limit ----------------------------------------------


def test_a_detector_at_the_limit_of_its_network_is_sent_to_p3dn():
    consultation = network_bound()
    assert consultation.finding.cause is Cause.NETWORK
    assert "93 % of the link's 25 Gbit/s" in consultation.finding.evidence[0]
    first = named(consultation, AdviceKind.INSTANCE)[0]
    assert first.text.startswith("move to p3dn.24xlarge (8 x V100, 100 instead of 25 Gbit/s")
    # time = 0.2 of GPU work + 0.8 of waiting, which a network four times as fast makes 0.2.
    assert first.time_factor == pytest.approx(0.4)
    assert first.utilisation == pytest.approx(0.5)
    assert first.usd_hour == pytest.approx(31.212)
    assert first.usd_job == pytest.approx(31.212 * 10 * 0.4)


def test_p3dn_is_dearer_and_the_smaller_p3_are_no_way_out():
    told = " ".join(named(network_bound(), AdviceKind.INSTANCE)[0].assumptions)
    assert "p3.2xlarge and p3.8xlarge have less than 25 Gbit/s" in told
    assert "costs more per hour by 27 %" in told
    assert "worth it only if the GPU waits for the network for more than 29 % of the time" in told


def test_another_gpu_is_told_with_what_it_does_to_the_gpu_part():
    others = named(network_bound(), AdviceKind.INSTANCE)[1:]
    by_name = {advice.text.split()[2]: advice for advice in others}
    assert set(by_name) == {"g4dn.metal", "p4d.24xlarge"}
    # A T4 needs 900 / 320 times as long for what is bound by memory: 0.2 of the time becomes 0.56.
    assert by_name["g4dn.metal"].time_factor == pytest.approx(0.2 * 900 / 320 + 0.2)
    assert by_name["p4d.24xlarge"].time_factor == pytest.approx(0.2 * 900 / 1555 + 0.2)


def test_another_orchestrator_moves_no_bottleneck():
    assert any("orchestrator" in text and "same link" in text for text in network_bound().no_help)


def test_a_p3_whose_network_is_half_empty_is_not_sent_to_p3dn():
    quiet = consult(a_detector(0.2, net_rx_bytes_s=3e8, busiest_thread=0.99, cpu_cores=20.0), P3, ON_P3)
    assert quiet.finding.cause is Cause.CPU
    assert not any("p3dn" in advice.text for advice in quiet.advice if advice.cause is quiet.finding.cause)


def test_a_slow_source_behind_a_link_with_room_is_no_reason_for_another_machine():
    slow = consult(a_detector(0.2, net_rx_bytes_s=3e8, busiest_thread=0.2, cpu_cores=2.0), P3, ON_P3)
    assert slow.finding.cause is Cause.NETWORK
    assert "the link has room" in slow.advice[0].text
    assert not named(slow, AdviceKind.INSTANCE)


# --- seed E, the branch in which there are few requests -------------------------------------------------


def test_a_detector_with_few_requests_is_sent_to_a_smaller_gpu_or_a_share():
    one = a_recording(
        a_gpu(0.06, memory_bytes=3e9, sm_active=NAN, tensor_active=NAN),
        device=V100,
        busiest_thread=0.1,
        cpu_cores=0.1,
    )
    hardware = HardwareLimits(8.0, 10 * GBIT)
    consultation = consult(one, hardware, Holding(10.0, 3.06, "p3.2xlarge"))
    assert consultation.finding.cause is Cause.REQUESTS
    smaller = named(consultation, AdviceKind.INSTANCE)
    assert smaller[0].text.startswith("move to g4dn.xlarge (1 x T4")
    assert smaller[0].usd_job == pytest.approx(5.26)
    [share] = named(consultation, AdviceKind.SHARE)
    assert "windfall:gpu-share=0.25" in share.text
    assert share.usd_hour == pytest.approx(3.06 * 0.25)
    assert any("no requests" in text for text in consultation.no_help)


@pytest.mark.parametrize(
    ("memory_gib", "shares"), [(1.2, ["0.1"]), (3, ["0.25"]), (6, ["0.5"]), (13, []), (NAN, [])]
)
def test_a_share_has_room_for_the_memory_that_was_used(memory_gib, shares):
    quiet = a_gpu(0.02, memory_bytes=memory_gib * 2**30, sm_active=NAN, tensor_active=NAN)
    for device, expected in ((V100, shares), (replace(V100, memory_mib=None), [])):
        recorded = a_recording(quiet, device=device, busiest_thread=0.1, cpu_cores=0.1)
        consultation = consult(recorded, HardwareLimits(8.0, 10 * GBIT), Holding(10.0, 3.06, "p3.2xlarge"))
        assert consultation.finding.cause is Cause.REQUESTS
        told = named(consultation, AdviceKind.SHARE)
        assert [each.text.partition("gpu-share=")[2].partition(")")[0] for each in told] == expected


# --- seed E as it is told: only a fraction of the GPU is used, and nothing else is known ------------------


def test_vcpus_that_are_all_used_are_worth_a_type_with_more():
    full = a_recording(a_gpu(0.3), device=V100, vcpus=4.0, busiest_thread=0.9, cpu_cores=3.9)
    consultation = consult(full, HardwareLimits(4.0), Holding(10.0, 1.006, "g5.xlarge"))
    assert consultation.finding.cause is Cause.CPU
    first = named(consultation, AdviceKind.INSTANCE)[0]
    assert "instead of 4 vCPUs, the same GPUs" in first.text
    assert first.time_factor is not None
    assert first.time_factor < 0.7


def test_without_evidence_both_branches_are_told_with_what_each_would_mean():
    host = dict.fromkeys(QUIET, NAN)
    recording = a_recording(
        *[GpuSample(busy=0.15, memory_bytes=4e9)] * EIGHT, device=V100, vcpus=64.0, **host
    )
    consultation = consult(recording, P3, ON_P3)
    assert consultation.finding.cause is None
    types = named(consultation, AdviceKind.INSTANCE)
    network = [advice.text for advice in types if advice.cause is Cause.NETWORK]
    requests = [advice.text for advice in types if advice.cause is Cause.REQUESTS]
    assert "p3dn.24xlarge" in network[0]
    assert requests[0].startswith("move to g5.12xlarge (4 x A10G")
    assert not any("p3dn" in text for text in requests)
    assert all(advice.confidence <= 0.5 for advice in consultation.advice)


# --- the model ------------------------------------------------------------------------------------------


def test_only_the_waiting_part_shrinks():
    assert sped_up(0.25, 3.0) == (pytest.approx(0.5), pytest.approx(0.5))
    assert sped_up(1.0, 100.0) == (1.0, 1.0)


def test_speeds_are_known_or_nothing_is_said():
    assert slower_by("V100", "V100") == 1.0
    assert slower_by("A100", "H100", by_memory=True) == pytest.approx(1555 / 3350)
    assert slower_by("K80", "V100") is None
    assert slower_by("K80", "K80") == 1.0
    assert model_of("NVIDIA A100-SXM4-40GB") == "A100"
    assert model_of("NVIDIA L4") == "L4"
    assert model_of("NVIDIA GeForce RTX 4090") is None
    assert all(speed.tensor_tflops > 0 < speed.memory_gb_s for speed in SPEEDS.values())


@pytest.mark.parametrize(
    ("recording", "words"),
    [
        (CPU, "num_workers=7"),
        (DISK, "few large files"),
        (TINY, "larger batch"),
        (PCIE, "pin_memory=True"),
        (MEMORY, "bf16"),
        (HELD, "ask for no GPU"),
        (START_UP, "windfall:worker"),
        (COMPUTE, "leave it"),
    ],
)
def test_each_cause_has_a_change_in_the_job(recording, words):
    consultation = consult(recording, HardwareLimits(8.0, pcie_bytes_s=63e9), Holding(2.0, 10.0))
    assert any(words in advice.text for advice in named(consultation, AdviceKind.CHANGE))
    assert all(
        0 < advice.time_factor <= 1 for advice in consultation.advice if advice.time_factor is not None
    )


def test_one_of_four_gpus_works_so_that_three_are_given_back():
    recording = a_recording(
        a_gpu(0.9, tensor_active=0.8), a_gpu(0.0), a_gpu(0.0), a_gpu(0.0), busiest_thread=1.0
    )
    consultation = consult(recording, HardwareLimits(8.0), Holding(10.0, 12.0, gpus=4))
    assert consultation.wasted_gpu_hours == pytest.approx(40 * (1 - 0.9 / 4))
    assert "ask for 1 instead of 4 GPUs" in consultation.advice[0].text


def test_the_use_of_a_shared_gpu_may_be_its_neighbours():
    alone, shared = (
        consult(COMPUTE, HardwareLimits(8.0), Holding(1.0, share=share)) for share in (None, 0.5)
    )
    assert shared.finding.confidence < alone.finding.confidence
    assert any("its own" in gap.what for gap in shared.finding.missing)


def test_a_job_whose_price_nobody_knows_gets_no_price():
    consultation = consult(NETWORK, HardwareLimits(8.0), Holding(1.0))
    assert all(advice.usd_job is None for advice in named(consultation, AdviceKind.CHANGE))
