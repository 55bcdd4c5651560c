"""Labels of machines, and the tag of a compute environment that chooses machines by them.

Decides what a label may be, with a text that says so, and which machines an environment means. An environment's
instanceTypes are compared with the label `type`. Must not know where machines come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from windfall.capacity.environments import ComputeEnvironment
from windfall.jobs.errors import Invalid

#: The tag that names the labels which a machine must have: `gpu=a100,zone=b`.
LABELS = "windfall:labels"
#: The label that instanceTypes are compared with.
TYPE = "type"
#: Instance types that mean any.
_ANY_TYPE = frozenset({"optimal", "default_x86_64", "default_arm64"})
_KEY = re.compile(r"[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?\Z", re.ASCII)
_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z", re.ASCII)
_MOST_LABELS = 32


def parse_labels(text: str) -> Mapping[str, str]:
    """Read `key=value` pairs with commas or spaces between them; raises Invalid with what is wrong."""
    pairs = [part for part in re.split(r"[,\s]+", text) if part]
    if not pairs:
        raise Invalid("labels are key=value pairs with commas between them, such as gpu=a100,zone=b")
    return check_labels(part.partition("=")[::2] for part in pairs)


def check_labels(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """These labels; raises Invalid for one that cannot be a label, for two of one key, and for too many."""
    labels: dict[str, str] = {}
    for key, value in pairs:
        if not _KEY.match(key) or not _VALUE.match(value):
            raise Invalid(
                f"{f'{key}={value}'[:100]!r} is not a label; write key=value, the key in lower case, both of letters,"
                " digits and . _ - and at most 63 characters long"
            )
        if labels.setdefault(key, value) != value:
            raise Invalid(f"the label {key} is given twice, as {labels[key]} and as {value}; give it once")
    if len(labels) > _MOST_LABELS:
        raise Invalid(f"{len(labels)} labels are too many; a machine has at most {_MOST_LABELS}")
    return labels


def check_tag(environment: ComputeEnvironment) -> None:
    """Raise Invalid if the environment's tag for labels cannot be read."""
    if (text := environment.tags.get(LABELS)) is not None:
        try:
            parse_labels(text)
        except Invalid as problem:
            raise Invalid(f"The tag {LABELS} cannot be read: {problem}") from None


def refuse_tag(environment: ComputeEnvironment, engine: str) -> None:
    """Raise Invalid if the environment chooses machines by labels, for an engine whose machines have none."""
    if LABELS in environment.tags:
        raise Invalid(
            f"{LABELS} chooses among machines, and {environment.name} would run on the engine {engine}, which has"
            " only this host; add the tag windfall:engine=hosts, or leave it out"
        )


def chooses(environment: ComputeEnvironment, labels: Mapping[str, str]) -> bool:
    """Whether an environment means a machine with these labels."""
    wanted = _wanted(environment.tags.get(LABELS))
    if wanted is None or any(labels.get(key) != value for key, value in wanted):
        return False
    types = environment.instance_types
    return not types or any(_is_type(named, labels.get(TYPE)) for named in types)


def _is_type(named: str, type_: str | None) -> bool:
    if named in _ANY_TYPE:
        return True
    return type_ is not None and (named == type_ or named == type_.partition(".")[0])


@lru_cache(maxsize=256)
def _wanted(text: str | None) -> tuple[tuple[str, str], ...] | None:
    """The labels that a tag names; None for one that cannot be read, which no machine satisfies."""
    if text is None:
        return ()
    try:
        return tuple(parse_labels(text).items())
    except Invalid:
        return None
