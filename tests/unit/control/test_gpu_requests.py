"""GPUs by tag through the reactor: what is refused at once, what an attempt is given, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import HOST, TestWorld, a_busy_world, a_job, a_machine, a_world
from windfall.accounting.prices import Rates, price_of
from windfall.capacity.environments import Provisioning
from windfall.capacity.machines import GpuDevice, Machine, Offer
from windfall.control.instructions import StartAttempt
from windfall.control.why import why
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import JobId
from windfall.jobs.resources import Resources
from windfall.jobs.states import RUNNABLE, STARTING

A10G, H100 = GpuDevice("a", "A10G", 24_576), GpuDevice("h", "H100", 81_920)


def a_host(*gpus: GpuDevice) -> Machine:
    return Machine(HOST, Resources(64, 262_144, len(gpus)), gpus)


def a_world_with(*gpus: GpuDevice) -> TestWorld:
    return a_busy_world(a_host(*gpus))


def shared(gpu: GpuDevice) -> GpuDevice:
    return replace(gpu, sharing="mps")


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (a_job().tagged(gpu_model="H100"), "for no GPU; add one of type GPU to resourceRequirements"),
        (a_job().gpus(2).tagged(gpu_share="0.5"), "is a part of one GPU, and the job asks for 2"),
        (a_job().gpus(1).tagged(gpu_share="0.001"), "must be at least 0.01"),
        (a_job().gpus(1).tagged(gpu_share="1.5"), "a part of one GPU, above 0 and below 1"),
        (a_job().gpus(1).tagged(gpu_memory_gib="much"), "a number of GiB above 0"),
        (a_job().gpus(1).tagged(on_gpu_oom="smaller"), "must be larger"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_changes(job, text):
    world = a_world_with(shared(A10G))
    before = world.picture()
    with pytest.raises(Invalid, match=text):
        world.submits(job)
    assert world.state.jobs == before.jobs


def test_a_share_is_refused_where_this_host_is_all_and_cannot_share():
    noted = replace(A10G, notes=("MPS needs compute capability 7.0",))
    world = a_world_with(noted, H100)
    with pytest.raises(
        Invalid, match=r"none of 1 x A10G \(24 GiB\), 1 x H100 \(80 GiB\) can be shared \(MPS needs"
    ):
        world.submits(a_job().gpus(1).tagged(gpu_share="0.5"))


def test_a_share_waits_where_other_machines_may_come():
    world = a_world_with(A10G)
    world.offers["cloud"] = (Offer("g", Resources(8, 16_384, 1), gpus=(replace(A10G, sharing=None),)),)
    world.with_environment("cloud", Provisioning.EC2)
    world.submits(a_job("a", "cloud").gpus(1).tagged(gpu_share="0.5"))
    assert world.state_of("a") is RUNNABLE
    answer = why(world.state, JobId("a"), world.offers, world.now)
    assert answer is not None
    assert [code for code, _ in answer.reasons] == ["GPUS_NOT_SHARED"]


def test_a_share_is_taken_before_any_engine_has_spoken():
    world = a_world(a_host(A10G))
    world.places = False
    world.declared().submits(a_job("a").gpus(1).tagged(gpu_share="0.5"))
    assert world.state_of("a") is RUNNABLE


def test_parts_of_one_device_go_to_several_attempts_which_know_their_part():
    world = a_world_with(shared(A10G)).submits(
        a_job("a").gpus(1).tagged(gpu_share="0.5"),
        a_job("b").gpus(1).tagged(gpu_share="0.4"),
        a_job("c").gpus(1).tagged(gpu_share="0.2"),
    )
    starts = {i.token.partition("#")[0]: i for i in world.asked if isinstance(i, StartAttempt)}
    assert (starts["a"].gpu_ids, starts["a"].gpu_share) == (("a",), 0.5)
    assert (starts["b"].gpu_ids, starts["b"].gpu_share) == (("a",), 0.4)
    assert starts["a"].resources.gpus == 1
    assert world.state_of("c") is RUNNABLE
    world.starts("a").exits("a")
    assert world.state_of("c") is STARTING
    world.starts("b", "c").exits("b").exits("c")
    assert world.state.occupancy.free_gpus(world.machine) == ("a",)
    assert world.state.occupancy.used_on(HOST) == Resources(0, 0, 0)


def test_parts_are_still_held_after_a_restart():
    world = a_world_with(shared(A10G)).submits(a_job("a").gpus(1).tagged(gpu_share="0.7"))
    world.restarted().connected().submits(a_job("b").gpus(1).tagged(gpu_share="0.5"))
    assert world.state.occupancy.shared_gpus(HOST)["a"].sharers == 1
    assert world.state_of("b") is RUNNABLE


def test_whole_jobs_leave_the_larger_gpu_to_those_who_ask_for_it():
    world = a_world_with(H100, A10G).submits(
        a_job("any").gpus(1), a_job("large").gpus(1).tagged(gpu_memory_gib="60")
    )
    assert (world.job("any").attempts[0].gpu_ids, world.job("large").attempts[0].gpu_ids) == (("a",), ("h",))


def test_a_part_of_a_gpu_costs_its_part():
    world = a_world(a_machine()).declared()
    offer = Offer("g", Resources(8, 16_384, 2), usd_hour=8.0, gpus=(shared(A10G), shared(A10G)))
    world.offers["cloud"] = (offer,)
    world.with_environment("cloud", Provisioning.EC2)
    world.submits(a_job("a", "cloud").gpus(1).tagged(gpu_share="0.25")).ready()
    assert world.job("a").attempts[0].usd_hour == pytest.approx(8.0 / 2 * 0.25)


def test_on_a_machine_of_ones_own_a_part_costs_its_part_of_the_rate():
    world = a_world_with(shared(A10G)).submits(a_job("a").gpus(1).tagged(gpu_share="0.5"))
    job = world.job("a")
    price = price_of(job.attempts[0], job.submission.resources, Rates(usd_gpu_hour=3.0))
    assert price.paid_usd == pytest.approx(1.5)


def test_a_fenced_device_is_given_to_nobody_and_named_to_those_who_wait():
    sick = replace(A10G, fence="XID 79: fallen off the bus")
    world = a_world_with(sick).submits(a_job("a").gpus(1))
    assert world.state_of("a") is RUNNABLE
    answer = why(world.state, JobId("a"), {}, world.now)
    assert answer is not None
    assert "GPUS_FENCED" in [code for code, _ in answer.reasons]
    assert any("XID 79: fallen off the bus" in text for _, text in answer.reasons)
