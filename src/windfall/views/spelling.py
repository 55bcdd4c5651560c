"""How values are spelled in Windfall's own answers: names in camelCase, times in milliseconds, null for unknown.

Decides spelling alone; must not know any value.
"""

from __future__ import annotations

import math
from dataclasses import fields
from functools import cache
from typing import Any

#: One answer, or a part of it, as JSON has it.
Answer = dict[str, Any]

#: The fields of each kind of measurement, and how they are spelled.
_FIELDS: dict[type, tuple[tuple[str, str], ...]] = {}


@cache
def camel(name: str) -> str:
    """`usd_hour` as `usdHour`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def picked(value: Any, names: str) -> Answer:
    """These attributes of a value (names with spaces between them), each under its name in camelCase."""
    return {camel(name): getattr(value, name) for name in names.split()}


def measured(value: Any) -> Answer:
    """All numbers of a measurement: five digits are more than was measured, and JSON has no NaN."""
    kind = type(value)
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple((field.name, camel(field.name)) for field in fields(kind))
    return {spelled: _known(getattr(value, name)) for name, spelled in _FIELDS[kind]}


def _known(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else float(f"{value:.5g}")
