"""When jobs are expected to end, in words: the middle of what may come, and the range that holds nine of ten ends."""

from __future__ import annotations

from typing import Any

from windfall.cli.client import Client
from windfall.cli.errors import RequestRefused
from windfall.cli.wording import ahead, moment

LIVE = frozenset({"SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING"})
_HOUR_MS, _DAY_MS = 3600 * 1000, 24 * 3600 * 1000


def ends_of(client: Client, job_ids: list[str], wait_s: float) -> dict[str, Any]:
    """The daemon's answer about these jobs: `ends` and `unknown`; empty when it cannot say."""
    nothing: dict[str, Any] = {"ends": {}, "unknown": {}}
    if not job_ids:
        return nothing
    try:
        return client.own("ExpectedEnds", jobIds=job_ids, waitS=wait_s)
    except RequestRefused:
        return nothing


def sentence(answer: dict[str, Any], job_id: str, now: int) -> str:
    """What is expected of one job, or why nothing is; empty when nobody has looked yet."""
    end = answer["ends"].get(job_id)
    if end is None:
        why = answer["unknown"].get(job_id)
        return "" if why is None else f"not known: {why}"
    half, most = (
        _span(end[low], end[high], now) for low, high in (("lowHalfAt", "highHalfAt"), ("lowAt", "highAt"))
    )
    return f"{ahead(max(end['at'], now), now)}; 50 %: {half}; 90 %: {most} (from {end['from']})"


def brief(end: dict[str, Any] | None, now: int) -> str:
    """The same for a column: the middle and the wide range."""
    if end is None:
        return ""
    return f"{_time(end['at'], now)} ({_time(end['lowAt'], now)} to {_time(end['highAt'], now)})"


def _span(low: int, high: int, now: int) -> str:
    return f"{_time(low, now)} to {_time(high, now)}"


def _time(at: int, now: int) -> str:
    text = moment(at)
    if abs(at - now) < _HOUR_MS:
        return text[11:19]
    return text[11:16] if abs(at - now) < _DAY_MS else text[5:16]
