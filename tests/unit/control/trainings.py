"""Training jobs in a few words: `a_training("name", run_s=60)`."""

from __future__ import annotations

from typing import Any

from tests.builders import ADMIN
from windfall.capacity.environments import ComputeEnvironment, Provisioning
from windfall.control.events import SubmitTraining
from windfall.jobs.definitions import ContainerSpec
from windfall.jobs.ids import EnvironmentName, JobId
from windfall.jobs.job import TimeLimits
from windfall.jobs.resources import Resources
from windfall.jobs.staging import Checkpoints, Staging

SPOT = ComputeEnvironment(EnvironmentName("training-spot"), Provisioning.SPOT, 0, 64)


def a_training(
    name: str, *, gpus: int = 0, attempts: int = 1, environment: ComputeEnvironment = SPOT, **more: Any
) -> SubmitTraining:
    """A training job that asks one vCPU and 1,024 MiB; limits by their names."""
    limits = {key: more.pop(key) for key in ("run_s", "wait_s", "pending_s") if key in more}
    container = ContainerSpec(
        "image", Resources(1, 1024, gpus), ("train",), log_group="/aws/sagemaker/TrainingJobs"
    )
    more.setdefault("submitter", ADMIN)
    return SubmitTraining(
        JobId(f"training-{name}"),
        name,
        environment,
        container,
        Staging(Checkpoints(f"s3://bucket/{name}", publish=True)),
        TimeLimits(**limits),
        attempts,
        **more,
    )
