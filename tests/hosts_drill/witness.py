"""The jobs of one round, what each must show at its end, and what the hosts themselves have seen of it.

Every attempt writes to its host when it begins and when it has done its work. That file is the witness: the daemon
knows nothing of it. Decides what is wrong with a job; must not know what was done to the hosts.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

LINES = 40
#: Where attempts leave word, on each host. It outlives a reboot.
WITNESS = "/var/tmp/witness"
_BEGINS = f'echo "begin $AWS_BATCH_JOB_ID $AWS_BATCH_JOB_ATTEMPT" >> {WITNESS}'
_ENDS = f'echo "end $AWS_BATCH_JOB_ID $AWS_BATCH_JOB_ATTEMPT" >> {WITNESS}'
_WRITES = "n=0; while [ $n -lt $LINES ]; do n=$((n+1)); echo line $n; sleep 0.15; done"


def writing(status: int) -> list[str]:
    """A job that writes lines, one after the other, and ends with this status."""
    return ["sh", "-c", f"{_BEGINS}; LINES={LINES}; {_WRITES}; {_ENDS}; exit {status}"]


def training(command: str) -> list[str]:
    """A job that runs a training, and leaves word of it."""
    return ["sh", "-c", f"{_BEGINS}; {command} && {_ENDS}"]


@dataclass(frozen=True, slots=True)
class Expected:
    """A job, and how it must end."""

    job_id: str
    exit_code: int
    #: What its last attempt prints at its end, for a training: its hash.
    hash: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """What the API says of a job that has ended: AWS's description, all attempts, and the log of each."""

    job: dict[str, Any]
    attempts: list[dict[str, Any]]
    logs: list[list[str]]

    @property
    def lost(self) -> int:
        """How many attempts have no exit status, because their host was lost."""
        return sum(attempt["exitCode"] is None for attempt in self.attempts)


def complaints(expected: Expected, ended: Ended, said: Counter[str]) -> list[str]:
    """What is wrong with a job, in words; `said` counts the lines of all witnesses."""
    wrong = [*_of_attempts(expected, ended), *_of_witness(expected, ended, said)]
    for attempt, lines in zip(ended.attempts, ended.logs, strict=True):
        committed = attempt["exitCode"] is not None
        if expected.hash is None and not _is_whole(lines, committed=committed):
            wrong.append(f"the log of attempt {attempt['number']} has gaps: {lines[:3]} ... {lines[-3:]}")
    if expected.hash is not None:
        wrong += _of_training(expected.hash, ended)
    return [f"{expected.job_id}: {text}" for text in wrong]


def _of_attempts(expected: Expected, ended: Ended) -> list[str]:
    status = "SUCCEEDED" if expected.exit_code == 0 else "FAILED"
    codes = [attempt["exitCode"] for attempt in ended.attempts]
    wrong = []
    if ended.job["status"] != status:
        reasons = [ended.job.get("statusReason"), *(attempt.get("reason") for attempt in ended.attempts)]
        wrong.append(f"is {ended.job['status']} ({', '.join(map(str, reasons))}), not {status}")
    # Committed once: all attempts before the last were lost with their hosts, or left when they had notice.
    before = ended.attempts[:-1]
    if codes[-1:] != [expected.exit_code] or not all(_is_superseded(attempt) for attempt in before):
        wrong.append(f"its attempts ended with {codes}, not with {expected.exit_code} once and at last")
    return wrong


def _is_superseded(attempt: dict[str, Any]) -> bool:
    """Whether an attempt was lost, or was not done when it left because of a notice: both are run again."""
    return attempt["exitCode"] is None or (bool(attempt.get("deadlineAt")) and attempt["exitCode"] != 0)


def _of_witness(expected: Expected, ended: Ended, said: Counter[str]) -> list[str]:
    wrong = []
    for attempt in ended.attempts:
        name = f"{expected.job_id} {attempt['number']}"
        begun, done = said[f"begin {name}"], said[f"end {name}"]
        if begun > 1 or done > 1:
            wrong.append(f"attempt {attempt['number']} began {begun} times on hosts and ended {done} times")
        if not _is_superseded(attempt) and (begun, done) != (1, 1):
            wrong.append(
                f"attempt {attempt['number']} is committed, but hosts saw {begun} begin and {done} end"
            )
    return wrong


def _of_training(wanted: str, ended: Ended) -> list[str]:
    wrong = []
    printed = re.findall(r"hash ([0-9a-f]{64})", "\n".join(ended.logs[-1]))
    if printed != [wanted]:
        wrong.append(f"ended with the hash {printed}, not {wanted}")
    safe = 0
    for attempt in ended.attempts:
        began_at = (attempt["restored"] or {}).get("step") or 0
        if attempt["startedAt"] and began_at < safe:
            wrong.append(f"attempt {attempt['number']} began at step {began_at}, but step {safe} was safe")
        safe = max(safe, began_at, (attempt["checkpoint"] or {}).get("step") or 0)
    return wrong


def _is_whole(lines: list[str], *, committed: bool) -> bool:
    """Whether a log has every line once and in order; that of a lost attempt may end early, and within a line."""
    wanted = [f"line {number}" for number in range(1, LINES + 1)]
    if committed:
        return lines == wanted
    return lines[:-1] == wanted[: len(lines) - 1] if lines else True
