"""What agents report about attempts that are brought, watched and saved: noted for readers, and written with measure.

A checkpoint, a restore, a commit or an end of a process is written at once, because accounting and the next attempt
need it. All else is for people who look now, and is written every few seconds at most.
"""

from __future__ import annotations

from windfall.control.events import AttemptExited, AttemptProgressed, AttemptStarted
from windfall.control.limits import watch
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.attempts import Attempt
from windfall.jobs.staging import Mark, Progress, remembering

#: Of each attempt: a thousand jobs that report every second are two hundred rows a second, not a thousand.
WRITE_EVERY_MS = 5_000


def on_attempt_progressed(state: State, report: AttemptProgressed, round_: Round) -> None:
    """Note news of an attempt; what a superseded one says changes nothing."""
    job = state.attempts.get(report.token)
    attempt = job.attempt if job is not None else None
    if job is None or attempt is None:
        return
    lasting = note_marks(attempt, report)
    if report.commit is not None and report.commit != attempt.commit:
        attempt.commit, lasting = report.commit, True
    # That something is being done, or is wrong, is news; how far it has come is not.
    lasting |= (report.doing is None) != (attempt.doing is None) or (report.alarm is None) != (
        attempt.alarm is None
    )
    passing = (report.doing, report.alarm) != (attempt.doing, attempt.alarm)
    attempt.doing, attempt.alarm = report.doing, report.alarm
    if report.progress is not None and (
        attempt.progress is None or report.progress.at >= attempt.progress.at
    ):
        passing = passing or report.progress != attempt.progress
        attempt.progress = report.progress
    written_at = state.progress_written.get(report.token)
    if lasting or (passing and (written_at is None or round_.now - written_at >= WRITE_EVERY_MS)):
        _note_loss(attempt, attempt.progress)
        state.progress_written[report.token] = round_.now
        round_.changes.jobs[job.id] = job
        watch(state, job)


def note_marks(attempt: Attempt, report: AttemptProgressed | AttemptExited) -> bool:
    """Take over what a report says of checkpoints and the process; answers whether anything was new."""
    before = (attempt.restored, attempt.checkpoint, attempt.exited_at)
    if isinstance(report, AttemptProgressed) and report.restored is not None:
        attempt.restored = report.restored
    attempt.checkpoint = _newer(attempt.checkpoint, report.checkpoint)
    if attempt.checkpoint is not None and attempt.checkpoint != before[1]:
        attempt.marks = remembering(attempt.marks, attempt.checkpoint)
    if report.exited_at is not None:
        attempt.exited_at = report.exited_at
    return before != (attempt.restored, attempt.checkpoint, attempt.exited_at)


def _note_loss(attempt: Attempt, progress: Progress | None) -> None:
    """Remember the loss of what is written: a point every few seconds at most."""
    if progress is None or progress.loss is None:
        return
    if not attempt.losses or attempt.losses[-1][0] < progress.at:
        attempt.losses = remembering(attempt.losses, (progress.at, progress.step, progress.loss))


def note_start(attempt: Attempt, report: AttemptStarted) -> None:
    """Take over when an attempt's things had been brought."""
    if report.prepared_at is not None:
        attempt.prepared_at = report.prepared_at


def _newer(stored: Mark | None, reported: Mark | None) -> Mark | None:
    """Reports may overtake one another; a checkpoint that is in safety stays so."""
    if stored is None or reported is None:
        return reported or stored
    return reported if reported.at >= stored.at else stored
