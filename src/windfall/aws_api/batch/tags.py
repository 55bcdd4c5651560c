"""Tags: what AWS allows, and those that the wire itself reads and writes.

`windfall:engine` on a compute environment names the engine that serves it. Three are shown among a job's tags and are
Windfall's to write, as `aws:` tags are AWS's: `windfall:isolation` says what kept its latest attempt apart from the
host, `windfall:not-applied` which containers of its task do not run and which of its containerProperties meant nothing
because it ran as a process, and `windfall:diagnosis` why its latest attempt failed. Must not know how tags are stored.
"""

from __future__ import annotations

from collections.abc import Mapping

from windfall.aws_api.batch.rejections import client_exception, shown

ENGINE = "windfall:engine"
ISOLATION = "windfall:isolation"
NOT_APPLIED = "windfall:not-applied"
DIAGNOSIS = "windfall:diagnosis"
#: What AWS allows.
VALUE_MAX = 256
_SHOWN_ONLY = frozenset({ISOLATION, NOT_APPLIED, DIAGNOSIS})


def check_tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    """The tags to keep; raises where AWS does, and leaves out what only Windfall writes.

    Tools that submit a job again copy the tags they were shown, so that a reserved one is dropped and not
    refused.
    """
    for key in tags:
        if key.lower().startswith("aws:"):
            raise client_exception(f"Tag key {shown(key)!r} begins with aws:, which is reserved")
    if _SHOWN_ONLY.isdisjoint(tags):
        return tags
    return {key: value for key, value in tags.items() if key not in _SHOWN_ONLY}
