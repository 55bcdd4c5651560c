"""The tick invoker: invokes the targets of schedules, as any client would, and reports the outcome.

A target is invoked through the same handlers that serve the wire, except that the job they submit goes to the core
together with its tick, so that both begin or neither. Decides which errors are worth a retry. Must not know when a
schedule is due, nor how often a target is tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from windfall.aws_api.batch.service import batch_service
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Key
from windfall.aws_api.protocol.serialization import encode_json
from windfall.aws_api.protocol.service import Caller, ModelledService
from windfall.aws_api.sagemaker.context import TrainingSettings
from windfall.aws_api.sagemaker.rejections import RESOURCE_IN_USE
from windfall.aws_api.sagemaker.service import training_service
from windfall.aws_api.scheduler.arns import schedule_arn
from windfall.control.commands.calendar import StartRun, TargetFailed
from windfall.control.events import Command, SubmitJob, SubmitTraining
from windfall.control.instructions import InvokeTarget
from windfall.control.ports import AttemptFiles, CorePort, Store
from windfall.control.queue_shares import QueueShares
from windfall.control.why import Why
from windfall.daemon.errors import BadTarget
from windfall.daemon.target_requests import TargetRequest, request_of, run_id
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.submitters import Submitter
from windfall.jobs.tenants import given_schedule
from windfall.store.errors import Superseded

log = logging.getLogger(__name__)

#: How many targets are invoked at once; the others wait.
AT_ONCE = 64
#: A target that has not answered within this time is tried again.
ANSWER_S = 60.0
#: Transient errors whose status is a client error nevertheless.
PASSING = frozenset({"ResourceLimitExceeded", "ThrottlingException", "TooManyRequestsException"})

_tick: ContextVar[InvokeTarget] = ContextVar("tick")


class TickGate:
    """A gate for one tick: a submission carries the tick whose run it is."""

    def __init__(self, gate: CorePort) -> None:
        self._gate = gate

    async def execute(self, command: Command, tenant: str | None = None) -> Any:
        """Execute a command; a submission goes with its tick."""
        if isinstance(command, SubmitJob | SubmitTraining):
            tick = _tick.get()
            return await self._gate.execute(StartRun(tick.schedule.key, tick.due_at, command), tenant)
        return await self._gate.execute(command, tenant)

    async def read(self, question: Callable[[Store], Any]) -> Any:
        """Ask the store."""
        return await self._gate.read(question)

    async def why(self, job_id: JobId) -> Why | None:
        """Why a live job is where it is."""
        return await self._gate.why(job_id)

    async def queue_snapshot(self, queue: QueueName) -> list[tuple[JobId, int]]:
        """The first waiting jobs of a queue."""
        return await self._gate.queue_snapshot(queue)

    async def shares(self, queue: QueueName) -> QueueShares | None:
        """How much of a queue's capacity each of its shares uses."""
        return await self._gate.shares(queue)


class TickInvoker:
    """Carries out InvokeTarget."""

    def __init__(
        self,
        gate: CorePort,
        account_id: str,
        region: str,
        clock_ms: Callable[[], int],
        files: AttemptFiles,
        training: TrainingSettings,
        host_known: Callable[[], Awaitable[Any]],
        find_key: Callable[[str], Key | None],
    ) -> None:
        """`host_known` is awaited before a target is invoked: the size limit of a training job depends on this host.

        `find_key` returns a valid key by its id.
        """
        self._find_key = find_key
        self._gate = gate
        self._host_known = host_known
        self._own = TickGate(gate)
        self._account_id = account_id
        self._region = region
        self._clock_ms = clock_ms
        self._files = files
        self._training = training
        self._services: dict[str, ModelledService] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def carry_out(self, instruction: InvokeTarget) -> None:
        """Start invoking a target; the core is told if it fails."""
        task = asyncio.get_running_loop().create_task(self._invoke(instruction), name="invoke")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def let_go(self) -> None:
        """Stop invoking: the next leader invokes again."""
        for task in self._tasks:
            task.cancel()

    async def _invoke(self, instruction: InvokeTarget) -> None:
        async with self._slots:
            # The next leader invokes it again.
            with contextlib.suppress(Superseded):
                await self._host_known()
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
        _tick.set(instruction)
        arn = schedule_arn(self._region, self._account_id, given_schedule(instruction.schedule.key))
        try:
            request = request_of(instruction.schedule, instruction.due_at, instruction.attempt, arn)
            try:
                await self._perform(request, instruction)
            except ApiError as error:
                if error.code != RESOURCE_IN_USE:
                    raise
                # A training job's name can never be used again, and a schedule has one name for all its runs.
                await self._perform(request.renamed(instruction.due_at), instruction)
        except BadTarget as error:
            return _failure(instruction, str(error), again=False)
        except ApiError as error:
            again = error.status >= 500 or error.code in PASSING
            return _failure(instruction, f"{error.code}: {error.message}", again=again)
        return None

    async def _perform(self, request: TargetRequest, instruction: InvokeTarget) -> None:
        caller = self._caller(instruction.schedule.submitter)
        execution = run_id(instruction.schedule, instruction.due_at)
        service = self._service(request.service)
        await service.perform(request.operation, encode_json(request.params), caller, self._region, execution)

    def _caller(self, submitter: Submitter) -> Caller:
        """The key that made the schedule, as it is now: a revoked key starts nothing."""
        key = self._find_key(submitter.key_id) if submitter.key_id else None
        if key is None and submitter.key_id:
            raise BadTarget(
                f"the key {submitter.key_id} that made this schedule is revoked; delete the schedule and"
                " create it again with a valid key"
            )
        return Caller.on_behalf_of(submitter) if key is None else Caller.of(key)

    def _service(self, name: str) -> ModelledService:
        """Made at its first use: many daemons have no schedule."""
        if name not in self._services:
            if name == "batch":
                made = batch_service(self._own, self._account_id, _run_id, self._clock_ms)
            else:
                made = training_service(
                    self._own, self._account_id, self._clock_ms, self._files, self._training
                )
            self._services[name] = made
        return self._services[name]


def _run_id() -> str:
    tick = _tick.get()
    return run_id(tick.schedule, tick.due_at)


def _failure(instruction: InvokeTarget, error: str, *, again: bool) -> TargetFailed:
    return TargetFailed(instruction.schedule.key, instruction.due_at, error, again)
