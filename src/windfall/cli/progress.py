"""What `windfall run` says about a job while it waits, runs, loses its place and ends: its log, or an array's counts.

Nothing is said about a job that starts at once; one that waits is explained in the daemon's own words. What becomes of
an attempt whose place is taken away, what was saved and where it goes on, is said once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from windfall.cli.attempts import Attempt, left_words, mark_words
from windfall.cli.client import Client
from windfall.cli.containers import container_of
from windfall.cli.errors import RequestRefused
from windfall.cli.jobs import remark
from windfall.cli.listing import FINISHED, children
from windfall.cli.log_reading import LogFollower
from windfall.cli.notes import note
from windfall.cli.terminal_text import for_terminal, wants_colours
from windfall.cli.wording import duration
from windfall.views.plain_reasons import cannot_start, plainly

#: A job that waits for less is not worth a word.
PATIENT_FOR_S = 1.0
#: Reasons are asked for, and an array's counts told, at most this often.
TELL_EVERY_S = 2.0
#: How often the daemon is asked whether the job lost its place.
NARRATE_EVERY_S = 1.0
#: Failed children named at the end of an array, and the highest exit code that counts them.
NAMED_CHILDREN, COUNTED_CHILDREN = 5, 100

#: The tag in which the daemon says why the latest attempt failed.
DIAGNOSIS_TAG = "windfall:diagnosis"

Job = dict[str, Any]


class JobFollower:
    """One job: why it waits, then its log."""

    def __init__(self, job_id: str, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._job_id = job_id
        self._out = out
        self._colours = wants_colours(out)
        self._clock = clock
        self._asked_at = clock()
        self._due_s = PATIENT_FOR_S
        self._told = ("", "")
        self._follower = LogFollower(self._emit)
        self._narrator = Narrator()
        #: What went with the job's private directory.
        self._left: str | None = None
        self._narrated_at = clock()

    def look(self, client: Client, job: Job) -> bool:
        """Show what is new about the job."""
        if self._clock() - self._narrated_at >= NARRATE_EVERY_S or job["status"] in FINISHED:
            self._narrate(client)
        if job["status"] not in {"RUNNING", *FINISHED} and self._clock() - self._asked_at >= self._due_s:
            self._explain(client, job["status"])
        return self._follower.catch_up(client, job)

    def ended(self, job: Job) -> bool:
        """Whether nothing more will come."""
        return job["status"] in FINISHED

    def tell_end(self, client: Client, job: Job) -> None:  # noqa: ARG002 (an array needs the client)
        """Say how it ended, unless it ended well."""
        if job["status"] == "FAILED":
            note(f"job {self._job_id} FAILED: {remark(job) or 'no reason is known'}")
            if diagnosis := (job.get("tags") or {}).get(DIAGNOSIS_TAG):
                note(f"{plainly(diagnosis)}; what to do: windfall why {self._job_id}")
        if self._left is not None:
            note(self._left)

    def _narrate(self, client: Client) -> None:
        """Say what happened to its place, before its log goes on."""
        self._narrated_at = self._clock()
        try:
            attempts = client.own("Attempts", jobId=self._job_id)["attempts"]
        except RequestRefused:
            return
        self._left = left_words(attempts[-1]) if attempts else None
        for line in self._narrator.news(attempts, time.time_ns() // 1_000_000):
            note(line)

    def _explain(self, client: Client, status: str) -> None:
        self._asked_at, self._due_s = self._clock(), TELL_EVERY_S
        try:
            answer = client.own("Why", jobId=self._job_id)
        except RequestRefused:
            return
        if answer["state"] != status:
            return  # It has gone on meanwhile: there is nothing to explain any more.
        reason = plainly(answer["reasons"][0]["text"]) if answer["reasons"] else ""
        if (status, reason) != self._told:
            self._told = (status, reason)
            stuck = cannot_start(answer.get("awsReason"))
            state = "cannot start as it is" if stuck else f"is {status}"
            note(f"the job {state}{reason and ': '}{reason}")
            if stuck:
                note(f"stop it with Ctrl-C; what would help: windfall why {self._job_id}")

    def _emit(self, events: list[dict[str, Any]]) -> None:
        lines = (for_terminal(event["message"], colours=self._colours) for event in events)
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()


class ArrayProgress:
    """An array: how many of its children have ended; their logs are theirs."""

    def __init__(self, job_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._job_id = job_id
        self._clock = clock
        self._told_at = clock()
        self._told = ""

    def look(self, _: Client, job: Job) -> bool:
        """Tell the counts when they changed, and not too often."""
        text = _counts(job)
        if text == self._told or self._clock() - self._told_at < TELL_EVERY_S:
            return False
        self._told, self._told_at = text, self._clock()
        note(text)
        return False

    def ended(self, job: Job) -> bool:
        """Whether all children have ended."""
        return job["status"] in FINISHED

    def tell_end(self, client: Client, job: Job) -> None:
        """Say how many failed, and name some of them."""
        note(f"array {self._job_id} {job['status']}: {remark(job)}")
        if job["status"] != "FAILED":
            note(
                f"the log of a child: windfall logs {self._job_id}:0; of all as files: windfall get {self._job_id}"
            )
            return
        for child in children(client, self._job_id, ("FAILED",), NAMED_CHILDREN):
            note(f"  {child['jobId']} {remark(child)}; its log: windfall logs {child['jobId']}")


def exit_code(job: Job) -> int:
    """The exit code of `windfall run` for a job that has ended."""
    summary = (job.get("arrayProperties") or {}).get("statusSummary")
    if summary is not None:
        return min(int(summary.get("FAILED", 0)), COUNTED_CHILDREN)
    if job["status"] == "SUCCEEDED":
        return 0
    code = container_of(job).get("exitCode")
    # A job that was stopped or lost has failed, even if its process could still end with 0.
    return code if isinstance(code, int) and 0 < code < 256 else 1


def _counts(job: Job) -> str:
    summary = (job.get("arrayProperties") or {}).get("statusSummary") or {}
    return ", ".join(f"{count:,} {name}" for name, count in summary.items() if count)


#: Why an attempt leaves its place that is tried again, as the daemon names it; and how AWS words a lost host.
_TAKEN_AWAY = ("interrupted", "sick GPU", "preempted", "outranked")
_HOST_LOST = "Host EC2"


class Narrator:
    """Remembers what was said."""

    def __init__(self) -> None:
        self._said: set[tuple[int, str]] = set()

    def news(self, attempts: Iterable[Attempt], now: int) -> list[str]:
        """What has happened to these attempts of a job since the last look."""
        lines: list[str] = []
        before: Attempt | None = None
        for attempt in attempts:
            number = attempt["number"]
            if before is not None and _lost_its_place(before) and attempt["startedAt"] is not None:
                lines += self._once(number, "started", _resumed(attempt))
            if (
                attempt["stopCause"] in _TAKEN_AWAY
                and attempt["exitedAt"] is None
                and attempt["stoppedAt"] is None
            ):
                lines += self._once(number, "notice", _noticed(attempt, now))
            if _lost_its_place(attempt):
                lines += self._once(number, "taken", _taken(attempt))
            before = attempt
        return lines

    def _once(self, number: int, what: str, text: str) -> list[str]:
        if (number, what) in self._said:
            return []
        self._said.add((number, what))
        return [text]


def _lost_its_place(attempt: Attempt) -> bool:
    if attempt["stoppedAt"] is None:
        return False
    lost = str(attempt["statusReason"] or "").startswith(_HOST_LOST)
    return lost or (attempt["stopCause"] in _TAKEN_AWAY and attempt["exitCode"] != 0)


def _noticed(attempt: Attempt, now: int) -> str:
    left = attempt["deadlineAt"]
    until = "" if left is None else f" in {duration(max(0, left - now))}"
    why = f" ({attempt['stopWords']})" if attempt["stopWords"] else ""
    return f"its place is taken away{until}{why}"


def _taken(attempt: Attempt) -> str:
    progress: dict[str, Any] = attempt["progress"] or {}
    saved = attempt["checkpoint"] or attempt["restored"]
    # The last step is often known from what was saved on notice alone.
    steps = [step for step in (progress.get("step"), saved and saved["step"]) if step is not None]
    at = f" at step {max(steps):,}" if steps else ""
    outcome = f"saved: {mark_words(saved)}" if saved else "nothing was saved"
    return f"taken away{at}; {outcome}"


def _resumed(attempt: Attempt) -> str:
    progress: dict[str, Any] = attempt["progress"] or {}
    restored, step = attempt["restored"], progress.get("restoredStep")
    where = f"on {attempt['instance']} (attempt {attempt['number']})"
    if step is None and restored is not None:
        step = restored["step"]
    if step is not None:
        return f"resumed at step {step:,} {where}"
    if restored is not None:
        return f"resumed with {restored['name']} {where}"
    return f"started again from the beginning {where}"
