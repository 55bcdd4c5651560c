"""Compiles the shapes of a service model into functions that parse and check a request.

Decides which requests the model allows: required members, types, lengths, ranges, patterns and
enumerations, reported all at once in the words that AWS uses. Members that the model does not know are
ignored, and null counts as absent, as AWS does it. Must not know HTTP, routing or what any operation means.

A compiled check takes (value, path, violations) and returns the parsed value. A value of the wrong type
raises SerializationError at once; a broken constraint is added to the violations. Paths are built as pairs
(parent, name) and become text only when something is wrong, which keeps the good case fast.
"""

from __future__ import annotations

import base64
import binascii
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from windfall.aws_api.protocol.errors import SerializationError
from windfall.aws_api.protocol.timestamps import parse_timestamp
from windfall.jobs.tenants import TENANT_NAME

Path = tuple[Any, str] | None
Check = Callable[[Any, Path, list[str]], Any]

_SHOWN_CHARACTERS = 256
_INTEGER_BITS = {"integer": 31, "long": 63}
_JSON_TYPES = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}
# Java's Unicode classes as Python writes them inside brackets; slightly wider where Python has no equal.
_UNICODE_CLASSES = {"L": r"\w", "N": r"\w", "Z": r"\s", "Alnum": "A-Za-z0-9"}


class ShapeCompiler:
    """Turns shapes of one service model into checks, each shape once."""

    def __init__(
        self,
        lenient_enums: frozenset[str] = frozenset(),
        lenient_patterns: frozenset[str] = frozenset(),
        tenant_names: Mapping[str, str] | None = None,
    ) -> None:
        #: Enumerations not enforced: the enumeration's shape, or `Structure.member` for one place only.
        self._lenient_enums = lenient_enums
        #: Texts whose pattern is not enforced, by their shape.
        self._lenient_patterns = lenient_patterns
        #: Names that may begin with a tenant, by their shape, and what stands behind the tenant.
        self._tenant_names = tenant_names or {}
        self._compiled: dict[tuple[str, bool], Check] = {}

    def compile(self, shape: Any, *, lenient: bool = False) -> Check:
        """Return the check for a shape; shapes that contain themselves are allowed."""
        lenient = lenient or shape.name in self._lenient_enums
        key = (shape.name, lenient)
        check = self._compiled.get(key)
        if check is not None:
            return check

        def later(value: Any, path: Path, violations: list[str]) -> Any:
            return self._compiled[key](value, path, violations)

        self._compiled[key] = later
        check = self._build(shape, lenient)
        self._compiled[key] = check
        return check

    def compile_structure(self, shape: Any, wire_names: Mapping[str, str]) -> Check:
        """Return the check for a structure whose members arrive under the given wire names."""
        members = {}
        for name, member in shape.members.items():
            lenient = f"{shape.name}.{name}" in self._lenient_enums
            members[wire_names[name]] = (name, _label(name), self.compile(member, lenient=lenient))
        required = tuple((name, _label(name)) for name in shape.required_members)
        return _structure_check(members, required)

    def _build(self, shape: Any, lenient: bool) -> Check:
        kind = shape.type_name
        limits = shape.metadata
        if kind == "structure":
            names = {name: member.serialization.get("name", name) for name, member in shape.members.items()}
            return self.compile_structure(shape, names)
        if kind == "list":
            return _list_check(self.compile(shape.member, lenient=lenient), limits)
        if kind == "map":
            return _map_check(self.compile(shape.key), self.compile(shape.value), limits)
        if kind in ("string", "character"):
            if shape.name in self._lenient_patterns:
                limits = {name: limit for name, limit in limits.items() if name != "pattern"}
            check = _string_check(limits, enforce_enum=not lenient)
            separator = self._tenant_names.get(shape.name)
            return check if separator is None else _with_tenant(check, separator)
        if kind in _INTEGER_BITS:
            return _integer_check(_INTEGER_BITS[kind], limits)
        if kind in ("float", "double"):
            return _float_check(limits)
        if kind == "boolean":
            return _check_boolean
        if kind == "timestamp":
            return _check_timestamp
        if kind == "blob":
            return _blob_check(limits)
        raise SerializationError(
            f"The service model has a member of type {kind}, which Windfall cannot read."
        )


def _structure_check(
    members: Mapping[str, tuple[str, str, Check]], required: tuple[tuple[str, str], ...]
) -> Check:
    def check(value: Any, path: Path, violations: list[str]) -> Any:
        if type(value) is not dict:
            raise _wrong_type("an object", value, path)
        parsed: dict[str, Any] = {}
        for wire_name, item in value.items():
            member = members.get(wire_name)
            if member is not None and item is not None:
                name, label, check_member = member
                parsed[name] = check_member(item, (path, label), violations)
        for name, label in required:
            if name not in parsed:
                violations.append(_violation(None, (path, label), "Member must not be null"))
        return parsed

    return check


def _list_check(check_item: Check, limits: Mapping[str, Any]) -> Check:
    least, most = limits.get("min"), limits.get("max")

    def check(value: Any, path: Path, violations: list[str]) -> Any:
        if type(value) is not list:
            raise _wrong_type("a list", value, path)
        _check_length(value, least, most, path, violations)
        parsed = []
        for position, item in enumerate(value, 1):
            place = (path, f"{position}.member")
            if item is None:
                violations.append(_violation(None, place, "Member must not be null"))
            else:
                parsed.append(check_item(item, place, violations))
        return parsed

    return check


def _map_check(check_key: Check, check_value: Check, limits: Mapping[str, Any]) -> Check:
    most = limits.get("max")

    def check(value: Any, path: Path, violations: list[str]) -> Any:
        if type(value) is not dict:
            raise _wrong_type("an object", value, path)
        # Not the least size: clients send empty maps of tags, and services take them as none.
        _check_length(value, None, most, path, violations)
        parsed = {}
        for key, item in value.items():
            place = (path, f"{key[:_SHOWN_CHARACTERS]}.member")
            if item is None:
                violations.append(_violation(None, place, "Member must not be null"))
            else:
                parsed[check_key(key, path, violations)] = check_value(item, place, violations)
        return parsed

    return check


def _string_check(limits: Mapping[str, Any], *, enforce_enum: bool) -> Check:
    least, most = limits.get("min"), limits.get("max")
    choices = frozenset(limits.get("enum", ())) if enforce_enum else frozenset()
    choices_text = f"Member must satisfy enum value set: [{', '.join(limits.get('enum', ()))}]"
    pattern = _compile_pattern(limits.get("pattern"))
    pattern_text = f"Member must satisfy regular expression pattern: {limits.get('pattern')}"
    secret = bool(limits.get("sensitive"))

    def check(value: Any, path: Path, violations: list[str]) -> Any:
        if type(value) is not str:
            raise _wrong_type("a string", value, path)
        if "\0" in value:
            # No process argument, file name or PostgreSQL text can hold one.
            violations.append(
                _violation(value, path, "Member must not contain NUL characters", secret=secret)
            )
        if choices and value not in choices:
            violations.append(_violation(value, path, choices_text, secret=secret))
        # An over-long value is not matched as well: that keeps costly patterns away from megabytes.
        fits = _check_length(value, least, most, path, violations, secret=secret)
        if fits and pattern is not None and pattern.fullmatch(value) is None:
            violations.append(_violation(value, path, pattern_text, secret=secret))
        return value

    return check


def _with_tenant(check: Check, separator: str) -> Check:
    """A check of a name that may begin with its tenant."""

    def checked(value: Any, path: Path, violations: list[str]) -> Any:
        tenant, divider, given = value.partition(separator) if type(value) is str else ("", "", "")
        check(given if divider and TENANT_NAME.fullmatch(tenant) else value, path, violations)
        return value

    return checked


def _integer_check(bits: int, limits: Mapping[str, Any]) -> Check:
    least, most = limits.get("min"), limits.get("max")
    top = 1 << bits

    def check(value: Any, path: Path, violations: list[str]) -> Any:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int:
            raise _wrong_type("an integer", value, path)
        if not -top <= value < top:
            raise SerializationError(f"The number at '{_text(path)}' does not fit {bits + 1} bits.")
        _check_range(value, least, most, path, violations)
        return value

    return check


def _float_check(limits: Mapping[str, Any]) -> Check:
    least, most = limits.get("min"), limits.get("max")

    def check(value: Any, path: Path, violations: list[str]) -> Any:
        if type(value) is not float and type(value) is not int:
            raise _wrong_type("a number", value, path)
        try:
            number = float(value)
        except OverflowError:
            raise SerializationError(f"The number at '{_text(path)}' is too large.") from None
        _check_range(number, least, most, path, violations)
        return number

    return check


def _blob_check(limits: Mapping[str, Any]) -> Check:
    least, most = limits.get("min"), limits.get("max")

    def check(value: Any, path: Path, violations: list[str]) -> Any:
        if type(value) is not str:
            raise _wrong_type("a base64 string", value, path)
        try:
            content = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise SerializationError(f"The string at '{_text(path)}' is not valid base64.") from None
        _check_length(content, least, most, path, violations)
        return content

    return check


def _check_boolean(value: Any, path: Path, _violations: list[str]) -> Any:
    if type(value) is not bool:
        raise _wrong_type("a boolean", value, path)
    return value


def _check_timestamp(value: Any, path: Path, _violations: list[str]) -> Any:
    seconds = parse_timestamp(value)
    if seconds is None:
        raise _wrong_type("a timestamp", value, path)
    return seconds


def _check_length(
    value: Any,
    least: int | None,
    most: int | None,
    path: Path,
    violations: list[str],
    *,
    secret: bool = False,
) -> bool:
    if least is not None and len(value) < least:
        text = f"Member must have length greater than or equal to {least}"
    elif most is not None and len(value) > most:
        text = f"Member must have length less than or equal to {most}"
    else:
        return True
    violations.append(_violation(value, path, text, secret=secret))
    return False


def _check_range(
    value: float, least: float | None, most: float | None, path: Path, violations: list[str]
) -> None:
    if least is not None and value < least:
        violations.append(_violation(value, path, f"Member must have value greater than or equal to {least}"))
    elif most is not None and value > most:
        violations.append(_violation(value, path, f"Member must have value less than or equal to {most}"))


def _compile_pattern(pattern: str | None) -> re.Pattern[str] | None:
    """Return the pattern for Python; None, not enforced, where it uses what Python does not know."""
    if pattern is None:
        return None

    def unicode_class(match: re.Match[str]) -> str:
        return _UNICODE_CLASSES.get(match[1], match[0])

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(re.sub(r"\\p\{(\w+)\}", unicode_class, pattern))
    except re.error:
        return None


def _violation(value: Any, path: Path, text: str, *, secret: bool = False) -> str:
    if secret:
        shown = "Value"
    elif value is None:
        shown = "Value null"
    else:
        plain = f"{value}" if len(f"{value}") <= _SHOWN_CHARACTERS else f"{value}"[:_SHOWN_CHARACTERS] + "..."
        shown = f"Value '{plain}'"
    return f"{shown} at '{_text(path)}' failed to satisfy constraint: {text}"


def _wrong_type(expected: str, value: Any, path: Path) -> SerializationError:
    got = _JSON_TYPES.get(type(value), "null")
    where = f"'{_text(path)}'" if path is not None else "the top of the request"
    return SerializationError(f"Expected {expected} at {where}, got {got}.")


def _text(path: Path) -> str:
    names: list[str] = []
    while path is not None:
        path, name = path
        names.append(name)
    return ".".join(reversed(names))


def _label(name: str) -> str:
    return name[:1].lower() + name[1:]
