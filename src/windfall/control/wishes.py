"""What a Batch job asks for beyond AWS's own fields, by tag or parameter: checkpoints, code from Git, a budget.

Looked for in the job's own tags, its parameters, the definition's tags and its parameters, in this order. Decides what
the words mean and refuses what makes no sense; must not look whether a place or a repository exists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from windfall.jobs.definitions import JobDefinition
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import JobId
from windfall.jobs.staging import Checkpoints, GitSource, Staging

#: As tags. As parameters, which may not hold a colon, they are spelled `windfall-checkpoint` and so on.
CHECKPOINT, GIT, BUDGET = "windfall:checkpoint", "windfall:git", "windfall:budget-usd"

_YES, _NO = ("true", "yes", "1"), ("", "false", "no", "0")
_URI = re.compile(r"(file:///|s3://[^/]+).*")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a job asks for."""

    staging: Staging | None = None
    budget_usd: float | None = None

    @property
    def free_interruptions(self) -> bool:
        """Whether it keeps checkpoints, so that losing its place costs it no attempt."""
        return self.staging is not None and self.staging.checkpoints is not None


NONE = Wishes()


def wishes_of(
    job_id: JobId,
    tags: Mapping[str, str],
    parameters: Mapping[str, str],
    definition: JobDefinition,
    checkpoint_root: str | None,
) -> Wishes:
    """What a submission asks for, or Invalid with what to write instead."""
    if not (tags or parameters or definition.tags or definition.parameters):
        return NONE  # as most jobs are
    sources = (tags, parameters, definition.tags, definition.parameters)
    found = {name: value for name in (CHECKPOINT, GIT, BUDGET) if (value := _find(name, sources)) is not None}
    if not found:
        return NONE
    checkpoints = _checkpoints(found.get(CHECKPOINT, ""), job_id, checkpoint_root)
    git = _git(found[GIT]) if GIT in found else None
    staging = Staging(checkpoints, git) if checkpoints is not None or git is not None else None
    return Wishes(staging, budget_of(found))


def budget_of(tags: Mapping[str, str]) -> float | None:
    """The budget among the tags of a job, in US dollars."""
    text = tags.get(BUDGET)
    if text is None:
        return None
    try:
        budget = float(text.strip().removeprefix("$"))
    except ValueError:
        budget = -1.0
    if not (isfinite(budget) and budget > 0):
        raise Invalid(f"{BUDGET} must be a number of US dollars above 0, such as 12.50; it is {text!r}")
    return budget


def _find(name: str, sources: tuple[Mapping[str, str], ...]) -> str | None:
    spellings = (name, name.replace(":", "-"))
    return next((source[each] for source in sources for each in spellings if each in source), None)


def _checkpoints(text: str, job_id: JobId, root: str | None) -> Checkpoints | None:
    word = text.strip()
    if word.lower() in _NO:
        return None
    if word.lower() in _YES:
        if root is None:
            raise Invalid(
                f"{CHECKPOINT}={word} needs a place for checkpoints and this daemon has none: start it with an"
                " object store, or name a place yourself, such as s3://bucket/prefix or file:///directory"
            )
        return Checkpoints(f"{root.rstrip('/')}/{job_id}")
    if not _URI.fullmatch(word):
        raise Invalid(f"{CHECKPOINT} must be true, s3://bucket/prefix or file:///directory; it is {text!r}")
    return Checkpoints(word.rstrip("/"))


def _git(text: str) -> GitSource:
    url, _, revision = text.strip().rpartition("@")
    if "/" not in url or url.startswith("-") or not _REVISION.fullmatch(revision):
        raise Invalid(
            f"{GIT} must be URL@REVISION, such as https://host/team/code.git@main or ...@4f2a91c; it is {text!r}"
        )
    return GitSource(url, revision)
