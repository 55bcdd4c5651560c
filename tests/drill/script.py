"""What happens to one run: a list of moments in an attempt's life, and what is done at each. Drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

#: When something is done, by what the Attempts operation says of the latest attempt.
STAGES = ("placed", "restoring", "running", "late", "leaving", "flushing")
#: What is done. The first four take the place away; the others break something else at that moment.
BLOWS = (
    "interrupt",
    "interrupt",
    "interrupt",
    "no notice",
    "kill agent",
    "kill courier",
    "kill daemon",
    "store away",
)


@dataclass(frozen=True, slots=True)
class Blow:
    """One thing that is done to a run at one moment."""

    stage: str
    what: str
    notice_s: float
    #: For `running`: how many steps after the start of the attempt.
    steps: int


def draw(seed: int) -> list[Blow]:
    """The misfortunes of one run: two to five, often two at once."""
    chosen = random.Random(seed)
    blows = []
    for _ in range(chosen.randint(2, 5)):
        stage, what = chosen.choice(STAGES), chosen.choice(BLOWS)
        if stage in ("leaving", "flushing"):
            # There is nothing to leave or to flush before a place is taken away.
            blows.append(Blow("running", "interrupt", chosen.choice((2.0, 5.0, 20.0)), chosen.randint(1, 12)))
        blows.append(Blow(stage, what, chosen.choice((0.2, 1.0, 3.0, 20.0)), chosen.randint(1, 12)))
    return blows


def reached(blow: Blow, attempt: dict[str, Any] | None) -> bool:
    """Whether the moment of a blow has come (or has gone by: then it is done at the next best one)."""
    if attempt is None:
        return False
    over = attempt["stoppedAt"] is not None
    progress = attempt["progress"] or {}
    done = (progress.get("step") or 0) - (progress.get("restoredStep") or 0)
    if blow.stage == "placed":
        return not over
    if blow.stage == "restoring":
        return not over and (attempt["startedAt"] is not None or bool(attempt["doing"]))
    if blow.stage == "running":
        return not over and attempt["startedAt"] is not None and done >= blow.steps
    if blow.stage == "late":
        return not over and done >= 2 * blow.steps
    if blow.stage == "leaving":
        return over or attempt["stopAt"] is not None
    return over or attempt["exitedAt"] is not None
