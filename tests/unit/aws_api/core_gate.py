"""A gate in front of the real reactor and a store, without a loop: for tests of services over the core."""

from __future__ import annotations

from typing import Any

from windfall.aws_api.sagemaker.endings import SageMakerTexts
from windfall.control.queue_shares import QueueShares, queue_shares
from windfall.control.reactor import close, handle
from windfall.control.round import Round
from windfall.control.state import Rules, State
from windfall.jobs.ids import QueueName


class CoreGate:
    """Commands go to the reactor and are committed; nothing is ever placed, because there is no machine."""

    def __init__(self, store: Any, now: int, rules: Rules | None = None, step_ms: int = 1) -> None:
        """Every command comes `step_ms` after the one before."""
        self.store, self.now, self.step_ms = store, now, step_ms
        self.state = State(rules or Rules(aws_texts=SageMakerTexts()))

    async def execute(self, command: Any, tenant: str | None = None) -> Any:
        self.now += self.step_ms
        round_ = Round(self.now)
        reply = handle(self.state, command, round_, tenant)
        close(self.state, round_)
        self.store.commit(round_.changes)
        return reply

    async def read(self, question: Any) -> Any:
        return question(self.store)

    async def why(self, _job_id: str) -> None:
        return None

    async def queue_snapshot(self, queue: str) -> list[tuple[str, int]]:
        waiting = (job for job in self.state.jobs.values() if job.submission.queue == queue)
        return [(job.id, job.runnable_at) for job in waiting if job.runnable_at is not None]

    async def shares(self, queue: str) -> QueueShares | None:
        return queue_shares(self.state, QueueName(queue), self.now)
