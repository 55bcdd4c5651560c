"""Why a job waits, in AWS's words where AWS has some, and what would let it start."""

from __future__ import annotations

import pytest

from tests.unit.scheduling.builders import MINUTE, NOW, a_cluster, a_snapshot, an_offer
from windfall.capacity.environments import TRAINING_ON_DEMAND, Provisioning
from windfall.capacity.machines import InstanceState
from windfall.scheduling.counterfactuals import (
    AskLess,
    EnableEnvironment,
    RaiseMaxVcpus,
    SetTimeout,
    UseEnvironment,
)
from windfall.scheduling.dispatch_order import jobs_ahead
from windfall.scheduling.explain import explain
from windfall.scheduling.reasons import (
    HeldBack,
    HigherPriority,
    JobsAhead,
    NextCapacity,
    PlaceReserved,
    RoomTaken,
)
from windfall.scheduling.wording import Resource

LONG = 2 * MINUTE
#: NOW, as it is written for people.
NOW_TEXT = "1970-01-12 13:46:40 UTC"


def why(cluster, job="a"):
    snapshot, asked = cluster.snapshot(), cluster.job(job)
    view = next(view for view in snapshot.queues if view.queue.name == asked.queue)
    return explain(snapshot, asked.queue, asked.shape, asked.waiting, jobs_ahead(view, asked.waiting))


def texts(cluster, job="a"):
    return [reason.text() for reason in why(cluster, job).reasons]


def codes(cluster, job="a"):
    return [reason.code for reason in why(cluster, job).reasons]


def advice(cluster, job="a"):
    return [each.text() for each in why(cluster, job).counterfactuals]


def test_a_job_that_fits_is_about_to_start():
    explanation = why(a_cluster().with_waiting("a"))
    assert [reason.code for reason in explanation.reasons] == ["STARTS_NEXT"]
    assert (explanation.counterfactuals, explanation.expected_at, explanation.aws_reason) == ((), None, None)


# ---------------------------------------------------------------------------------------------- asks too much


def test_more_gpus_than_the_largest_instance_has():
    cluster = a_snapshot().with_environment("gpu-compute-env").with_queue("queue", "gpu-compute-env")
    cluster = cluster.with_instance("i1", "gpu-compute-env", gpus=2).with_waiting("a", gpus=4)
    assert texts(cluster) == [
        "asks for 4 GPUs, and the largest instance of gpu-compute-env has 2: it can never run there"
    ]
    assert why(cluster).aws_reason == (
        "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - The job resource requirement (vCPU/memory/GPU) is "
        "higher than that can be met by the CE(s) attached to the job queue."
    )


@pytest.mark.parametrize(
    ("need", "text"),
    [
        ({"vcpus": 9}, "asks for 9 vCPUs, and the largest instance of env has 8: it can never run there"),
        (
            {"memory_mib": 20_000},
            "asks for 20,000 MiB of memory, and the largest instance of env has 16,000: it can never run there",
        ),
        (
            {"gpus": 1, "vcpus": 99},
            "asks for 1 GPU, and the largest instance of env has 0: it can never run there",
        ),
    ],
)
def test_more_than_the_largest_instance_has(need, text):
    assert texts(a_cluster().with_waiting("a", **need)) == [text]


def test_offers_count_as_instances_that_could_be():
    cluster = a_cluster().with_environment("env", offers=(an_offer(vcpus=64),)).with_waiting("a", 65)
    assert texts(cluster) == [
        "asks for 65 vCPUs, and the largest instance of env has 64: it can never run there"
    ]


def test_a_machine_smaller_than_the_claim_bounds_it():
    cluster = (
        a_snapshot().with_environment().with_machine("host", vcpus=2).with_instance("i1", machine="host")
    )
    assert texts(cluster.with_waiting("a", 4)) == [
        "asks for 4 vCPUs, and the largest instance of env has 2: it can never run there"
    ]


def test_enough_of_everything_but_not_on_one_instance():
    cluster = a_cluster(vcpus=64).with_instance("i2", vcpus=8, gpus=4).with_waiting("a", 32, gpus=4)
    assert texts(cluster) == [
        "no single instance of env has 4 GPUs, 32 vCPUs and 1,000 MiB of memory together"
    ]


def test_every_environment_says_why_it_does_not_take_it():
    cluster = (
        a_cluster().with_environment("two").with_instance("i2", "two", vcpus=4).with_queue("q", "env", "two")
    )
    assert texts(cluster.with_waiting("a", 9, queue="q")) == [
        "asks for 9 vCPUs, and the largest instance of env has 8: it can never run there",
        "asks for 9 vCPUs, and the largest instance of two has 4: it can never run there",
    ]


def test_an_instance_that_is_going_away_does_not_count():
    cluster = a_snapshot().with_environment().with_instance("i1", state=InstanceState.TERMINATING)
    assert codes(cluster.with_waiting("a")) == ["NOTHING_OFFERED"]


def test_an_environment_without_anything():
    cluster = a_snapshot().with_environment().with_waiting("a")
    assert texts(cluster) == ["compute environment env has no instance, and its engine offers none"]


def test_max_vcpus_too_small_for_any_instance_that_takes_it():
    cluster = a_snapshot().with_environment(offers=(an_offer(vcpus=8),), max_vcpus=4).with_waiting("a", 2)
    assert texts(cluster) == [
        "an instance that takes it has 8 vCPUs, compute environment env may have 4 (maxvCpus)"
    ]
    assert why(cluster).aws_reason == (
        "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE - CE(s) associated with the job queue cannot meet "
        "the CPU requirement of the job."
    )
    assert why(cluster).counterfactuals == (RaiseMaxVcpus("env", 8),)


def test_a_gpu_job_on_fargate_is_told_where_to_go():
    cluster = (
        a_snapshot()
        .with_environment("fargate", kind=Provisioning.FARGATE)
        .with_environment("gpus", offers=(an_offer(gpus=4),))
        .with_environment("small", offers=(an_offer(gpus=1),))
        .with_queue("queue", "fargate")
        .with_waiting("a", gpus=2)
    )
    assert texts(cluster) == ["asks for 2 GPUs, Fargate environment fargate has none; gpus would take it"]
    assert why(cluster).aws_reason.startswith("MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT")


def test_a_gpu_job_on_fargate_with_nowhere_to_go():
    cluster = a_snapshot().with_environment(kind=Provisioning.FARGATE_SPOT).with_waiting("a", gpus=1)
    assert texts(cluster) == ["asks for 1 GPU, Fargate environment env has none"]


# --------------------------------------------------------------------------------------------------- switches


def test_no_environment_is_enabled():
    cluster = a_snapshot().with_environment(enabled=False).with_instance("i1").with_waiting("a")
    assert codes(cluster) == ["NO_ENVIRONMENT_ENABLED", "ENVIRONMENT_DISABLED"]
    assert why(cluster).aws_reason == "ACTION_REQUIRED - CE(s) associated with the job queue are invalid."
    assert why(cluster).counterfactuals == (EnableEnvironment("env"),)


def test_an_environment_that_does_not_exist():
    cluster = a_snapshot().with_queue("queue", "gone").with_waiting("a")
    assert codes(cluster) == ["NO_ENVIRONMENT_ENABLED", "ENVIRONMENT_UNKNOWN"]
    assert texts(cluster)[1] == "compute environment gone does not exist"


def test_a_disabled_environment_beside_a_full_one_is_mentioned_last():
    cluster = (
        a_cluster().with_running("i1", 8).with_environment("off", enabled=False).with_queue("q", "off", "env")
    )
    assert codes(cluster.with_waiting("a", queue="q")) == ["ROOM_TAKEN", "ENVIRONMENT_DISABLED"]


def test_a_disabled_queue_is_mentioned_but_is_not_the_reason():
    cluster = a_snapshot().with_environment().with_instance("i1").with_queue("queue", "env", enabled=False)
    assert codes(cluster.with_waiting("a")) == ["STARTS_NEXT"]
    assert codes(cluster.with_running("i1", 8).with_waiting("a")) == ["ROOM_TAKEN", "QUEUE_DISABLED"]


# ---------------------------------------------------------------------------------------------- room is taken


def test_how_much_is_free_and_how_many_run():
    cluster = (
        a_cluster(gpus=4).with_running("i1", gpus=1).with_running("i1", gpus=2).with_waiting("a", gpus=2)
    )
    assert texts(cluster) == ["needs 2 GPUs, 1 of 4 is free on i1 of env, where 2 jobs run"]


def test_the_instance_that_comes_closest_is_named():
    cluster = a_cluster().with_running("i1", 7).with_instance("i2").with_running("i2", 5).with_waiting("a", 4)
    assert why(cluster).reasons == (RoomTaken("env", "i2", Resource.VCPUS, 4, 3, 8, 1),)


def test_attempts_of_other_environments_on_the_machine_count():
    cluster = (
        a_snapshot()
        .with_environment()
        .with_environment("other")
        .with_machine("host")
        .with_instance("i1", "env", machine="host")
        .with_instance("i2", "other", machine="host")
        .with_running("i2", 8)
    )
    assert texts(cluster.with_waiting("a")) == [
        "needs 1 vCPU, 0 of 8 are free on i1 of env, where 1 job runs"
    ]


def test_the_next_capacity_is_expected_when_enough_has_ended():
    cluster = a_cluster().with_running("i1", 4, ends_in_s=60).with_running("i1", 4, ends_in_s=30)
    explanation = why(cluster.with_waiting("a", 8))
    assert explanation.expected_at == NOW + 60_000
    assert explanation.reasons[-1] == NextCapacity(NOW + 60_000)
    assert explanation.reasons[-1].text() == "next capacity expected at 1970-01-12 13:47:40 UTC at the latest"


def test_nothing_is_promised_when_running_jobs_have_no_limit():
    assert why(a_cluster().with_running("i1", 8).with_waiting("a")).expected_at is None


# ----------------------------------------------------------------------------------------------- who is first


def test_jobs_ahead_in_the_queue():
    cluster = a_cluster(vcpus=1).with_waiting("x").with_waiting("y", count=2).with_waiting("a")
    assert why(cluster).reasons[-1] == JobsAhead("queue", 3)
    assert texts(cluster)[-1] == "3 jobs ahead in queue queue"


def test_a_place_taken_in_this_round_by_a_job_ahead_is_not_free():
    cluster = a_cluster(vcpus=1).with_waiting("first").with_waiting("a")
    assert codes(cluster, "first") == ["STARTS_NEXT"]
    assert codes(cluster) == ["ROOM_TAKEN", "JOBS_AHEAD"]


def test_a_more_urgent_queue_that_shares_an_environment():
    cluster = a_cluster(vcpus=1).with_environment("far").with_queue("urgent", "env", priority=9)
    cluster = cluster.with_queue("elsewhere", "far", priority=9).with_queue("idle", "env", priority=9)
    cluster = (
        cluster.with_waiting("a").with_waiting("x", queue="elsewhere").with_waiting("y", 1, queue="urgent")
    )
    assert why(cluster).reasons[-1] == HigherPriority("urgent", 9, 1)
    assert texts(cluster)[-1] == "1 job of queue urgent (priority 9) goes first"


def test_a_less_urgent_queue_is_no_reason():
    cluster = a_cluster(vcpus=1).with_running("i1").with_queue("lazy", "env", priority=0)
    assert codes(cluster.with_waiting("x", queue="lazy").with_waiting("a")) == ["ROOM_TAKEN"]


# ----------------------------------------------------------------------------------------------- reservations


def test_a_place_is_reserved_for_it():
    cluster = a_cluster().with_running("i1", 6, ends_in_s=60).with_waiting("a", 4, waited_ms=MINUTE + 1_000)
    explanation = why(cluster)
    assert explanation.reasons[0] == PlaceReserved("i1", NOW - 1_000, NOW + 60_000)
    assert explanation.reasons[0].text() == (
        "a place on i1 is reserved for it since 1970-01-12 13:46:39 UTC, expected at 1970-01-12 13:47:40 UTC "
        "at the latest"
    )
    assert explanation.expected_at == NOW + 60_000


def test_a_place_is_reserved_for_it_without_a_known_time():
    cluster = a_cluster().with_running("i1", 6).with_waiting("a", 4, waited_ms=MINUTE + 1)
    assert "free when running jobs without a time limit end" in texts(cluster)[0]


def test_held_back_by_the_reservation_of_another():
    cluster = a_cluster().with_running("i1", 6, ends_in_s=600)
    cluster = cluster.with_waiting("big", 8, waited_ms=LONG).with_waiting("a", 2)
    assert why(cluster).reasons[0] == HeldBack("big", "i1", NOW + 600_000)
    assert texts(cluster)[0].startswith(
        "the free room on i1 is reserved for job big, which is expected to start at "
    )
    assert SetTimeout(599) in why(cluster).counterfactuals


def test_held_back_without_a_known_time():
    cluster = a_cluster().with_running("i1", 6).with_waiting("big", 8, waited_ms=LONG).with_waiting("a", 2)
    assert texts(cluster)[0] == "the free room on i1 is reserved for job big"
    assert advice(cluster) == []


def test_the_second_in_line_has_no_reservation():
    cluster = a_cluster().with_running("i1", 6)
    cluster = cluster.with_waiting("first", 4, waited_ms=LONG).with_waiting("a", 5, waited_ms=LONG)
    assert "PLACE_RESERVED" in codes(cluster, "first")
    assert "PLACE_RESERVED" not in codes(cluster)


# -------------------------------------------------------------------------------------------------- launching


def test_an_instance_is_launching():
    cluster = (
        a_snapshot().with_environment().with_instance("i1", state=InstanceState.LAUNCHING).with_waiting("a")
    )
    assert texts(cluster) == ["1 instance of env is launching"]
    assert why(cluster).aws_reason is None


def test_an_instance_can_be_launched():
    cluster = a_snapshot().with_environment(offers=(an_offer("g5.xlarge"),)).with_waiting("a")
    assert texts(cluster) == ["an instance of type g5.xlarge can be launched for it in env"]


def test_the_engine_has_no_more():
    offers = (an_offer("p4", available=0), an_offer("tiny", vcpus=0.25, available=9))
    cluster = a_snapshot().with_environment(offers=offers).with_waiting("a")
    assert texts(cluster) == ["no more instances of type p4 are available for env now"]
    assert why(cluster).aws_reason == (
        "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Service cannot fulfill the capacity requested for "
        "instance type [p4]"
    )


def test_the_engine_is_in_trouble():
    cluster = a_snapshot().with_environment(trouble="the agent does not answer").with_waiting("a")
    assert texts(cluster) == ["env cannot launch instances: the agent does not answer"]
    assert why(cluster).aws_reason.startswith("CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY")


def test_a_busy_instance_is_no_lack_of_capacity_in_awss_sense():
    cluster = a_cluster().with_running("i1", 8).with_environment("env", offers=(an_offer(available=0),))
    assert codes(cluster.with_waiting("a")) == ["ROOM_TAKEN", "NONE_AVAILABLE"]
    assert why(cluster.with_waiting("a")).aws_reason is None


def test_max_vcpus_are_reached():
    cluster = a_cluster().with_running("i1", 8).with_environment("env", offers=(an_offer(),), max_vcpus=15)
    cluster = cluster.with_waiting("a")
    assert texts(cluster)[1] == "env has 8 of at most 15 vCPUs (maxvCpus), no room for one more instance"
    assert advice(cluster) == ["would get an instance of env with maxvCpus >= 16"]


def test_a_ready_instance_on_an_unknown_machine_is_admitted_to_be_unclear():
    cluster = a_snapshot().with_environment().with_instance("i1", machine="nowhere").with_waiting("a")
    assert codes(cluster) == ["UNDETERMINED"]
    assert why(cluster).aws_reason == "UNDETERMINED - Batch job is blocked, root cause is undetermined."


# -------------------------------------------------------------------------------------------- what would help


def test_less_memory_would_do():
    cluster = a_cluster().with_running("i1", 1, 2_000).with_waiting("a", 1, 15_000)
    assert advice(cluster) == ["would start now with memory <= 14,000 MiB"]


def test_fewer_vcpus_would_do():
    cluster = a_cluster().with_running("i1", 5.5).with_waiting("a", 4)
    assert advice(cluster) == ["would start now with at most 2.5 vCPUs"]


def test_fewer_gpus_would_do():
    cluster = a_cluster(gpus=4).with_running("i1", gpus=3).with_waiting("a", gpus=2)
    assert advice(cluster) == ["would start now with at most 1 GPU"]
    assert advice(cluster.with_running("i1", gpus=1)) == ["would start now without GPUs"]


def test_nothing_is_advised_that_would_not_be_enough():
    assert advice(a_cluster().with_running("i1", 8, 16_000).with_waiting("a", 4, 4_000)) == []


def test_the_best_of_several_instances_is_advised():
    cluster = a_cluster().with_running("i1", 1, 9_000).with_instance("i2").with_running("i2", 1, 6_000)
    assert why(cluster.with_waiting("a", 1, 16_000)).counterfactuals == (AskLess(Resource.MEMORY, 10_000),)


def test_advice_respects_the_reservation_of_another():
    cluster = a_cluster().with_running("i1", 4, 8_000)
    cluster = cluster.with_waiting("big", 5, 1_000, waited_ms=LONG).with_waiting("a", 1, 1_000)
    assert codes(cluster)[0] == "HELD_BACK"
    assert advice(cluster) == []


def test_another_environment_has_room():
    cluster = a_cluster().with_running("i1", 8).with_environment("other").with_instance("i2", "other")
    assert why(cluster.with_waiting("a")).counterfactuals == (UseEnvironment("other"),)
    assert advice(cluster.with_waiting("a")) == ["would start now in compute environment other"]


def test_the_environments_of_training_jobs_are_not_advised_and_theirs_are_sent_nowhere():
    training = TRAINING_ON_DEMAND
    cluster = a_cluster().with_running("i1", 8).with_environment(training).with_instance("i2", training)
    assert advice(cluster.with_waiting("a")) == []
    cluster = cluster.with_queue(training, training).with_environment("other").with_instance("i3", "other")
    assert advice(cluster.with_waiting("a")) == ["would start now in compute environment other"]
    assert advice(cluster.with_waiting("a", 16, queue=training)) == ["would start now with at most 8 vCPUs"]


def test_a_fargate_environment_is_not_advised_for_gpus():
    cluster = a_cluster(gpus=1).with_running("i1", 8, gpus=1)
    cluster = cluster.with_environment("far", kind=Provisioning.FARGATE).with_instance("i2", "far", gpus=1)
    assert advice(cluster.with_waiting("a", gpus=1)) == []


def test_enabling_an_environment_is_advised_only_if_nobody_ahead_would_take_it():
    cluster = a_snapshot().with_environment(enabled=False).with_instance("i1", vcpus=1).with_waiting("a")
    assert advice(cluster) == ["would start now if compute environment env were enabled"]
    assert advice(cluster.with_waiting("behind"), "behind") == []


def test_the_max_vcpus_advised_cover_those_ahead():
    cluster = a_snapshot().with_environment(offers=(an_offer(vcpus=8),), max_vcpus=4)
    cluster = cluster.with_waiting("first", 8).with_waiting("a", 8)
    assert why(cluster, "first").counterfactuals == (RaiseMaxVcpus("env", 8),)
    assert RaiseMaxVcpus("env", 16) in why(cluster).counterfactuals
