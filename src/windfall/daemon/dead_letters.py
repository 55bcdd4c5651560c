"""Dead letters: reports ticks whose target could not be invoked, to a file or a webhook.

On AWS `DeadLetterConfig.Arn` names an SQS queue; here its last part names a file, and each line of it stands for one
message. If the webhook does not accept one, it goes to the file. A letter may be written twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from windfall.control.commands.calendar import DeadLetterWritten
from windfall.control.instructions import WriteDeadLetter
from windfall.control.ports import CorePort
from windfall.daemon.event_sinks import Event, EventFile
from windfall.daemon.webhook import Webhook
from windfall.store.errors import Superseded

log = logging.getLogger(__name__)

#: Seconds until a failed write is tried again: a full disk may have room by then.
AGAIN_S = 30.0
_OUTSIDE_NAMES = re.compile(r"[^A-Za-z0-9_.-]")


class DeadLetters:
    """Carries out WriteDeadLetter."""

    def __init__(
        self, gate: CorePort, directory: Path, webhook: str | None, schedule_arn: Callable[[str], str]
    ) -> None:
        self._gate = gate
        self._directory = directory
        self._webhook = None if webhook is None else Webhook(webhook)
        self._schedule_arn = schedule_arn
        #: One thread: webhook and file take one writer at a time.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="dead-letters")
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = False

    def carry_out(self, instruction: WriteDeadLetter) -> None:
        """Start writing a letter; the core is told when it is written."""
        if self._over:
            return
        task = asyncio.get_running_loop().create_task(self._write(instruction), name="dead letter")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def let_go(self) -> None:
        """Stop writing: the next leader writes it again."""
        self._over = True
        for task in self._tasks:
            task.cancel()
        if self._webhook is not None:
            self._webhook.close()
        self._writer.shutdown(wait=False)

    async def _write(self, instruction: WriteDeadLetter) -> None:
        loop = asyncio.get_running_loop()
        trouble = await loop.run_in_executor(self._writer, self._deliver, instruction)
        if trouble is None:
            # The next leader writes it again.
            with contextlib.suppress(Superseded):
                await self._gate.execute(DeadLetterWritten(instruction.schedule.key, instruction.due_at))
        else:
            log.warning("a dead letter was not written: %s; trying again in %g s", trouble, AGAIN_S)
            loop.call_later(AGAIN_S, self.carry_out, instruction)

    def _deliver(self, instruction: WriteDeadLetter) -> str | None:
        """Write it, in a thread; returns why it failed, if it did."""
        key = instruction.schedule.key
        body = json.dumps(letter_of(instruction, self._schedule_arn(key))).encode()
        letter = Event(f"{key}@{instruction.due_at}", key, body)
        if self._webhook is not None:
            trouble = self._webhook.deliver([letter]).trouble
            if trouble is None:
                return None
            log.warning("a dead letter goes to its file instead of the webhook: %s", trouble)
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            return f"cannot make {self._directory}: {error.strerror}"
        name = file_name(instruction.schedule.target.dead_letter or "")
        return EventFile(self._directory / f"{name}.jsonl").deliver([letter]).trouble


def letter_of(instruction: WriteDeadLetter, schedule_arn: str) -> dict[str, Any]:
    """The content of a letter: the event, and the attributes that AWS's messages carry."""
    schedule = instruction.schedule
    code, colon, message = instruction.error.partition(": ")
    return {
        "scheduleArn": schedule_arn,
        "scheduledTime": f"{datetime.fromtimestamp(instruction.due_at / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}",
        "targetArn": schedule.target.arn,
        "input": schedule.target.input,
        "attributes": {
            "ERROR_CODE": code if colon else "InvocationFailed",
            "ERROR_MESSAGE": message if colon else instruction.error,
            "RETRY_ATTEMPTS": max(instruction.attempts - 1, 0),
            "TARGET_ARN": schedule.target.arn,
        },
    }


def file_name(queue_arn: str) -> str:
    """The name of a queue as a safe file name, without path separators."""
    name = _OUTSIDE_NAMES.sub("_", queue_arn.rpartition(":")[2]).lstrip(".")
    return name[:120] or "dead-letters"
