"""GPUs that fall ill: who keeps away, whose job moves, what is remembered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import HOST, TestWorld, a_busy_world, a_job, a_machine
from windfall.capacity.machines import GpuDevice
from windfall.control import events
from windfall.control.commands.hosts import FenceDevice
from windfall.control.devices import SICK_NOTICE_MS
from windfall.control.instructions import InterruptAttempt
from windfall.control.why import why
from windfall.jobs.errors import Invalid, NotFound
from windfall.jobs.ids import JobId, MachineId
from windfall.jobs.states import FAILED, RUNNABLE, RUNNING, STARTING, SUCCEEDED

SICK = "XID 119: its system processor does not answer (since then)"


def a_host(gpus: int = 2) -> TestWorld:
    return a_busy_world(a_machine(gpus=gpus))


def devices_of(world: TestWorld) -> tuple[GpuDevice, ...]:
    return world.state.machines[HOST].gpus


def falls_ill(world: TestWorld, *gpu_ids: str, **how: object) -> None:
    changes = {"fence": SICK, "evacuate": True, **how}
    gpus = tuple(
        replace(gpu, **changes) if gpu.id in gpu_ids else gpu  # type: ignore[arg-type] # any field
        for gpu in devices_of(world)
    )
    world.happens(events.DevicesChanged(HOST, gpus))


def gets_well(world: TestWorld) -> None:
    gpus = tuple(replace(gpu, fence=None, evacuate=False, lost=False) for gpu in devices_of(world))
    world.happens(events.DevicesChanged(HOST, gpus))


def gpu_of(world: TestWorld, job_id: str) -> tuple[str, ...]:
    return world.job(job_id).attempts[-1].gpu_ids


def test_a_sick_gpu_gets_no_new_job_until_it_is_well():
    world = a_host(gpus=1)
    falls_ill(world, "gpu0", evacuate=False)
    world.submits(a_job("train").gpus(1))
    assert world.state_of("train") is RUNNABLE
    gets_well(world)
    assert world.state_of("train") is STARTING


def test_the_job_on_it_has_notice_and_moves_to_another_gpu_at_no_cost():
    world = a_host().submits(a_job("train").gpus(1)).starts("train")
    [held] = gpu_of(world, "train")
    falls_ill(world, held)
    [notice] = world.asked_for(InterruptAttempt)
    assert notice.deadline_at == world.now + SICK_NOTICE_MS
    assert held in notice.words
    assert SICK in notice.words
    world.exits("train", 143)
    job = world.job("train")
    assert job.state is STARTING, "it may be tried once, and this try was not its own fault"
    assert gpu_of(world, "train") != (held,)
    assert job.charged_attempts == 1
    world.starts("train").exits("train", 1)
    assert world.state_of("train") is FAILED, "its own failure counts"


def test_a_job_that_ends_well_within_its_notice_is_done():
    world = a_host().submits(a_job("train").gpus(1)).starts("train")
    falls_ill(world, *gpu_of(world, "train"))
    world.exits("train", 0)
    assert world.state_of("train") is SUCCEEDED


def test_on_a_lost_gpu_there_is_nothing_to_wait_for():
    world = a_host().submits(a_job("train").gpus(1)).starts("train")
    falls_ill(world, *gpu_of(world, "train"), lost=True)
    [notice] = world.asked_for(InterruptAttempt)
    assert notice.deadline_at == world.now


def test_a_gpu_that_is_not_listed_any_more_is_as_lost():
    world = a_host().submits(a_job("train").gpus(1)).starts("train")
    [held] = gpu_of(world, "train")
    left = tuple(gpu for gpu in devices_of(world) if gpu.id != held)
    world.happens(events.DevicesChanged(HOST, left))
    [notice] = world.asked_for(InterruptAttempt)
    assert (notice.deadline_at, "not there" in notice.words) == (world.now, True)
    assert world.state.machines[HOST].total.gpus == 1
    assert all(instance.total.gpus == 1 for instance in world.state.instances.values())


def test_what_the_job_holds_is_looked_at_again_when_an_agent_connects():
    world = a_host().submits(a_job("train").gpus(1)).starts("train")
    [held] = gpu_of(world, "train")
    world.machine = replace(world.machine, gpus=tuple(g for g in world.machine.gpus if g.id != held))
    world.connected(running=("train",))
    assert [held in notice.words for notice in world.asked_for(InterruptAttempt)] == [True]


def test_a_job_may_ask_to_stay():
    world = a_host().submits(a_job("train").gpus(1).tagged(on_sick_gpu="stay")).starts("train")
    falls_ill(world, *gpu_of(world, "train"))
    assert world.asked_for(InterruptAttempt) == []
    assert world.state_of("train") is RUNNING
    with pytest.raises(Invalid, match=r"move .* or stay"):
        world.submits(a_job("other").gpus(1).tagged(on_sick_gpu="maybe"))


def test_jobs_on_other_gpus_and_on_none_go_on():
    world = a_host().submits(a_job("one").gpus(1), a_job("two").gpus(1), a_job("cpu"))
    world.starts("one", "two", "cpu")
    falls_ill(world, *gpu_of(world, "one"))
    assert [notice.token for notice in world.asked_for(InterruptAttempt)] == [world.token("one")]


def test_a_note_that_changes_moves_nobody():
    world = a_host().submits(a_job("train").gpus(1)).starts("train")
    falls_ill(world, *gpu_of(world, "train"), fence=None, evacuate=False, notes=("slowed down: power brake",))
    assert world.asked_for(InterruptAttempt) == []
    assert any(gpu.notes for gpu in devices_of(world))


def test_why_names_the_fence_also_where_another_gpu_is_merely_taken():
    world = a_host().submits(a_job("one").gpus(1)).starts("one")
    falls_ill(world, *({"gpu0", "gpu1"} - set(gpu_of(world, "one"))))
    world.submits(a_job("two").gpus(1), a_job("cpu").vcpus(64))
    offers = dict.fromkeys(world.state.environments, ())
    told = why(world.state, JobId("two"), offers, world.now)
    assert told is not None
    assert [SICK in text for code, text in told.reasons if code == "GPUS_FENCED"] == [True]
    no_gpu = why(world.state, JobId("cpu"), offers, world.now)
    assert no_gpu is not None
    assert "GPUS_FENCED" not in dict(no_gpu.reasons)
    wide = world.submits(a_job("wide").gpus(2)) and why(world.state, JobId("wide"), offers, world.now)
    assert wide is not None
    assert [code for code, _ in wide.reasons].count("GPUS_FENCED") == 1, "said once"


# By hand ---------------------------------------------------------------------------------------------------


def test_a_fence_by_hand_stays_over_reports_and_restarts_and_moves_nobody():
    world = a_host(gpus=1).submits(a_job("train").gpus(1)).starts("train")
    assert world.happens(FenceDevice("gpu0", "to be replaced on Monday")) == 1
    assert world.asked_for(InterruptAttempt) == []
    world.exits("train")
    world.submits(a_job("next").gpus(1))
    assert world.state_of("next") is RUNNABLE
    gets_well(world)
    world.restarted().connected()
    machine = world.state.machines[HOST]
    assert machine.why_fenced(machine.gpus[0]) == "to be replaced on Monday"
    assert world.state_of("next") is RUNNABLE
    assert world.happens(FenceDevice("gpu0", None)) == 0
    assert world.state_of("next") is STARTING


def test_a_fence_of_the_agents_own_can_be_taken_back_until_it_finds_another():
    world = a_host(gpus=1)
    falls_ill(world, "gpu0")
    world.happens(FenceDevice("gpu0", None))
    world.submits(a_job("train").gpus(1)).starts("train")
    assert world.state_of("train") is RUNNING
    world.machine = replace(world.machine, gpus=devices_of(world))
    world.connected(running=("train",))
    falls_ill(world, "gpu0", notes=("also warm",))
    assert world.asked_for(InterruptAttempt) == [], "the same illness, and it was forgiven"
    falls_ill(world, "gpu0", fence="XID 79: it has fallen off the bus (since now)")
    assert len(world.asked_for(InterruptAttempt)) == 1
    gets_well(world)
    assert world.state.machines[HOST].pardons == {}


def test_what_does_not_exist_or_makes_no_sense_is_refused():
    world = a_host()
    with pytest.raises(NotFound, match="windfall gpus"):
        world.happens(FenceDevice("GPU-x", "why"))
    for reason in ("", "  ", "a\nb", "x" * 201):
        with pytest.raises(Invalid, match="line of 1 to 200"):
            world.happens(FenceDevice("gpu0", reason))
    assert world.happens(FenceDevice("gpu0", None)) == 0, "twice is once"


def test_of_two_machines_with_a_gpu_of_one_name_the_one_is_fenced_that_is_named():
    world = a_host(gpus=1)
    twin = replace(world.state.machines[HOST], id=MachineId("twin"), facts={"name": "gpu2"})
    world.state.machines[twin.id] = twin
    with pytest.raises(Invalid, match=r"Several machines have a GPU gpu0: .*gpu2; name one of them"):
        world.happens(FenceDevice("gpu0", "fan"))
    with pytest.raises(NotFound):
        world.happens(FenceDevice("gpu0", "fan", MachineId("elsewhere")))
    world.happens(FenceDevice("gpu0", "fan", twin.id))
    assert [dict(machine.fences) for machine in world.state.machines.values()] == [{}, {"gpu0": "fan"}]


def test_a_lost_gpu_cannot_be_talked_into_existence():
    world = a_host(gpus=1)
    world.happens(FenceDevice("gpu0", "new fan"))
    falls_ill(world, "gpu0", lost=True)
    world.happens(FenceDevice("gpu0", None))
    with pytest.raises(Invalid, match="does not answer"):
        world.happens(FenceDevice("gpu0", None))
    world.submits(a_job("train").gpus(1))
    assert world.state_of("train") is RUNNABLE
