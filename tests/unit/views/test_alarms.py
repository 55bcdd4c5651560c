"""What needs a person: each kind of alarm when it is one, and not before."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import a_busy_world, a_job, a_machine
from windfall.control import events
from windfall.jobs.staging import Mark
from windfall.views.alarms import ALARMS_MAX, HostTrouble, alarms

WELL = HostTrouble(500 << 30, 1000 << 30)


def listed(world, host=WELL, sees=lambda _: True, now=None):
    return alarms(world.state, sees, host, now or world.now)["alarms"]


def kinds(world, **more):
    return [alarm["kind"] for alarm in listed(world, **more)]


def test_nothing_is_wrong_where_nothing_is():
    world = a_busy_world().submits(a_job("train")).starts("train")
    assert listed(world, now=world.now + 10**9) == []


def test_checkpoints_that_stop_coming_are_an_alarm_and_slow_ones_are_not():
    world = a_busy_world().submits(a_job("train")).starts("train")
    for number in range(5):
        mark = Mark(f"{number}", world.now + number * 30_000, world.now, 1)
        world.happens(events.AttemptProgressed(world.token("train"), world.now, checkpoint=mark))
    last = world.now + 4 * 30_000
    assert kinds(world, now=last + 80_000) == []
    (alarm,) = listed(world, now=last + 100_000)
    assert (alarm["kind"], alarm["jobId"], alarm["since"]) == ("checkpoint", "train", last)
    assert "every 30 s" in alarm["text"]


def test_what_an_agent_says_of_checkpoints_is_an_alarm():
    world = a_busy_world().submits(a_job("train")).starts("train")
    world.happens(
        events.AttemptProgressed(world.token("train"), world.now, alarm="the store does not answer")
    )
    (alarm,) = listed(world)
    assert (alarm["kind"], alarm["severity"]) == ("checkpoint", "bad")


def test_a_queue_is_blocked_after_a_minute_and_only_for_those_who_see_the_job():
    world = a_busy_world().submits(a_job("huge").vcpus(1000))
    world.later(6_000)
    assert world.state.jobs["huge"].blocked_at is not None
    assert kinds(world) == []
    world.later(120_000)
    (alarm,) = listed(world)
    assert (alarm["kind"], alarm["queue"], alarm["command"]) == (
        "queue_blocked",
        "queue",
        "windfall why huge",
    )
    assert kinds(world, sees=lambda _: False) == []


def test_sick_gpus_a_full_disk_and_absent_agents_are_alarms_and_the_bad_ones_come_first():
    machine = a_machine(gpus=3)
    gpus = (
        replace(machine.gpus[0], fence="XID 79"),
        replace(machine.gpus[1], notes=("remapped rows",)),
        machine.gpus[2],
    )
    world = a_busy_world(replace(machine, gpus=gpus))
    host = HostTrouble(1 << 30, 1000 << 30, ("the agent does not answer",))
    assert kinds(world, host=host)[:2] == ["agent_away", "disk"]
    assert sorted(kinds(world, host=host)[2:]) == ["gpu_fenced", "gpu_health"]


def test_the_list_has_an_end_and_says_what_it_leaves_out():
    machine = a_machine(gpus=ALARMS_MAX + 7)
    world = a_busy_world(replace(machine, gpus=tuple(replace(gpu, fence="hot") for gpu in machine.gpus)))
    answer = alarms(world.state, lambda _: True, WELL, world.now)
    assert (len(answer["alarms"]), answer["leftOut"]) == (ALARMS_MAX, 7)
