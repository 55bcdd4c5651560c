"""The tick invoker and the training creator: submit what schedules and service jobs are for, as any client would.

Both use the handlers that serve the wire, with an explicit `on_behalf_of`: the caller whose rights they have, and the
tick or service job that the core gets together with the submission. So both begin or neither, and an instruction may be
carried out twice. Decides which errors are worth a retry. Must not know when a schedule is due, how often a target is
tried, nor which service job is next.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from windfall.aws_api.batch.service import batch_service
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Key
from windfall.aws_api.protocol.serialization import encode_json
from windfall.aws_api.protocol.service import Caller, ModelledService, OnBehalfOf
from windfall.aws_api.sagemaker.context import TrainingSettings
from windfall.aws_api.sagemaker.rejections import RESOURCE_IN_USE
from windfall.aws_api.sagemaker.service import training_service
from windfall.aws_api.scheduler.arns import schedule_arn
from windfall.control.commands.calendar import TargetFailed
from windfall.control.commands.service_jobs import TrainingRefused
from windfall.control.instructions import CreateTraining, InvokeTarget
from windfall.control.origins import ServiceJobOrigin, TickOrigin
from windfall.control.ports import AttemptFiles, CorePort
from windfall.daemon.errors import BadTarget
from windfall.daemon.target_requests import TargetRequest, request_of, run_id
from windfall.jobs.ids import JobId
from windfall.jobs.submitters import Submitter
from windfall.jobs.tenants import given_schedule
from windfall.store.errors import Superseded

log = logging.getLogger(__name__)

#: How many targets are invoked, and training jobs created, at once; the others wait.
TARGETS_AT_ONCE, TRAININGS_AT_ONCE = 64, 16
#: A target that has not answered within this time is tried again.
ANSWER_S = 60.0
#: Seconds until the creation of a training job is tried again after an internal error.
AGAIN_S = 5.0
#: Transient errors whose status is a client error nevertheless.
PASSING = frozenset({"ResourceLimitExceeded", "ThrottlingException", "TooManyRequestsException"})


@dataclass(frozen=True)
class OwnCalls:
    """The services that this daemon itself calls; each is made at its first use, because many daemons need none."""

    gate: CorePort
    account_id: str
    clock_ms: Callable[[], int]
    files: AttemptFiles
    training: TrainingSettings
    #: Awaited before anything is submitted: the size limit of a training job depends on this host.
    host_known: Callable[[], Awaitable[Any]]

    @cached_property
    def batch(self) -> ModelledService:
        """AWS Batch."""
        return batch_service(self.gate, self.account_id, lambda: str(uuid.uuid4()), self.clock_ms)

    @cached_property
    def sagemaker(self) -> ModelledService:
        """SageMaker training."""
        return training_service(self.gate, self.account_id, self.clock_ms, self.files, self.training)


class _Tasks:
    """Carries instructions out side by side, until it lets go."""

    def __init__(self, services: OwnCalls, at_once: int) -> None:
        self._services = services
        self._gate = services.gate
        self._slots = asyncio.Semaphore(at_once)
        self._tasks: set[asyncio.Task[None]] = set()

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def let_go(self) -> None:
        """Stop: the next leader does what is missing."""
        for task in self._tasks:
            task.cancel()


class TickInvoker(_Tasks):
    """Carries out InvokeTarget."""

    def __init__(self, services: OwnCalls, region: str, find_key: Callable[[str], Key | None]) -> None:
        """`find_key` returns a valid key by its id."""
        super().__init__(services, TARGETS_AT_ONCE)
        self._region = region
        self._find_key = find_key

    def carry_out(self, instruction: InvokeTarget) -> None:
        """Start invoking a target; the core is told if it fails."""
        self._begin(self._invoke(instruction), "invoke")

    async def _invoke(self, instruction: InvokeTarget) -> None:
        async with self._slots:
            # The next leader invokes it again.
            with contextlib.suppress(Superseded):
                await self._services.host_known()
                failed = await self._outcome(instruction)
                if failed is not None:
                    await self._gate.execute(failed)

    async def _outcome(self, instruction: InvokeTarget) -> TargetFailed | None:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._ask(instruction)
        except TimeoutError:
            return _failure(instruction, f"no answer within {ANSWER_S:g} s", again=True)
        except Superseded:
            raise
        except Exception as error:  # the edge of this task: every failure must be recorded for the tick
            log.exception("schedule %s could not be invoked", instruction.schedule.key)
            return _failure(instruction, f"internal error of Windfall: {error!r}", again=True)

    async def _ask(self, instruction: InvokeTarget) -> TargetFailed | None:
        """What went wrong; None when a run has begun."""
        account_id, schedule = self._services.account_id, instruction.schedule
        arn = schedule_arn(self._region, account_id, given_schedule(schedule.key))
        try:
            request = request_of(schedule, instruction.due_at, instruction.attempt, arn)
            execution = JobId(run_id(schedule, instruction.due_at))
            on_behalf_of = OnBehalfOf(
                self._caller(schedule.submitter), TickOrigin(schedule.key, instruction.due_at, execution)
            )
            try:
                await self._perform(request, on_behalf_of, execution)
            except ApiError as error:
                if error.code != RESOURCE_IN_USE:
                    raise
                # A training job's name can never be used again, and a schedule has one name for all its runs.
                await self._perform(request.renamed(instruction.due_at), on_behalf_of, execution)
        except BadTarget as error:
            return _failure(instruction, str(error), again=False)
        except ApiError as error:
            again = error.status >= 500 or error.code in PASSING
            return _failure(instruction, f"{error.code}: {error.message}", again=again)
        return None

    async def _perform(self, request: TargetRequest, on_behalf_of: OnBehalfOf, execution: JobId) -> None:
        service = self._services.batch if request.service == "batch" else self._services.sagemaker
        body = encode_json(request.params)
        await service.perform(request.operation, body, on_behalf_of, self._region, execution)

    def _caller(self, submitter: Submitter) -> Caller:
        """The key that made the schedule, as it is now: a revoked key starts nothing."""
        key = self._find_key(submitter.key_id) if submitter.key_id else None
        if key is None and submitter.key_id:
            raise BadTarget(
                f"the key {submitter.key_id} that made this schedule is revoked; delete the schedule and"
                " create it again with a valid key"
            )
        return Caller.of_submitter(submitter) if key is None else Caller.of(key)


class TrainingCreator(_Tasks):
    """Carries out CreateTraining."""

    def __init__(self, services: OwnCalls, again_s: float = AGAIN_S) -> None:
        super().__init__(services, TRAININGS_AT_ONCE)
        self._again_s = again_s

    def carry_out(self, instruction: CreateTraining) -> None:
        """Start creating a training job; the core is told if its payload is refused."""
        self._begin(self._create(instruction), "create training job")

    async def _create(self, instruction: CreateTraining) -> None:
        await self._services.host_known()
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
        on_behalf_of = OnBehalfOf(
            Caller.of_submitter(instruction.submitter), ServiceJobOrigin(instruction.job_id)
        )
        body, region = encode_json(request), instruction.region
        try:
            await self._services.sagemaker.perform(
                "CreateTrainingJob", body, on_behalf_of, region, instruction.job_id
            )
        except ApiError as error:
            if error.status >= 500:
                raise
            # If it was created before, it is the attempt already, and the core ignores this refusal.
            return f"{error.code}: {error.message}"
        return None


def _failure(instruction: InvokeTarget, error: str, *, again: bool) -> TargetFailed:
    return TargetFailed(instruction.schedule.key, instruction.due_at, error, again)
