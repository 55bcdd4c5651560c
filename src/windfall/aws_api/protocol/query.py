"""Services that speak AWS's query protocol: a form in, XML out.

Decides how an operation is named (the member Action) and how its answer is written. Only operations whose
answers are flat texts are known; another one is refused when the service is put together. Must not know what
any operation means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windfall.aws_api.protocol.errors import (
    ApiError,
    ServiceDefinitionError,
    UnknownOperationError,
    UnsupportedOperationError,
)
from windfall.aws_api.protocol.operations import load_service_model
from windfall.aws_api.protocol.query_forms import form_fields
from windfall.aws_api.protocol.refusals import XML, xml_refusal, xml_text
from windfall.aws_api.protocol.request import Request, Response
from windfall.aws_api.protocol.service import Call, Caller, Handler, Role, Service


class QueryService(Service):
    """An AWS service of the query protocol, driven by botocore's model of it."""

    content_type = XML

    def __init__(self, name: str, handlers: Mapping[str, Handler], roles: Mapping[str, Role]) -> None:
        super().__init__(name, handlers, roles)
        self._model = load_service_model(name, handlers)
        self.signing_name = self._model.signing_name
        self._namespace = self._model.metadata["xmlNamespace"]
        for operation in handlers:
            _check_flat(self._model, operation)

    async def answer(self, request: Request, caller: Caller, region: str, request_id: str) -> Response:
        """Find the operation by its Action, authorise, and call the handler."""
        fields = dict(form_fields(request))
        name = fields.pop("Action", "")
        if name not in self._model.operation_names:
            raise UnknownOperationError(
                f"There is no operation {name[:200]!r} in this service; send it as the member Action.", 400
            )
        handler = self._handlers.get(name)
        if handler is None:
            raise UnsupportedOperationError(name, "InvalidAction")
        self._authorise(name, caller)
        output = await handler(Call(self.name, name, fields, caller, region, request_id, len(request.body)))
        return Response(200, XML, self._written(name, output, request_id).encode("utf-8"))

    def refuse(self, error: ApiError, request_id: str, /) -> Response:
        """An error in XML."""
        return xml_refusal(error, request_id)

    def _written(self, operation: str, output: Mapping[str, Any], request_id: str) -> str:
        members = "".join(f"<{name}>{xml_text(str(value))}</{name}>" for name, value in output.items())
        return (
            f'<{operation}Response xmlns="{self._namespace}">'
            f"<{operation}Result>{members}</{operation}Result>"
            f"<ResponseMetadata><RequestId>{xml_text(request_id)}</RequestId></ResponseMetadata>"
            f"</{operation}Response>"
        )


def _check_flat(model: Any, operation: str) -> None:
    if operation not in model.operation_names:
        raise ServiceDefinitionError(f"{model.service_name} has no operation {operation}.")
    shape = model.operation_model(operation).output_shape
    if shape is None or any(member.type_name != "string" for member in shape.members.values()):
        raise ServiceDefinitionError(f"{operation} answers with more than texts, which is not supported.")
