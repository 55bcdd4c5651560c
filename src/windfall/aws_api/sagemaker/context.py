"""What every operation of the service works with: the gate to the core, the clock, the logs and the settings.

Turns the core's refusals into SageMaker's errors. Must not know any operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from windfall.aws_api.protocol.errors import AccessDeniedError
from windfall.aws_api.protocol.service import Call
from windfall.aws_api.sagemaker import names
from windfall.aws_api.sagemaker.metrics import FinalMetrics
from windfall.aws_api.sagemaker.rejections import in_use, invalid, not_found
from windfall.aws_api.tenants.gate import TenantGate
from windfall.control.events import Command
from windfall.control.ports import CorePort, Store
from windfall.hosting.endpoint import HostedConfig, HostedEndpoint, HostedModel
from windfall.jobs.errors import Conflict, Rejected
from windfall.jobs.job import Job
from windfall.jobs.resources import Resources
from windfall.jobs.storage import StorageLayout
from windfall.jobs.submitters import DEFAULT_TENANT
from windfall.jobs.tenants import View

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """What the daemon says about training jobs."""

    #: Serves the environments of training jobs; None is the daemon's default.
    engine: str | None = None
    #: Runs the scripts of script mode.
    python: str = "python3"
    #: Where each tenant's buckets lie when there is no S3 server.
    storage: StorageLayout = field(default_factory=StorageLayout)
    #: The machines that jobs run on; none while they are unknown, and on engines with instances of their own.
    machines: Callable[[], Sequence[Resources]] = tuple
    #: What spot costs of the price on demand, where no price is known.
    spot_factor: float = 0.3


@dataclass(slots=True)
class TrainingContext:
    """What the operations of the service share."""

    gate: CorePort
    account_id: str
    clock_ms: Callable[[], int]
    settings: TrainingSettings
    metrics: FinalMetrics
    #: Held from looking at a name or a document to changing it.
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: What the caller sees, whose names are meant.
    view: View = field(default=View(DEFAULT_TENANT, sees_all=True))

    def seen_by(self, view: View) -> TrainingContext:
        """The context of one caller: resources of other tenants do not exist."""
        return replace(self, gate=TenantGate(self.gate, view), view=view)

    def arn(self, call: Call, name: str) -> str:
        """The ARN of a training job in the region that the caller addressed."""
        return names.training_arn(call.region, self.account_id, name)

    async def execute(self, command: Command) -> Any:
        """Have the core execute it; its refusal becomes a ValidationException, or ResourceInUse for a conflict."""
        try:
            return await self.gate.execute(command)
        except Conflict as refusal:
            raise in_use(str(refusal)) from refusal
        except Rejected as refusal:
            raise invalid(str(refusal)) from refusal

    async def read(self, question: Callable[[Store], Answer]) -> Answer:
        """Ask the store."""
        answer: Answer = await self.gate.read(question)
        return answer

    async def find(self, name: str) -> Job | None:
        """The training job of this name, if there is one."""
        jobs = await self.read(lambda store: store.jobs(names.job_ids(self.view, name)))
        return jobs[0] if jobs else None

    async def require(self, name: str) -> Job:
        """The training job of this name."""
        job = await self.find(name)
        if job is None:
            raise not_found()
        return job


def check_may_steer(job: Job, call: Call) -> None:
    """Refuse a key that may not decide what runs with the rights of a job, which may be run again as it is kept."""
    if not call.caller.submitter.may_steer(job.submission.submitter):
        raise AccessDeniedError(
            f"This decides how the training job {job.submission.name} is run again, and it has other rights than jobs"
            f" of the key {call.caller.access_key_id}: use a key like the one that created it, or an admin key."
        )


def check_may_steer_hosted(hosted: HostedModel | HostedConfig | HostedEndpoint, call: Call) -> None:
    """As `check_may_steer`, for what the replicas of an endpoint run."""
    if not call.caller.submitter.may_steer(hosted.submitter):
        raise AccessDeniedError(
            f"This decides what {hosted.name} runs, and it has other rights than jobs of the key"
            f" {call.caller.access_key_id}: use a key like the one that created it, or an admin key."
        )
