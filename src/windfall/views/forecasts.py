"""Forecasts in the plain JSON of Windfall's own operations: what-if questions and expected ends.

Decides which jobs a caller is shown, and the sentence that sums up. Must not know how anything was played.
"""

from __future__ import annotations

from collections.abc import Set

from windfall.forecast.lengths import Basis
from windfall.forecast.playing import Fate
from windfall.forecast.ranges import EndRange, Ranges
from windfall.forecast.what_if import Compared, Comparison, assumption
from windfall.jobs.ids import JobId
from windfall.jobs.tenants import View
from windfall.views.spelling import Answer

#: Jobs that are listed; those that change come first.
LISTED_MAX = 500
#: Times that differ by less are the same.
SAME_MS = 1_500
_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000


def comparison(compared: Comparison, view: View, now: int) -> Answer:
    """The answer to a what-if question, for one caller."""
    seen = [each for each in compared.jobs if view.sees(each.job.submission.submitter.tenant)]
    seen.sort(key=lambda each: not _changes(each))
    return {
        "at": now,
        "summary": summary(seen),
        "notes": [*compared.notes, *_lengths(seen), *_incomplete(compared)],
        "complete": compared.complete,
        "changed": sum(_changes(each) for each in seen),
        "jobs": [_row(each) for each in seen[:LISTED_MAX]],
        "leftOut": max(0, len(seen) - LISTED_MAX),
    }


def expected_ends(ranges: Ranges | None, wanted: Set[JobId]) -> Answer:
    """When jobs end, for one caller: those of `wanted` that a forecast speaks of."""
    if ranges is None:
        return {"at": None, "ends": {}, "unknown": {}}
    return {
        "at": ranges.at,
        "ends": {job_id: expected_end(ranges.ends[job_id]) for job_id in sorted(wanted & ranges.ends.keys())},
        "unknown": {job_id: ranges.unknown[job_id] for job_id in sorted(wanted & ranges.unknown.keys())},
    }


def expected_end(end: EndRange) -> Answer:
    """One expected end: the middle, the range of nine of ten, and that of half of all ends."""
    return {
        "at": end.at,
        "lowAt": end.most[0],
        "highAt": end.most[1],
        "lowHalfAt": end.half[0],
        "highHalfAt": end.half[1],
        "startAt": end.start_at,
        "from": _from(end),
    }


def _from(end: EndRange) -> str:
    if end.basis is Basis.EARLIER_RUNS:
        return f"{end.runs} earlier run{'s' if end.runs > 1 else ''}"
    return "the work that was said" if end.basis is Basis.SAID else "steps"


def _row(each: Compared) -> Answer:
    submission = each.job.submission
    return {
        "jobId": each.job.id,
        "jobName": submission.name,
        "queue": submission.queue,
        "isNew": each.now is None,
        "changed": _changes(each),
        "now": _fate(each.now),
        "then": _fate(each.then),
        "length": assumption(each.estimate),
        "lengthS": round(each.estimate.at(0.5)),
    }


def _fate(fate: Fate | None) -> Answer | None:
    if fate is None:
        return None
    usd = None if fate.usd is None else round(fate.usd, 4)
    return {"startAt": fate.start_at, "endAt": fate.end_at, "usd": usd, "succeeds": fate.succeeded}


def _changes(each: Compared) -> bool:
    if each.now is None:
        return True
    return _differ(each.now.start_at, each.then.start_at) or _differ(_end(each.now), _end(each.then))


def _differ(now: int | None, then: int | None) -> bool:
    if now is None or then is None:
        return now is not then
    return abs(now - then) >= SAME_MS


def summary(seen: list[Compared]) -> str:
    """What the changes mean, in one or two sentences."""
    present = [each for each in seen if each.now is not None]
    pairs = [(_end(each.now), _end(each.then)) for each in present]
    gains = [now - then for now, then in pairs if now is not None and then is not None]
    sooner = [gain for gain in gains if gain >= SAME_MS]
    later = [-gain for gain in gains if gain <= -SAME_MS]
    parts = []
    if sooner:
        parts.append(f"{_jobs(len(sooner))} sooner, by {_span(sum(sooner) // len(sooner))} on average")
    if later:
        parts.append(f"{_jobs(len(later))} later, by {_span(sum(later) // len(later))} on average")
    only_then = sum(now is None and then is not None for now, then in pairs)
    never = sum(now is not None and then is None for now, then in pairs)
    parts += [f"{_jobs(only_then)} well only then"] if only_then else []
    parts += [f"{_jobs(never)} well no more"] if never else []
    said = "; ".join(parts) if parts else "No job that is there ends sooner or later"
    return f"{said}.{_new(seen)}{_cost(present)}"


def _end(fate: Fate | None) -> int | None:
    """When a job is done; None when it fails, or does not end."""
    return fate.end_at if fate is not None and fate.succeeded else None


def _jobs(count: int) -> str:
    return f"{count:,} job ends" if count == 1 else f"{count:,} jobs end"


def _new(seen: list[Compared]) -> str:
    new = [each for each in seen if each.now is None]
    unplaced = sum(_end(each.then) is None for each in new)
    return f" {unplaced} of {len(new)} new jobs would not end well." if unplaced else ""


def _cost(present: list[Compared]) -> str:
    pairs = [(each.now.usd, each.then.usd) for each in present if each.now is not None]
    priced = [(now, then) for now, then in pairs if now is not None and then is not None]
    difference = sum(then - now for now, then in priced)
    if not priced:
        return ""
    if abs(difference) < 0.005:
        return " They cost the same."
    return f" They cost ${abs(difference):,.2f} {'more' if difference > 0 else 'less'}."


def _lengths(seen: list[Compared]) -> list[str]:
    guessed = [each for each in seen if not each.estimate.is_known]
    if not guessed:
        return []
    names = ", ".join(sorted({each.job.submission.name for each in guessed})[:5])
    count = f"{len(guessed):,} of {len(seen):,} jobs"
    return [f"the length of {count} is not known ({names}): their timeout is assumed, or 1 h"]


def _incomplete(compared: Comparison) -> list[str]:
    return (
        [] if compared.complete else ["the time to come was not played to its end: later ends are not known"]
    )


def _span(span_ms: int) -> str:
    if span_ms < 2 * _MINUTE_MS:
        return f"{span_ms // 1000} s"
    if span_ms < 2 * _HOUR_MS:
        return f"{span_ms // _MINUTE_MS} min"
    return f"{span_ms // _HOUR_MS} h {span_ms % _HOUR_MS // _MINUTE_MS} min"
