"""Which devices a wish admits, how it is said, and what a part of a GPU counts for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_definition
from windfall.jobs.attempts import Attempt, StopCause
from windfall.jobs.diagnosis import Diagnosis, FailureCause
from windfall.jobs.gpus import GpuWish, gib, held_part
from windfall.jobs.ids import AttemptToken, EnvironmentName, InstanceId, JobId, QueueName, TaskId
from windfall.jobs.job import Job, Submission
from windfall.jobs.resources import Resources
from windfall.jobs.retry import RetryStrategy
from windfall.jobs.states import RUNNABLE

H100 = ("NVIDIA H100 80GB HBM3", 81_559)
SLICE = ("NVIDIA H200 MIG 1g.18gb", 16_384)


@pytest.mark.parametrize(
    ("wish", "device", "admitted"),
    [
        (GpuWish(), H100, True),
        (GpuWish(model="h100"), H100, True),
        (GpuWish(model="H200"), H100, False),
        (GpuWish(model="*1g.*"), SLICE, True),
        (GpuWish(model="H100*HBM3"), H100, False),  # a pattern is for the whole name
        (GpuWish(model="*H100*HBM3"), H100, True),
        (GpuWish(memory_mib=81_559), H100, True),
        (GpuWish(memory_mib=81_560), H100, False),
        (GpuWish(model="h100", memory_mib=1), (None, None), False),
        (GpuWish(memory_mib=1), ("Simulated GPU", None), False),
    ],
)
def test_what_is_not_known_does_not_fit(wish, device, admitted):
    assert wish.admits(*device) is admitted


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (GpuWish(share=0.5), ""),
        (GpuWish(model="H100"), " of model H100"),
        (GpuWish("H100", 40 * 1024), " of model H100 with at least 40 GiB"),
        (GpuWish(memory_mib=24_565), " with at least 24,565 MiB"),
    ],
)
def test_a_wish_in_words(wish, words):
    assert wish.words() == words


def test_memory_as_people_say_it():
    assert (gib(24 * 1024), gib(143_771)) == ("24 GiB", "140.4 GiB")


@given(st.lists(st.floats(0.01, 1, exclude_max=True), min_size=1, max_size=100))
def test_shares_that_add_up_to_one_device_fit_on_it_exactly(shares):
    while sum(shares) > 1:
        shares.pop()
    parts = [held_part(share) for share in shares]
    assert sum(parts) <= 1
    left = 1.0
    for part in parts:
        left -= part
    for part in reversed(parts):
        left += part
    assert left == 1.0


# A job's own: its part, what it needs now, what it may try again -------------------------------------------------


def a_job(wish: GpuWish | None = None, *, larger: bool = True) -> Job:
    submission = Submission(
        "name",
        QueueName("q"),
        a_definition().key,
        Resources(1, 1024, 1),
        RetryStrategy(2),
        gpu_wish=wish,
        larger_gpu_on_oom=larger,
    )
    return Job(JobId("job"), submission, RUNNABLE, 0)


def an_attempt(cause: FailureCause | None, *gpu_ids: str, **changes: object) -> Attempt:
    attempt = Attempt(
        1, AttemptToken("job#1"), TaskId("t"), EnvironmentName("e"), InstanceId("i"), gpu_ids, "log", 0
    )
    attempt.stopped_at, attempt.exit_code = 1, 1
    attempt.diagnosis = None if cause is None else Diagnosis(cause, "CUDA out of memory")
    for name, value in changes.items():
        setattr(attempt, name, value)
    return attempt


def test_a_share_is_held_and_the_wire_is_told_one_gpu():
    job = a_job(GpuWish(share=0.1))
    assert (job.share, job.needs.gpus, job.submission.resources.gpus) == (0.1, 102 / 1024, 1)
    job.gpu_share = 0.2
    assert (job.share, job.needs.gpus, job.wish) == (0.2, 204 / 1024, GpuWish(share=0.2))
    job.gpu_share = 1.0
    assert (job.share, job.needs.gpus, job.wish) == (None, 1, None)


def test_what_was_too_small_is_asked_for_no_more():
    job = a_job(GpuWish("A100", 10 * 1024))
    job.gpu_memory_floor_mib = 40_961
    assert job.wish == GpuWish("A100", 40_961)
    plain = a_job()
    assert plain.wish is None
    plain.gpu_memory_floor_mib = 7
    assert plain.wish == GpuWish(memory_mib=7)


@pytest.mark.parametrize(
    ("attempt", "larger", "outgrew"),
    [
        (an_attempt(FailureCause.GPU_MEMORY, "g0"), True, True),
        (an_attempt(FailureCause.GPU_MEMORY, "g0"), False, False),
        (an_attempt(FailureCause.HOST_MEMORY, "g0"), True, False),
        (an_attempt(None, "g0"), True, False),
        (an_attempt(FailureCause.GPU_MEMORY), True, False),
        (an_attempt(FailureCause.GPU_MEMORY, "g0", exit_code=0), True, False),
        (an_attempt(FailureCause.GPU_MEMORY, "g0", stop_cause=StopCause.TERMINATED), True, False),
    ],
)
def test_only_a_failure_for_want_of_gpu_memory_is_free_and_only_by_wish(attempt, larger, outgrew):
    job = a_job(larger=larger)
    job.attempts = [attempt]
    assert job.outgrew(attempt) is outgrew
    assert job.charged_attempts == (0 if outgrew else 1)
