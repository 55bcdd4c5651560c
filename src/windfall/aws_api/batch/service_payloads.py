"""What can be read from a service job's payload before it is validated.

Decides how many instances a CreateTrainingJob request asks for, and the names of its training jobs. A payload is the
caller's own text and is validated only when its turn has come, so nothing here fails.
"""

from __future__ import annotations

import json
import re
from typing import Any

from windfall.jobs.service_jobs import NAME_DIGITS, UNKNOWN_TYPE

#: SageMaker's bound on names, and what of it is taken up by the words around the caller's own.
NAME_MAX = 63
PREFIX = "AWSBatch"

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9-]")


def instances_of(payload: str) -> dict[str, int]:
    """How many instances of which type it asks for; one of an unknown type when that cannot be read."""
    resources = _member(_read(payload), "ResourceConfig")
    groups = resources.get("InstanceGroups")
    entries = groups if isinstance(groups, list) and groups else [resources]
    counts: dict[str, int] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        kind, count = entry.get("InstanceType"), entry.get("InstanceCount")
        whole = count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1
        name = kind if isinstance(kind, str) else UNKNOWN_TYPE
        counts[name] = counts.get(name, 0) + whole
    return counts or {UNKNOWN_TYPE: 1}


def name_prefix_of(payload: str) -> str:
    """What the names of its training jobs begin with; the core adds digits of its own."""
    wanted = _read(payload).get("TrainingJobName")
    own = _NOT_IN_NAMES.sub("-", wanted) if isinstance(wanted, str) else ""
    return f"{PREFIX}{own[: NAME_MAX - len(PREFIX) - NAME_DIGITS]}"


def _read(payload: str) -> dict[str, Any]:
    try:
        read = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def _member(request: dict[str, Any], name: str) -> dict[str, Any]:
    value = request.get(name)
    return value if isinstance(value, dict) else {}
