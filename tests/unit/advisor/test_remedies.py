"""What to do about a failure, with the job's own numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_busy_world, a_job
from windfall.advisor.remedies import remedies
from windfall.jobs.diagnosis import Diagnosis, FailureCause
from windfall.jobs.gpus import GpuWish
from windfall.jobs.job import Job
from windfall.jobs.resources import Resources


def a_failed_job() -> Job:
    world = a_busy_world()
    world.submits(a_job("a"))
    return world.store.jobs["a"]


def told(cause: FailureCause, job: Job | None = None, evidence: str = "", **more: int) -> str:
    return "\n".join(remedies(Diagnosis(cause, evidence), job or a_failed_job(), **more))


@pytest.mark.parametrize("cause", FailureCause)
def test_every_cause_has_something_to_do(cause):
    assert told(cause)


def test_gpu_memory_is_never_mended_with_shared_memory():
    text = told(FailureCause.GPU_MEMORY)
    assert "windfall:on-gpu-oom=larger" in text
    assert "sharedMemorySize does not help" in text
    assert "sharedMemorySize to 2,048" in told(FailureCause.SHARED_MEMORY)


def test_numbers_are_the_jobs_own():
    job = a_failed_job()
    asked = job.submission.resources.memory_mib
    assert f"MEMORY to {asked * 2:,} MiB or more (it has {asked:,} MiB)" in told(
        FailureCause.HOST_MEMORY, job
    )
    assert "to 16,384 MiB or more; it has 8,192 MiB" in told(
        FailureCause.SHARED_MEMORY, shared_memory_mib=8192
    )
    job.submission = replace(job.submission, timeout_s=90)
    assert "(90 s now)" in told(FailureCause.KILLED_BY_TIME, job)


def test_what_the_job_has_asked_for_already_is_not_advised_again():
    job = a_failed_job()
    job.submission = replace(job.submission, gpu_wish=GpuWish(share=0.25))
    assert "more than 0.25 of a GPU" in told(FailureCause.GPU_MEMORY, job)
    job.gpu_memory_floor_mib = 24_577
    wish = GpuWish(share=0.25, model="A10G")
    job.submission = replace(job.submission, larger_gpu_on_oom=True, gpu_wish=wish)
    text = told(FailureCause.GPU_MEMORY, job)
    assert "there is none with more memory than 24,576 MiB" in text
    assert "of a GPU:" not in text
    assert "leave out windfall:gpu-model=A10G" in text


def test_who_has_a_gpu_is_not_told_to_ask_for_one():
    job = a_failed_job()
    job.submission = replace(job.submission, resources=Resources(1, 64))
    assert "set resourceRequirements GPU to 1" in told(FailureCause.GPU_NOT_VISIBLE, job)
    job.submission = replace(job.submission, resources=Resources(1, 64, 1))
    assert "set resourceRequirements GPU to 1" not in told(FailureCause.GPU_NOT_VISIBLE, job)
    assert "in name only" in told(FailureCause.GPU_NOT_VISIBLE, job)


def test_a_limit_of_its_own_is_not_the_attempts():
    text = told(FailureCause.KILLED_BY_TIME, evidence="exit code 124: `timeout` ended it")
    assert "attemptDurationSeconds" not in text


def test_a_missing_module_is_named():
    text = told(FailureCause.MISSING_MODULE, evidence="ModuleNotFoundError: No module named 'yaml'")
    assert text.startswith("the module yaml is not there")
    assert "does not see your shell's virtual environment" in text
    job = a_failed_job()
    job.submission = replace(job.submission, directory="/home/me/project")
    assert "install it into the environment that the job runs with" in told(FailureCause.MISSING_MODULE, job)


def test_a_script_that_is_not_there_is_sent_along_or_run_where_it_is():
    assert "windfall run --git URL@REV" in told(FailureCause.MISSING_SCRIPT)
    assert "leave --clean out" in told(FailureCause.MISSING_SCRIPT)
