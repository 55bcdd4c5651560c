"""What an operation looks like on the wire: its request read into a dict, its answer written from one.

Decides where each member of a request comes from (body, path, query, header) and compiles that once per
operation, at its first use. Must not know handlers, keys or what any operation means.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from windfall.aws_api.protocol.errors import SerializationError, ServiceDefinitionError, ValidationError
from windfall.aws_api.protocol.request import HttpRequest, Response, percent_decode, query_pairs
from windfall.aws_api.protocol.routing import Labels
from windfall.aws_api.protocol.serialization import compile_response
from windfall.aws_api.protocol.validation import ShapeCompiler

_decode = msgspec.json.Decoder().decode
_BOOLEANS = {"true": True, "false": False}
_LOCATIONS = ("uri", "querystring", "header")

Read = Callable[[HttpRequest, Labels], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One compiled operation."""

    name: str
    read: Read
    write: Callable[[Mapping[str, Any]], Response]


@dataclass(frozen=True, slots=True)
class _Located:
    """A member that does not come from the body."""

    member: str
    location: str
    wire_name: str
    convert: Callable[[str], Any]
    repeated: bool


def load_service_model(name: str, described: Collection[str] | None = None) -> Any:
    """Return botocore's model of one service, without its documentation texts, which are most of its size.

    Of operations that are not among the `described` ones it has the names and routes alone (None: all are described).
    Of SageMaker's hundreds a few are served, and the shapes of the others would be ten megabytes.
    """
    # Imported here: botocore costs 100 ms that a program which only signs requests need not pay.
    import gzip

    from botocore.exceptions import UnknownServiceError
    from botocore.loaders import JSONFileLoader, Loader
    from botocore.model import ServiceModel

    class ModelFiles(JSONFileLoader):  # type: ignore[misc]  # botocore has no types
        def load_file(self, file_path: str) -> Any:
            """The same as botocore's own, without its ordered dictionaries: half the time and memory."""
            for extension, opened in ((".json", open), (".json.gz", gzip.open)):
                with contextlib.suppress(FileNotFoundError), opened(file_path + extension, "rb") as file:
                    return _decode(file.read())
            return None

    try:
        description = Loader(file_loader=ModelFiles()).load_service_model(name, "service-2")
    except UnknownServiceError:
        raise ServiceDefinitionError(f"botocore has no service model called {name!r}.") from None
    if described is not None:
        description = _describing(described, description)
    return ServiceModel(_without_documentation(description), name)


def compile_operation(model: Any, compiler: ShapeCompiler, content_type: bytes) -> Operation:
    """Compile one botocore operation model."""
    return Operation(model.name, _compile_read(model, compiler), compile_response(model, content_type))


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a body that must be a JSON object; an empty body counts as an empty object."""
    if not body:
        return {}
    try:
        parsed = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SerializationError(f"The request body is not valid JSON: {error}.") from None
    except RecursionError:
        raise SerializationError("The request body is nested too deeply.") from None
    if type(parsed) is not dict:
        raise SerializationError("The request body must be a JSON object.")
    return parsed


def _compile_read(model: Any, compiler: ShapeCompiler) -> Read:
    shape = model.input_shape
    if shape is None:
        return lambda request, _labels: _discard(parse_object(request.body))
    if shape.serialization.get("payload"):
        raise ServiceDefinitionError(f"{model.name} takes a payload member, which is not supported.")
    located: list[_Located] = []
    names: dict[str, str] = {}
    for name, member in shape.members.items():
        location = member.serialization.get("location")
        wire_name = member.serialization.get("name", name)
        if location is None:
            names[name] = wire_name
        elif location in _LOCATIONS:
            # Under its own name: what the body says under that name is overridden below.
            names[name] = name
            located.append(_locate(name, location, wire_name, member))
        else:
            raise ServiceDefinitionError(
                f"{model.name} takes {name} from {location}, which is not supported."
            )
    check = compiler.compile_structure(shape, names)

    def read(request: HttpRequest, labels: Labels) -> dict[str, Any]:
        raw = parse_object(request.body)
        if located:
            _fill_located(raw, located, request, labels)
        violations: list[str] = []
        try:
            params: dict[str, Any] = check(raw, None, violations)
        except RecursionError:
            raise SerializationError("The request body is nested too deeply.") from None
        if violations:
            raise ValidationError(violations)
        return params

    return read


def _locate(name: str, location: str, wire_name: str, member: Any) -> _Located:
    repeated = member.type_name == "list"
    leaf = (member.member if repeated else member).type_name
    return _Located(name, location, wire_name, _converter(leaf, name), repeated)


def _fill_located(raw: dict[str, Any], located: list[_Located], request: HttpRequest, labels: Labels) -> None:
    query = query_pairs(request.query) if request.query else []
    for place in located:
        raw.pop(place.member, None)
        if place.location == "uri":
            texts = [percent_decode(labels[place.wire_name])] if place.wire_name in labels else []
        elif place.location == "querystring":
            texts = [value for name, value in query if name == place.wire_name]
        else:
            value = request.headers.get(place.wire_name.lower().encode("ascii"))
            texts = [] if value is None else [value.decode("latin-1")]
        if texts:
            raw[place.member] = (
                [place.convert(text) for text in texts] if place.repeated else place.convert(texts[0])
            )


def _converter(kind: str, name: str) -> Callable[[str], Any]:
    """Return how a text of the URL or a header becomes what the same member would be in JSON."""
    if kind in ("integer", "long"):
        return lambda text: _number(text, int, name)
    if kind in ("float", "double"):
        return lambda text: _number(text, float, name)
    if kind == "boolean":
        # What is neither true nor false stays a text, and the check of the shape refuses it by name.
        return lambda text: _BOOLEANS.get(text, text)
    return str


def _number(text: str, kind: Callable[[str], Any], name: str) -> Any:
    # The length is bounded because reading a very long integer takes quadratic time.
    if len(text) <= 32 and text.isascii() and "_" not in text:
        try:
            return kind(text)
        except ValueError:
            pass
    raise SerializationError(f"Expected a number for '{name}', got '{text[:64]}'.")


def _discard(_parsed: dict[str, Any]) -> dict[str, Any]:
    return {}


def _describing(operations: Collection[str], description: dict[str, Any]) -> dict[str, Any]:
    """A model in which only some operations have shapes, with the shapes that these need."""
    models, shapes = {}, description["shapes"]
    waiting: list[Any] = []
    for name, operation in description["operations"].items():
        if name in operations:
            models[name] = operation
            waiting += [operation.get("input"), operation.get("output"), operation.get("errors")]
        else:
            models[name] = {key: operation[key] for key in ("name", "http") if key in operation}
    needed: dict[str, Any] = {}
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            shape = node.get("shape")
            if isinstance(shape, str) and shape not in needed:
                needed[shape] = shapes[shape]
                waiting.append(shapes[shape])
            waiting += node.values()
    return {**description, "operations": models, "shapes": needed}


def _without_documentation(node: Any) -> Any:
    if isinstance(node, dict):
        # A member may itself be called documentation; then it is a dict and no text.
        return {
            key: _without_documentation(value)
            for key, value in node.items()
            if not (key == "documentation" and isinstance(value, str))
        }
    if isinstance(node, list):
        return [_without_documentation(item) for item in node]
    return node
