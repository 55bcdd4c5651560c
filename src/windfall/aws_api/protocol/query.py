"""Services that speak AWS's query protocol: a form in, XML out.

Decides how an operation is named (the member Action) and how its answer is written, by botocore's model. Must not know
what any operation means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windfall.aws_api.protocol.errors import (
    ApiError,
    ServiceDefinitionError,
    UnknownOperationError,
    UnsupportedOperationError,
    ValidationError,
)
from windfall.aws_api.protocol.operations import load_service_model
from windfall.aws_api.protocol.query_forms import form_fields, read_form, write_xml
from windfall.aws_api.protocol.refusals import XML, xml_refusal, xml_text
from windfall.aws_api.protocol.request import HttpRequest, Response
from windfall.aws_api.protocol.service import ApiService, Call, Caller, Handler, Role
from windfall.aws_api.protocol.validation import Check, ShapeCompiler


class QueryService(ApiService):
    """An AWS service of the query protocol, driven by botocore's model of it."""

    content_type = XML

    def __init__(self, name: str, handlers: Mapping[str, Handler], roles: Mapping[str, Role]) -> None:
        super().__init__(name, handlers, roles)
        self._handlers = dict(handlers)
        self._model = load_service_model(name, handlers)
        self.signing_name = self._model.signing_name
        self._namespace = self._model.metadata["xmlNamespace"]
        unknown = sorted(set(handlers) - set(self._model.operation_names))
        if unknown:
            raise ServiceDefinitionError(f"{name} has no operations {unknown}; check the spelling.")
        compiler = ShapeCompiler()
        self._checks: dict[str, Check] = {
            operation: compiler.compile(self._model.operation_model(operation).input_shape)
            for operation in handlers
        }

    async def answer(self, request: HttpRequest, caller: Caller, region: str, request_id: str) -> Response:
        """Find the operation by its Action, authorise, validate, and call the handler."""
        fields = form_fields(request)
        name = dict(fields).get("Action", "")
        if name not in self._model.operation_names:
            raise UnknownOperationError(
                f"There is no operation {name[:200]!r} in this service; send it as the member Action.", 400
            )
        handler = self._handlers.get(name)
        if handler is None:
            raise UnsupportedOperationError(name, "InvalidAction")
        self._authorise(name, caller)
        params = self._validated(name, fields)
        output = await handler(Call(self.name, name, params, caller, region, request_id, len(request.body)))
        return Response(200, XML, self._written(name, output, request_id).encode("utf-8"))

    def _validated(self, operation: str, fields: Iterable[tuple[str, str]]) -> dict[str, Any]:
        shape = self._model.operation_model(operation).input_shape
        sent = [(key, text) for key, text in fields if key not in ("Action", "Version")]
        violations: list[str] = []
        params: dict[str, Any] = self._checks[operation](
            read_form(shape, sent) if shape is not None else {}, None, violations
        )
        if violations:
            raise ValidationError(violations)
        return params

    def refuse(self, error: ApiError, request_id: str, /) -> Response:
        """An error in XML."""
        return xml_refusal(error, request_id)

    def _written(self, operation: str, output: Mapping[str, Any], request_id: str) -> str:
        members = write_xml(self._model.operation_model(operation).output_shape, output)
        return (
            f'<{operation}Response xmlns="{self._namespace}">'
            f"<{operation}Result>{members}</{operation}Result>"
            f"<ResponseMetadata><RequestId>{xml_text(request_id)}</RequestId></ResponseMetadata>"
            f"</{operation}Response>"
        )
