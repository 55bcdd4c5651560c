"""Finds which operation a request asks for, from tables made once out of a service model.

Decides between AWS's two ways: rest-json names the operation by method and path, json 1.1 by the X-Amz-
Target header. Must not know shapes, handlers or keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from windfall.aws_api.protocol.errors import ServiceDefinitionError, UnknownOperationError
from windfall.aws_api.protocol.request import HttpRequest

#: Parts of the path that are parameters, by label, still percent-encoded.
Labels = Mapping[str, str]

_NO_LABELS: Labels = {}
_SHOWN_CHARACTERS = 200


class Router(Protocol):
    """Names the operation of a request."""

    def route(self, request: HttpRequest) -> tuple[str, Labels]:
        """Return the operation's name and path labels; raise UnknownOperationError where there is none."""
        ...


class RestRouter:
    """Routes by method and path template."""

    def __init__(self, operations: Mapping[str, Mapping[str, Any]]) -> None:
        self._fixed: dict[tuple[str, str], str] = {}
        self._templates: list[tuple[str, re.Pattern[str], str]] = []
        for name, http in operations.items():
            method, template = http["method"], http["requestUri"].partition("?")[0]
            if "{" in template:
                self._templates.append((method, _compile_template(template), name))
            else:
                self._fixed[method, template] = name
        # The longest template first: it is the most particular one.
        self._templates.sort(key=lambda entry: len(entry[1].pattern), reverse=True)

    def route(self, request: HttpRequest) -> tuple[str, Labels]:
        """Return the operation whose method and path the request has."""
        name = self._fixed.get((request.method, request.path))
        if name is not None:
            return name, _NO_LABELS
        for method, pattern, name in self._templates:
            if method == request.method and (match := pattern.fullmatch(request.path)):
                return name, match.groupdict()
        raise UnknownOperationError(
            f"There is no operation {request.method} {request.path[:_SHOWN_CHARACTERS]} in this service."
        )


class TargetRouter:
    """Routes by the X-Amz-Target header."""

    def __init__(self, prefix: str, operations: Mapping[str, Any]) -> None:
        self._prefix = prefix
        self._names = {f"{prefix}.{name}".encode("ascii"): name for name in operations}

    def route(self, request: HttpRequest) -> tuple[str, Labels]:
        """Return the operation that the header names."""
        target = request.headers.get(b"x-amz-target")
        if request.method != "POST" or request.path != "/":
            raise UnknownOperationError(
                f"This service answers POST / only, not {request.method} {request.path[:_SHOWN_CHARACTERS]}."
            )
        if target is None:
            raise UnknownOperationError(
                f"The header X-Amz-Target: {self._prefix}.<operation> is missing.", 400
            )
        name = self._names.get(target)
        if name is None:
            shown_target = target.decode("latin-1")[:_SHOWN_CHARACTERS]
            raise UnknownOperationError(f"There is no operation {shown_target!r} in this service.", 400)
        return name, _NO_LABELS


def router_for(model: Any) -> Router:
    """Return the router that a botocore service model asks for."""
    operations = {name: model.operation_model(name).http for name in model.operation_names}
    if model.protocol == "rest-json":
        return RestRouter(operations)
    if model.protocol == "json":
        return TargetRouter(model.metadata["targetPrefix"], operations)
    raise ServiceDefinitionError(f"The protocol {model.protocol} of {model.service_name} is not supported.")


def _compile_template(template: str) -> re.Pattern[str]:
    """Return a pattern with a group per label; a label at the end may contain slashes, as ARNs do."""
    pieces = re.split(r"\{(\w+)(\+?)\}", template)
    pattern = re.escape(pieces[0])
    for position in range(1, len(pieces), 3):
        label, greedy, literal = pieces[position : position + 3]
        last = position + 3 >= len(pieces) and not literal
        pattern += f"(?P<{label}>{'.+' if greedy or last else '[^/]+'}){re.escape(literal)}"
    return re.compile(pattern)
