"""How long attempts take, learnt from those that ended by themselves. In memory alone: a restart learns anew."""

from __future__ import annotations

from windfall.control.state import State
from windfall.jobs.attempts import Attempt
from windfall.jobs.job import Job

#: How much the newest length counts.
_WEIGHT = 0.2
_MOST = 10_000


def note_length(state: State, job: Job, attempt: Attempt) -> None:
    """Learn from an attempt that has ended how long such jobs take."""
    if attempt.started_at is None or attempt.stopped_at is None or attempt.stop_cause is not None:
        return
    key, length = (job.submission.queue, job.submission.definition), attempt.stopped_at - attempt.started_at
    if key not in state.lengths and len(state.lengths) >= _MOST:
        state.lengths.clear()
    before = state.lengths.get(key, float(length))
    state.lengths[key] = before + _WEIGHT * (length - before)
