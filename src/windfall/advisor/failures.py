"""Why an attempt failed: from its exit, our own facts about the end, and the last lines of its log.

Facts of ours come first: a time limit or a memory limit that we enforced is not a guess. In the log the last thing
counts: the line that ends the last traceback, else a line near the end that ends programs. An error that was caught and
survived earlier is not a cause. Decides what is believed; must not read files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from windfall.advisor.failure_texts import GOES_ON, LAUNCHERS, MILD, NOISE, PATTERNS, Pattern
from windfall.jobs.aws_texts import FAILED_TO_START, OUT_OF_MEMORY, TIMED_OUT
from windfall.jobs.diagnosis import Diagnosis, FailureCause

#: How much of a log's end is looked at.
TAIL_BYTES = 64 << 10
MOST_EVIDENCE = 300
#: Lines from the end within which an error without a traceback still counts as the last thing that happened.
NEAR_END = 40
#: This much may be said after the last traceback before it is an old story.
AFTER_TRACEBACK = 8
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = ("The above exception was the direct cause", "During handling of the above exception")
#: The line that ends a traceback: a dotted name, and mostly a text.
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?::|$)")
_PREFIX = re.compile(r"^(?:\[?rank\s?\d+\]?:\s?|\x1b\[[0-9;]*m)+")
_SIGKILL, _SIGBUS, _TIMEOUT_CODE = 137, 135, 124


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """All that is known of an attempt's end."""

    exit_code: int | None
    #: AWS's words about the process and about the attempt.
    reason: str | None = None
    status_reason: str | None = None
    #: The last lines of its log, oldest first.
    lines: Sequence[str] = ()
    #: What the kernel said of its devices meanwhile (Xid ...), oldest first.
    kernel_lines: Sequence[str] = ()
    #: The largest share of its memory limit that was seen; None when not sampled.
    memory_peak: float | None = None


def diagnose(ending: AttemptEnd) -> Diagnosis | None:
    """The cause of a failed attempt, or None when nothing known shows one."""
    if ending.exit_code == 0 and ending.reason is None:
        return None
    own = _by_own_facts(ending)
    if own is not None:
        return own
    diagnosis = _by_log(ending.lines)
    if diagnosis is not None:
        return diagnosis
    if ending.kernel_lines:
        # One error of a device brings others, and the first is what they come from.
        return _diagnosis(FailureCause.GPU_FAULT, ending.kernel_lines[0])
    return _by_code(ending)


def _by_own_facts(ending: AttemptEnd) -> Diagnosis | None:
    reason, status = ending.reason or "", ending.status_reason or ""
    if status == TIMED_OUT:
        return _diagnosis(FailureCause.KILLED_BY_TIME, TIMED_OUT)
    if reason.startswith(OUT_OF_MEMORY):
        return _diagnosis(FailureCause.HOST_MEMORY, reason)
    if status == FAILED_TO_START or reason.startswith(
        ("CannotStart", "CannotPull", "CannotCreate", "DockerTimeout")
    ):
        for pattern in PATTERNS:
            if pattern.text.search(reason):
                return _diagnosis(pattern.cause, reason)
        return _diagnosis(FailureCause.NOT_STARTED, reason or status)
    return None


def _by_log(lines: Sequence[str]) -> Diagnosis | None:
    plain = [_PREFIX.sub("", line.rstrip()) for line in lines]
    ends = _raised(plain)
    if not ends or _survived(plain, ends[-1]):
        return _near_the_end(plain, ends[-1] + 1 if ends else 0)
    diagnosis = _first(_raised_cause(plain, end) for end in reversed(_raised_together(plain, ends)))
    # The program ended by an exception that says nothing; only what came after it may say more.
    return diagnosis or _near_the_end(plain, ends[-1] + 1)


def _raised(lines: Sequence[str]) -> list[int]:
    """Where tracebacks end: the numbers of the lines with the exception, without those of launchers."""
    ends = []
    inside = False
    for number, line in enumerate(lines):
        if _TRACEBACK in line:
            inside = True
        elif inside and line and not line[0].isspace() and _RAISED.match(line):
            inside = False
            if not LAUNCHERS.search(line):
                ends.append(number)
    return ends


def _survived(lines: Sequence[str], end: int) -> bool:
    """Whether the program went on after a traceback, so that it was logged and not died of."""
    said = 0
    for line in lines[end + 1 :]:
        if GOES_ON.search(line):
            return True
        said += not (NOISE.match(line) or _match(line))
        if said > AFTER_TRACEBACK:
            return True
    return False


def _raised_together(lines: Sequence[str], ends: list[int]) -> list[int]:
    """The last traceback and those that it is chained to, or that other ranks wrote at the same time."""
    together = ends[-1:]
    for before in reversed(ends[:-1]):
        between = lines[before + 1 : together[0]]
        chained = any(line.startswith(_CHAINED) for line in between)
        at_once = not any(line and not NOISE.match(line) and _TRACEBACK not in line for line in between)
        if not (chained or at_once):
            break
        together.insert(0, before)
    # A rank that failed takes the others with it, and those complain of NCCL alone.
    blamed = [end for end in together if (match := _match(lines[end])) and match.cause is FailureCause.NCCL]
    return blamed + [end for end in together if end not in blamed]


def _raised_cause(lines: Sequence[str], end: int) -> Diagnosis | None:
    """What an exception says in its first line or, as PyTorch's and XLA's do, in the next ones."""
    for line in lines[end : end + 6]:
        if not line or _TRACEBACK in line:
            return None
        if (pattern := _match(line)) is not None:
            return _diagnosis(pattern.cause, line)
    return None


def _near_the_end(lines: Sequence[str], first: int) -> Diagnosis | None:
    for line in reversed(lines[max(first, len(lines) - NEAR_END) :]):
        if GOES_ON.search(line):
            return None
        pattern = None if MILD.search(line) else _match(line)
        if pattern is not None:
            return _diagnosis(pattern.cause, line)
    return None


def _first(diagnoses: Iterable[Diagnosis | None]) -> Diagnosis | None:
    return next((diagnosis for diagnosis in diagnoses if diagnosis is not None), None)


def _match(line: str) -> Pattern | None:
    return next((pattern for pattern in PATTERNS if pattern.text.search(line)), None)


def _by_code(ending: AttemptEnd) -> Diagnosis | None:
    if ending.exit_code == _SIGBUS:
        return _diagnosis(
            FailureCause.SHARED_MEMORY, "exit code 135 (SIGBUS): a bus error, mostly of a full /dev/shm"
        )
    full = ending.memory_peak is not None and ending.memory_peak >= 0.9
    last = ending.lines[-1].strip() if ending.lines else ""
    if ending.exit_code == _SIGKILL and (full or last == "Killed"):
        seen = (
            f", memory was at {ending.memory_peak:.0%} of its limit" if ending.memory_peak is not None else ""
        )
        return _diagnosis(
            FailureCause.HOST_MEMORY, f"exit code 137 (SIGKILL){seen}: {last or 'nothing in its log'}"
        )
    if ending.exit_code == _TIMEOUT_CODE:
        return _diagnosis(FailureCause.KILLED_BY_TIME, "exit code 124: `timeout` ended it")
    return None


def _diagnosis(cause: FailureCause, evidence: str) -> Diagnosis:
    text = " ".join(evidence.split())
    return Diagnosis(cause, text if len(text) <= MOST_EVIDENCE else text[: MOST_EVIDENCE - 1] + "…")
