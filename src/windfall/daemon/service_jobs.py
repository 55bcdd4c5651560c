"""The training creator: creates the training jobs of service jobs, as any client would, and reports failures.

A payload goes through the same handler that serves CreateTrainingJob on the wire, except that the command names the
service job, and the core accepts it only if that service job still waits for it. So an instruction may be carried out
twice. Must not know which job is next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import msgspec

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.serialization import encode_json
from windfall.aws_api.protocol.service import Caller, ModelledService
from windfall.aws_api.sagemaker.context import TrainingSettings
from windfall.aws_api.sagemaker.service import training_service
from windfall.control.commands.service_jobs import TrainingRefused
from windfall.control.events import Command, SubmitTraining
from windfall.control.instructions import CreateTraining
from windfall.control.ports import AttemptFiles, CorePort
from windfall.daemon.invoking import TickGate
from windfall.jobs.ids import JobId

log = logging.getLogger(__name__)

#: How many are created at once; the others wait.
AT_ONCE = 16
#: Seconds until the creation is tried again after an internal error.
AGAIN_S = 5.0

_service_job: ContextVar[JobId] = ContextVar("service_job")


class AttemptGate(TickGate):
    """A gate for one service job: its training jobs carry its id."""

    async def execute(self, command: Command, tenant: str | None = None) -> Any:
        """Execute a command; a training job goes with its service job."""
        if isinstance(command, SubmitTraining):
            command = replace(command, service_job=_service_job.get())
        return await self._gate.execute(command, tenant)


class TrainingCreator:
    """Carries out CreateTraining."""

    def __init__(
        self,
        gate: CorePort,
        account_id: str,
        clock_ms: Callable[[], int],
        files: AttemptFiles,
        training: TrainingSettings,
        host_known: Callable[[], Awaitable[Any]],
        again_s: float = AGAIN_S,
    ) -> None:
        """`host_known` is awaited before anything is created: the size limit of a job depends on this host."""
        self._gate = gate
        self._account_id = account_id
        self._clock_ms = clock_ms
        self._files = files
        self._training = training
        self._host_known = host_known
        self._again_s = again_s
        self._service: ModelledService | None = None
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def carry_out(self, instruction: CreateTraining) -> None:
        """Start creating a training job; the core is told if its payload is refused."""
        task = asyncio.get_running_loop().create_task(self._create(instruction), name="create training job")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def let_go(self) -> None:
        """Stop creating: the next leader creates what is missing."""
        for task in self._tasks:
            task.cancel()

    async def _create(self, instruction: CreateTraining) -> None:
        _service_job.set(instruction.job_id)
        await self._host_known()
        while True:
            try:
                async with self._slots:
                    refused = await self._refusal(instruction)
                if refused is not None:
                    await self._gate.execute(
                        TrainingRefused(instruction.job_id, instruction.training_job, refused)
                    )
                return
            except Exception:  # the edge of this task: the service job waits for it, so it is tried again
                log.exception(
                    "%s could not be created; trying again in %g s", instruction.training_job, self._again_s
                )
                await asyncio.sleep(self._again_s)

    async def _refusal(self, instruction: CreateTraining) -> str | None:
        """Why there can be no such training job; None when there is one."""
        try:
            request = msgspec.json.decode(instruction.payload)
        except (msgspec.DecodeError, RecursionError) as error:
            return f"ValidationException: serviceRequestPayload is not valid JSON: {error}"
        if not isinstance(request, dict):
            return "ValidationException: serviceRequestPayload is not a JSON object"
        request["TrainingJobName"] = instruction.training_job
        caller = Caller.on_behalf_of(instruction.submitter)
        try:
            await self._sagemaker().perform(
                "CreateTrainingJob", encode_json(request), caller, instruction.region, instruction.job_id
            )
        except ApiError as error:
            if error.status >= 500:
                raise
            # If it was created before, it is the attempt already, and the core ignores this refusal.
            return f"{error.code}: {error.message}"
        return None

    def _sagemaker(self) -> ModelledService:
        """Made at its first use: many daemons have no service job."""
        if self._service is None:
            own = AttemptGate(self._gate)
            self._service = training_service(
                own, self._account_id, self._clock_ms, self._files, self._training
            )
        return self._service
