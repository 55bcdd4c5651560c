"""Every wrong form of a request that a service's model knows of, made from one right request.

From botocore's model alone, so that a new operation or member is tried without anybody thinking of it. Knows nothing of
what an operation means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

#: A request may hold itself in itself (JSON schemas do); nobody needs to look deeper than this.
DEPTH = 7
LONGEST = 100_000
_WRONG = {
    "structure": ["text", [], 7],
    "list": ["text", {}, 7],
    "map": ["text", [], 7],
    "string": [7, {}, [], True],
    "character": [7, {}],
    "integer": ["text", 1.5, {}, True, 1 << 40],
    "long": ["text", 1.5, {}, True, 1 << 70],
    "float": ["text", {}, True],
    "double": ["text", {}, True],
    "boolean": ["yes", 1, {}],
    "timestamp": [{}, [], True],
    "blob": [7, "not base64!"],
}


@dataclass(frozen=True)
class Mutation:
    """One wrong request and what is wrong with it."""

    label: str
    params: Any


def example(shape: Any, depth: int = 0) -> Any:
    """A value that the model allows, with required members alone."""
    kind, limits = shape.type_name, shape.metadata
    if kind == "structure":
        return {name: example(shape.members[name], depth + 1) for name in shape.required_members}
    if kind == "list":
        return [example(shape.member, depth + 1) for _ in range(max(1, limits.get("min", 1)))]
    if kind == "map":
        return {example(shape.key): example(shape.value, depth + 1)}
    if kind in ("string", "character"):
        return limits["enum"][0] if "enum" in limits else "a" * max(1, min(limits.get("min", 1), LONGEST))
    if kind in ("integer", "long"):
        return max(1, limits.get("min", 1))
    if kind in ("float", "double"):
        return float(max(1, limits.get("min", 1)))
    return {"boolean": True, "timestamp": 1_700_000_000, "blob": "YQ=="}[kind]


def mutations(shape: Any, right: dict[str, Any], lenient: frozenset[str]) -> Iterator[Mutation]:
    """Each wrong form of a right request: one thing wrong at a time."""
    for steps, value in _wrong_members(shape, right, (), lenient, ()):
        yield Mutation(f"{'.'.join(map(str, steps))} = {_shown(value)}", _with(right, steps, value))


class Absent:
    """Stands for a member that is left out."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT = Absent()


def _wrong_members(
    shape: Any, value: Any, steps: tuple[Any, ...], lenient: frozenset[str], above: tuple[str, ...]
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(where, what to put there) for every wrong thing in and below a structure."""
    if len(steps) > DEPTH or shape.name in above:
        return
    above = (*above, shape.name)
    for name, member in shape.members.items():
        here = (*steps, name)
        location = member.serialization.get("location")
        if name in shape.required_members and location != "uri":
            yield here, ABSENT
        present = value.get(name) if isinstance(value, dict) else None
        present = example(member) if present is None else present
        free = f"{shape.name}.{name}" in lenient or member.name in lenient
        for wrong in _wrong_values(member, present, located=location is not None, free=free):
            yield here, wrong
        if location is None:
            yield from _below(member, present, here, lenient, above)


def _below(
    shape: Any, value: Any, steps: tuple[Any, ...], lenient: frozenset[str], above: tuple[str, ...]
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if shape.type_name == "structure":
        yield from _wrong_members(shape, value, steps, lenient, above)
    elif shape.type_name == "list" and value:
        item = value[0]
        yield (*steps, 0), None
        for wrong in _wrong_values(shape.member, item, located=False, free=shape.member.name in lenient):
            yield (*steps, 0), wrong
        yield from _below(shape.member, item, (*steps, 0), lenient, above)
    elif shape.type_name == "map" and value:
        key, item = next(iter(value.items()))
        for wrong in _wrong_values(shape.value, item, located=False, free=False):
            yield (*steps, key), wrong


def _wrong_values(shape: Any, present: Any, *, located: bool, free: bool) -> Iterator[Any]:
    """Values that the model does not allow in this place."""
    kind, limits = shape.type_name, shape.metadata
    if not located:
        yield from _WRONG[kind]
    elif kind not in ("string", "list"):
        yield "text"  # In a URL everything is text: only a wrong number or boolean has the wrong type.
    if kind in ("string", "character"):
        yield from _wrong_texts(limits, present, located=located, free=free)
    elif kind in ("integer", "long", "float", "double"):
        yield from [limits[name] + beyond for name, beyond in (("min", -1), ("max", 1)) if name in limits]
    elif kind == "list":
        yield from [[]] if limits.get("min") else []
        if limits.get("max", LONGEST) < LONGEST:
            yield [deepcopy(present[0]) for _ in range(limits["max"] + 1)]
    elif kind == "map" and limits.get("max", LONGEST) < LONGEST and present:
        item = next(iter(present.values()))
        yield {f"k{number}": deepcopy(item) for number in range(limits["max"] + 1)}


def _wrong_texts(limits: Any, present: str, *, located: bool, free: bool) -> Iterator[str]:
    if "enum" in limits and not free:
        yield "NO_SUCH_VALUE"
    if limits.get("max", LONGEST) < LONGEST:
        yield "a" * (limits["max"] + 1)
    yield from _unlike(limits)
    if not located:
        yield f"{present}\0"
        if limits.get("min"):
            yield ""


def _unlike(limits: Any) -> Iterator[str]:
    """A text of a length that is allowed, and of characters that the pattern does not."""
    pattern = limits.get("pattern")
    if pattern is None or limits.get("min", 1) > LONGEST:
        return
    text = "\x01" * max(1, limits.get("min", 1))
    try:
        compiled = re.compile(pattern)
    except re.error:
        return  # written for another language; not enforced
    if compiled.fullmatch(text) is None and len(text) <= limits.get("max", LONGEST):
        yield text


def _with(right: Any, steps: tuple[Any, ...], value: Any) -> Any:
    """A copy of a request with one place changed; what is missing on the way is made."""
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        items = list(right) if isinstance(right, list) and right else [None]
        items[step] = _with(items[step], rest, value)
        return items
    copy = dict(right) if isinstance(right, dict) else {}
    if not rest and value is ABSENT:
        copy.pop(step, None)
    else:
        copy[step] = _with(copy.get(step), rest, value)
    return copy


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:50]}... ({len(text)} characters)"
