"""What-if questions over small worlds: the real reactor decides, and nothing of the world changes."""

from __future__ import annotations

import pytest

from tests.builders import HOST, TestWorld, a_job, a_machine, a_world
from tests.unit.forecast.worlds import MINUTE_MS, a_full_world, copied
from windfall.accounting.prices import Rates
from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning
from windfall.capacity.machines import GpuDevice, Offer
from windfall.capacity.policies import FairShare, SchedulingPolicy
from windfall.control import events
from windfall.control.commands.policies import CreateSchedulingPolicy
from windfall.forecast.what_if import Changes, Comparison, NewMachines, compare
from windfall.jobs.errors import Invalid, NotFound, Rejected
from windfall.jobs.ids import EnvironmentName, JobId, QueueName
from windfall.jobs.resources import Resources
from windfall.jobs.tenants import View
from windfall.views import forecasts

TEN_MINUTES = {f"job-{number}": [600.0] * 30 for number in range(8)}
ONE_MORE = NewMachines("m5.xlarge", 1, Resources(4, 16_384), on_demand_usd_hour=0.2)


def ends(comparison: Comparison, world: TestWorld) -> dict[str, tuple[int | None, int | None]]:
    """Whole minutes from now until each job ends, now and then."""
    minutes = {}
    for each in comparison.jobs:
        fates = (each.now, each.then)
        ended = [None if fate is None or fate.end_at is None else fate.end_at for fate in fates]
        now, then = (None if at is None else round((at - world.now) / MINUTE_MS) for at in ended)
        minutes[str(each.job.id)] = (now, then)
    return minutes


def test_more_machines_let_those_that_wait_start_at_once():
    world = a_full_world()
    compared = compare(Changes(machines=(ONE_MORE,)), copied(world, runs=TEN_MINUTES))
    assert ends(compared, world) == {"job-0": (9, 9), "job-1": (9, 9), "job-2": (19, 10), "job-3": (19, 10)}
    assert compared.complete
    assert "maxvCpus raised" in compared.notes[0]


def test_asking_changes_nothing():
    world = a_full_world()
    before, stored = world.picture(), dict(world.store.jobs)
    compare(Changes(machines=(ONE_MORE,), without=(HOST,)), copied(world, runs=TEN_MINUTES))
    assert world.picture() == before
    assert world.store.jobs == stored


def test_without_its_machine_a_job_starts_again_where_there_is_room_or_never():
    world = a_full_world(jobs=2)
    compared = compare(Changes(without=(HOST,)), copied(world, runs=TEN_MINUTES))
    assert [(each.now.succeeded, each.then.succeeded) for each in compared.jobs] == [(True, False)] * 2
    assert forecasts.summary(list(compared.jobs)) == "2 jobs end well no more."
    with_another = Changes(without=(HOST,), machines=(ONE_MORE,))
    compared = compare(with_another, copied(world, runs=TEN_MINUTES))
    # A lost host uses up its only attempt, as it would in reality.
    assert [each.then.succeeded for each in compared.jobs] == [False, False]


def test_a_job_that_may_be_tried_again_moves_to_another_machine():
    world = a_world(a_machine(vcpus=4)).declared()
    world.submits(a_job("job-0").retried(3)).ready().starts("job-0").later(MINUTE_MS)
    changes = Changes(without=(HOST,), machines=(ONE_MORE,))
    compared = compare(changes, copied(world, runs=TEN_MINUTES))
    assert ends(compared, world) == {"job-0": (9, 10)}
    assert compared.jobs[0].then.attempts == 2


def test_a_new_job_is_judged_by_the_handler_of_submissions():
    world = a_full_world()
    new = a_job("job-7").vcpus(4).command
    compared = compare(Changes(submissions=(new,)), copied(world, runs=TEN_MINUTES))
    assert ends(compared, world)["job-7"] == (None, 29)
    assert "No job that is there ends sooner" in forecasts.summary(list(compared.jobs))
    with pytest.raises(Rejected, match="does not exist"):
        compare(Changes(submissions=(a_job("job-7", "nowhere").command,)), copied(world))


def test_a_queue_moves_to_another_environment():
    world = a_full_world()
    other = EnvironmentName("other")
    world.offers = {other: (Offer("m5.xlarge", Resources(4, 16_384), 1),)}
    world.happens(events.CreateComputeEnvironment(ComputeEnvironment(other, Provisioning.EC2, 0, 64)))
    changes = Changes(moves={QueueName("queue"): (EnvironmentName("environment"), other)})
    compared = compare(changes, copied(world, runs=TEN_MINUTES))
    # An instance of its own takes a minute to come.
    assert ends(compared, world)["job-2"] == (19, 11)
    with pytest.raises(Rejected, match="nothing"):
        compare(Changes(moves={QueueName("queue"): (EnvironmentName("nothing"),)}), copied(world))
    with pytest.raises(NotFound, match="no job queue nowhere"):
        compare(Changes(moves={QueueName("nowhere"): (other,)}), copied(world))


def test_a_priority_counts_within_a_share():
    world = a_world(a_machine(vcpus=2)).declared()
    world.happens(CreateSchedulingPolicy(SchedulingPolicy("fair", FairShare())))
    queue = JobQueue(QueueName("fair"), 1, (EnvironmentName("environment"),), policy="fair")
    world.happens(events.CreateJobQueue(queue))
    jobs = [a_job(f"job-{number}", "fair").vcpus(2).under("team", 1) for number in range(3)]
    world.submits(*jobs).ready().starts("job-0").later(MINUTE_MS)
    compared = compare(Changes(priorities={JobId("job-2"): 5}), copied(world, runs=TEN_MINUTES))
    assert ends(compared, world) == {"job-0": (9, 9), "job-2": (29, 19), "job-1": (19, 29)}
    assert compared.notes == ()


def test_a_priority_without_a_policy_is_said_to_change_nothing():
    world = a_full_world()
    compared = compare(Changes(priorities={JobId("job-3"): 5}), copied(world, runs=TEN_MINUTES))
    assert "no scheduling policy" in compared.notes[0]


@pytest.mark.parametrize("job", ["job-0", "nobody"])
def test_a_job_of_another_tenant_cannot_be_named(job):
    world = a_full_world()
    with pytest.raises(NotFound, match=job):
        compare(Changes(priorities={JobId(job): 5}, tenant="rival"), copied(world))


def test_an_unknown_machine_and_a_type_that_nothing_takes_are_refused():
    world = a_full_world()
    with pytest.raises(NotFound, match="no machine 'other'; there are: host"):
        compare(Changes(without=("other",)), copied(world))
    gpus = ComputeEnvironment(EnvironmentName("gpus"), Provisioning.EC2, 0, 8, instance_types=("p4d",))
    cloud = a_world()
    cloud.offers = {"gpus": (Offer("p4d.24xlarge", Resources(96, 1 << 20, 8), 1),)}
    cloud.happens(events.CreateComputeEnvironment(gpus))
    with pytest.raises(Invalid, match="no compute environment takes m5"):
        compare(Changes(machines=(ONE_MORE,)), copied(cloud))


def test_machines_with_gpus_take_jobs_that_ask_for_some():
    world = a_world(a_machine(vcpus=4)).declared()
    world.submits(a_job("job-0").gpus(2)).later(MINUTE_MS)
    gpus = (GpuDevice("", "A10G", 24_576),) * 4
    compared = compare(
        Changes(machines=(NewMachines("g5.12xlarge", 1, Resources(48, 196_608, 4), gpus),)),
        copied(world, runs=TEN_MINUTES),
    )
    assert ends(compared, world) == {"job-0": (None, 10)}
    assert "1 job ends well only then" in forecasts.summary(list(compared.jobs))


def test_an_answer_shows_only_what_its_caller_sees():
    world = a_full_world()
    world.submits(a_job("job-4").of_tenant("rival"))
    compared = compare(Changes(machines=(ONE_MORE,)), copied(world, runs=TEN_MINUTES))
    answer = forecasts.comparison(compared, View("rival"), world.now)
    assert [row["jobId"] for row in answer["jobs"]] == ["job-4"]
    assert "job-0" not in str(answer)
    everything = forecasts.comparison(compared, View("default", sees_all=True), world.now)
    assert len(everything["jobs"]) == 5


def test_the_sentence_sums_up_times_and_costs():
    world = a_world(a_machine(vcpus=4), rates=Rates(usd_vcpu_hour=3.0)).declared()
    world.submits(a_job("job-0").vcpus(4), a_job("job-1").vcpus(4)).ready().starts("job-0").later(MINUTE_MS)
    compared = compare(Changes(machines=(ONE_MORE,)), copied(world, runs=TEN_MINUTES))
    assert forecasts.summary(list(compared.jobs)) == (
        "1 job ends sooner, by 8 min on average. They cost $1.97 less."
    )


def test_a_length_that_nobody_knows_is_an_assumption_that_is_said():
    world = a_full_world(jobs=2)
    world.submits(a_job("limited").limited_to(1200))
    compared = compare(Changes(machines=(ONE_MORE,)), copied(world))
    answer = forecasts.comparison(compared, View("default", sees_all=True), world.now)
    lengths = {row["jobId"]: (row["length"], row["lengthS"]) for row in answer["jobs"]}
    assert lengths["limited"] == ("its timeout", 1200)
    assert lengths["job-0"] == ("not known, 1 h assumed", 3600)
    assert any("length of 3 of 3 jobs is not known" in note for note in answer["notes"])
