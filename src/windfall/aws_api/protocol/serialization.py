"""Compiles the output shape of an operation into a function that writes its answer.

Decides how a handler's plain dict becomes a body, headers and a status: members that are None or not in the
model are left out, timestamps are seconds, blobs base64. Must not know HTTP servers or what any operation
means.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from windfall.aws_api.protocol.errors import ServiceDefinitionError
from windfall.aws_api.protocol.request import Response
from windfall.aws_api.protocol.timestamps import dump_timestamp

#: None stands for a value that is written as it is; most leaves are, and calling nothing is the fastest call.
Dump = Callable[[Any], Any] | None
#: Writes seconds since the epoch.
Moment = Callable[[float], Any]

_encode = msgspec.json.Encoder().encode


def compile_response(operation: Any, content_type: bytes) -> Callable[[Mapping[str, Any]], Response]:
    """Return the function that writes the answer of an operation."""
    shape = operation.output_shape
    default_status = int(operation.http.get("responseCode", 200))
    if shape is None:
        return lambda _output: Response(default_status, content_type, b"{}")
    if shape.serialization.get("payload") or getattr(shape, "event_stream_name", None):
        raise ServiceDefinitionError(
            f"{operation.name} answers with a stream or payload, which is not supported."
        )
    compiled: dict[str, Dump] = {}
    status_member: str | None = None
    in_headers: list[tuple[str, bytes, Any]] = []
    in_body: dict[str, tuple[str, Dump]] = {}
    for name, member in shape.members.items():
        location = member.serialization.get("location")
        wire_name = member.serialization.get("name", name)
        if location == "statusCode":
            status_member = name
        elif location == "header":
            in_headers.append((name, wire_name.lower().encode("ascii"), member))
        elif location is None:
            in_body[name] = (wire_name, _compile(member, compiled))
        else:
            raise ServiceDefinitionError(f"{operation.name} answers in {location}, which is not supported.")
    dump_body = _structure_dump(in_body)

    def dump(output: Mapping[str, Any]) -> Response:
        status = default_status
        if status_member is not None and output.get(status_member) is not None:
            status = int(output[status_member])
        headers = tuple(
            (wire_name, _header_text(output[name], member))
            for name, wire_name, member in in_headers
            if output.get(name) is not None
        )
        return Response(status, content_type, _encode(dump_body(output)), headers)

    return dump


def compile_dump(shape: Any, moment: Moment | None = None) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function that makes a structure plain; `moment` writes timestamps, by default as the shape says."""
    dump = _compile(shape, {}, moment)
    assert dump is not None, f"{shape.name} is not a structure"
    return dump


def encode_json(value: Any) -> bytes:
    """Write a plain value as JSON."""
    return _encode(value)


def _compile(shape: Any, compiled: dict[str, Dump], moment: Moment | None = None) -> Dump:
    if shape.name in compiled:
        return compiled[shape.name]
    kind = shape.type_name
    if kind == "structure":
        # A shape may contain itself: it is known under its name before its members are compiled.
        members: dict[str, tuple[str, Dump]] = {}
        dump: Dump = _structure_dump(members)
        compiled[shape.name] = dump
        for name, member in shape.members.items():
            members[name] = (member.serialization.get("name", name), _compile(member, compiled, moment))
        return dump
    if kind in ("list", "map"):
        compiled[shape.name] = lambda value: built(value) if built is not None else value
        inner = _compile(shape.member if kind == "list" else shape.value, compiled, moment)
        built = None if inner is None else (_list_dump(inner) if kind == "list" else _map_dump(inner))
        compiled[shape.name] = built
        return built
    if kind == "timestamp" and moment is not None:
        return moment
    if kind == "timestamp":
        form = shape.serialization.get("timestampFormat", "unixTimestamp")
        return lambda value: dump_timestamp(value, form)
    if kind == "blob":
        return lambda value: base64.b64encode(value).decode("ascii")
    return None


def _structure_dump(members: Mapping[str, tuple[str, Dump]]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    def dump(value: Mapping[str, Any]) -> dict[str, Any]:
        written = {}
        for name, item in value.items():
            if item is not None:
                member = members.get(name)
                if member is not None:
                    wire_name, dump_member = member
                    written[wire_name] = item if dump_member is None else dump_member(item)
        return written

    return dump


def _list_dump(dump_item: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    return lambda value: [dump_item(item) for item in value]


def _map_dump(dump_item: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    return lambda value: {key: dump_item(item) for key, item in value.items() if item is not None}


def _header_text(value: Any, shape: Any) -> bytes:
    if shape.type_name == "timestamp":
        text = str(dump_timestamp(value, shape.serialization.get("timestampFormat", "rfc822")))
    elif shape.type_name == "boolean":
        text = "true" if value else "false"
    else:
        text = str(value)
    # A line break would end the header and begin one of the caller's choosing.
    return text.replace("\r", " ").replace("\n", " ").encode("utf-8")
