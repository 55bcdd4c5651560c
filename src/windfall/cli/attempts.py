"""What AWS has no words for in a job's attempts: where each ran, what it began with, what it saved, why it left."""

from __future__ import annotations

from typing import Any

from windfall.cli.client import Client
from windfall.cli.errors import RequestRefused
from windfall.cli.terminal_text import for_terminal
from windfall.cli.wording import ago, duration

Attempt = dict[str, Any]


def print_capacity(client: Client, job_id: str, now: int) -> None:
    """Print the attempts of a job that keeps checkpoints or has lost its place before; else nothing."""
    try:
        answer = client.own("Attempts", jobId=job_id)
    except RequestRefused:
        return
    attempts: list[Attempt] = answer["attempts"]
    reported = [attempt for attempt in attempts if _has_news(attempt)]
    if answer["checkpointUri"] is None and not reported:
        return
    from windfall.cli.tables import Column, console, heading, plain, print_table

    heading("Places and checkpoints")
    if answer["checkpointUri"] is not None:
        console().print(plain(f"kept at {answer['checkpointUri']}"))
    columns = [
        Column("#", right=True),
        Column("INSTANCE"),
        Column("TYPE", optional=3),
        Column("MARKET", optional=2),
        Column("BEGAN WITH", optional=1),
        Column("NEWEST SAVED"),
        Column("NOW, OR WHY IT LEFT", folds=True),
    ]
    print_table(columns, [_row(attempt, now) for attempt in attempts])


def _has_news(attempt: Attempt) -> bool:
    return any(
        attempt.get(name) for name in ("checkpoint", "restored", "stopWords", "alarm", "commit", "leftFiles")
    )


def _row(attempt: Attempt, now: int) -> list[str]:
    return [
        str(attempt["number"]),
        attempt["instance"],
        attempt["instanceType"] or "",
        attempt["market"],
        mark_words(attempt["restored"]),
        _newest(attempt, now),
        _story(attempt, now),
    ]


def _newest(attempt: Attempt, now: int) -> str:
    """The newest checkpoint that is safe, and how old it is while the attempt goes on."""
    words = mark_words(attempt["checkpoint"])
    if attempt["checkpoint"] is None or attempt["stoppedAt"] is not None:
        return words
    return f"{words}, {ago(attempt['checkpoint']['stateAt'], now)}"


def mark_words(mark: dict[str, Any] | None) -> str:
    """A checkpoint in a few characters."""
    if mark is None:
        return "-"
    name = f"step {mark['step']:,}" if mark["step"] is not None else mark["name"]
    return f"{name} ({size(mark['bytes'])})"


def size(count: int) -> str:
    """Bytes for people."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def left_words(attempt: Attempt) -> str | None:
    """What was removed with an attempt's private directory, and how to keep it; None if nothing was."""
    left = attempt.get("leftFiles")
    if not left:
        return None
    count = f"{left['count']:,}{' or more' if left['more'] else ''}"
    files = "file" if count == "1" else "files"
    # A job chose these names: none of them begins a line of its own.
    names = ", ".join(for_terminal(name, colours=False) for name in left["names"])
    more = ", ..." if left["more"] or left["count"] > len(left["names"]) else ""
    return (
        f"{count} {files} ({size(left['bytes'])}) in the job's private directory"
        f" {'was' if count == '1' else 'were'} removed with it: {names}{more};"
        " keep such files with `windfall run --keep PATTERN`"
    )


def _story(attempt: Attempt, now: int) -> str:
    parts = [attempt["stopWords"], attempt["doing"], attempt["alarm"]]
    progress = attempt["progress"]
    if attempt["stoppedAt"] is None and progress and progress["step"] is not None:
        of = f" of {progress['steps']:,}" if progress.get("steps") else ""
        parts.append(f"at step {progress['step']:,}{of}")
    if attempt["stoppedAt"] is None and attempt["deadlineAt"] is not None:
        parts.append(f"place gone in {duration(max(0, attempt['deadlineAt'] - now))}")
    if attempt["commit"]:
        parts.append(f"commit {attempt['commit'][:12]}")
    if attempt["stoppedAt"] is not None:
        parts.append(left_words(attempt))
    return "; ".join(part for part in parts if part)
