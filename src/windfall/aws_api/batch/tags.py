"""Tags: what AWS allows, and those that the wire itself reads and writes.

`windfall:engine` on a compute environment names the engine that serves it, and `windfall:labels` the labels of the
machines that it means. Windfall itself writes three among a job's
tags, as AWS writes `aws:` tags: `windfall:isolation` says what isolated its latest attempt from the host,
`windfall:not-applied` which containers of its task do not run and which of its containerProperties had no effect
because it ran as a process, and `windfall:diagnosis` why its latest attempt failed. An unknown tag that begins with
`windfall:` is refused: it is probably misspelt. Must not know how tags are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from windfall.aws_api.batch.rejections import client_exception, shown
from windfall.capacity.labels import LABELS
from windfall.capacity.market_tags import MARKET_TAGS
from windfall.control.job_options import GIT, JOB_TAGS, secret_in_git

ENGINE = "windfall:engine"
ISOLATION = "windfall:isolation"
NOT_APPLIED = "windfall:not-applied"
DIAGNOSIS = "windfall:diagnosis"
#: What the run of a schedule is tagged with.
SCHEDULE, DUE_AT = "windfall:schedule", "windfall:due-at"
#: Names the job that a job runs again.
RETRY_OF = "windfall:retry-of"
#: What AWS allows.
VALUE_MAX = 256
_SHOWN_ONLY = frozenset({ISOLATION, NOT_APPLIED, DIAGNOSIS})
#: What the tags begin with that mean something to Windfall.
OWN = "windfall:"
_KNOWN = frozenset({ENGINE, LABELS, SCHEDULE, DUE_AT, RETRY_OF, *_SHOWN_ONLY, *JOB_TAGS, *MARKET_TAGS})


def is_own(key: str) -> bool:
    """Whether a tag is one that Windfall reads or writes."""
    return key.startswith(OWN)


def why_unknown(key: str) -> str | None:
    """What to say of a tag that would be Windfall's and means nothing; None for every other."""
    if not is_own(key) or key in _KNOWN:
        return None
    # Without what all of them begin with, which alone would make any two alike.
    suffixes = [name.removeprefix(OWN) for name in _KNOWN]
    close = get_close_matches(key.removeprefix(OWN), suffixes, n=1, cutoff=0.7)
    hint = f"did you mean {OWN}{close[0]}?" if close else "tags of your own begin with something else"
    return f"There is no tag {shown(key)}; {hint}"


def check_tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    """The tags to keep; raises where AWS does, and leaves out what only Windfall writes.

    Tools that submit a job again copy the tags they were shown, so that a reserved one is dropped and not
    refused.
    """
    for key in tags:
        if key.lower().startswith("aws:"):
            raise client_exception(f"Tag key {shown(key)!r} begins with aws:, which is reserved")
        if (problem := why_unknown(key)) is not None:
            raise client_exception(problem)
    if GIT in tags and (problem := secret_in_git(tags[GIT])) is not None:
        raise client_exception(problem)
    if _SHOWN_ONLY.isdisjoint(tags):
        return tags
    return {key: value for key, value in tags.items() if key not in _SHOWN_ONLY}
