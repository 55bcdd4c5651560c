"""Nested members in the query protocol: `Queries.member.1.Stat.Period=60` into lists and structures, and XML back.

Driven by botocore's shapes. Decides names and types of texts; must not know operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from windfall.aws_api.protocol.errors import SerializationError
from windfall.aws_api.protocol.refusals import xml_text
from windfall.aws_api.protocol.request import HttpRequest, query_pairs
from windfall.aws_api.protocol.timestamps import dump_timestamp

_FIELDS_MAX = 10_000
_ITEMS_MOST = 10_000
_BOOLEANS = {"true": True, "false": False}


def form_fields(request: HttpRequest) -> list[tuple[str, str]]:
    """The members of a request as they were sent: those of the form, and of the URL of a presigned one."""
    try:
        form = parse_qsl(
            request.body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX
        )
    except (UnicodeDecodeError, ValueError):
        raise SerializationError("The request body is not a form of percent-encoded UTF-8.") from None
    return [*query_pairs(request.query), *form]


def read_form(shape: Any, fields: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The members of a request by their shape; what the shape does not have is left out."""
    tree: dict[str, Any] = {}
    for name, text in fields:
        *above, last = name.split(".")
        node = tree
        for part in above:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise SerializationError(f"{name[:200]} is both a text and a structure.")
        if isinstance(node.get(last), dict):
            raise SerializationError(f"{name[:200]} is both a text and a structure.")
        node[last] = text
    read = _value(shape, tree)
    assert isinstance(read, dict)
    return read


def _value(shape: Any, node: Any) -> Any:
    kind = shape.type_name
    if kind == "structure":
        if not isinstance(node, dict):
            raise SerializationError(f"{shape.name} must be a structure.")
        members = (
            (name, member, member.serialization.get("name", name)) for name, member in shape.members.items()
        )
        return {name: _value(member, node[wire]) for name, member, wire in members if wire in node}
    if kind == "list":
        return _items(shape, node)
    if isinstance(node, dict):
        raise SerializationError(f"{shape.name} must be a text, not a structure.")
    return _leaf(kind, node)


def _items(shape: Any, node: Any) -> list[Any]:
    if node == "":
        return []  # how an empty list is sent
    numbered = node.get(shape.member.serialization.get("name", "member")) if isinstance(node, dict) else None
    if not isinstance(numbered, dict) or not all(key.isascii() and key.isdigit() for key in numbered):
        raise SerializationError(f"{shape.name} must be a list: NAME.member.1, NAME.member.2, ...")
    if len(numbered) > _ITEMS_MOST:
        raise SerializationError(f"{shape.name} has more than {_ITEMS_MOST} items.")
    return [_value(shape.member, numbered[key]) for key in sorted(numbered, key=lambda key: (len(key), key))]


def _leaf(kind: str, text: str) -> Any:
    """A text as its type; one that is none of that type stays a text, and the check of the shape refuses it."""
    if kind == "boolean":
        return _BOOLEANS.get(text, text)
    if (
        kind in ("integer", "long", "float", "double")
        and len(text) <= 32
        and text.isascii()
        and "_" not in text
    ):
        try:
            return int(text) if kind in ("integer", "long") else float(text)
        except ValueError:
            return text
    return text


def write_xml(shape: Any, value: Mapping[str, Any]) -> str:
    """The members of an answer as XML elements."""
    return "".join(
        _element(member.serialization.get("name", name), member, value[name])
        for name, member in shape.members.items()
        if value.get(name) is not None
    )


def _element(name: str, shape: Any, value: Any) -> str:
    return f"<{name}>{_content(shape, value)}</{name}>"


def _content(shape: Any, value: Any) -> str:
    kind = shape.type_name
    if kind == "structure":
        return write_xml(shape, value)
    if kind == "list":
        item = shape.member.serialization.get("name", "member")
        return "".join(_element(item, shape.member, item_value) for item_value in value)
    if kind == "map":
        return "".join(
            f"<entry>{_element('key', shape.key, key)}{_element('value', shape.value, item_value)}</entry>"
            for key, item_value in value.items()
        )
    if kind == "timestamp":
        return str(dump_timestamp(value, "iso8601"))
    if kind == "boolean":
        return "true" if value else "false"
    return xml_text(str(value))
