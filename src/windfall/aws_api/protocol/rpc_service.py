"""A service whose clients speak one of three protocols: rpc-v2-cbor, JSON with a target header, or the query protocol.

Decides which one a request is in, reads it by botocore's model, and answers in the same. The handlers see none of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windfall.aws_api.protocol.cbor import cbor_answer, epoch, read_cbor, speaks_cbor
from windfall.aws_api.protocol.errors import (
    ApiError,
    SerializationError,
    ServiceDefinitionError,
    UnknownOperationError,
    UnsupportedOperationError,
    ValidationError,
)
from windfall.aws_api.protocol.operations import load_service_model, parse_object
from windfall.aws_api.protocol.query_forms import form_fields, read_form, write_xml
from windfall.aws_api.protocol.refusals import XML, speaks_query, xml_refusal, xml_text
from windfall.aws_api.protocol.request import HttpRequest, Response
from windfall.aws_api.protocol.serialization import compile_dump, encode_json
from windfall.aws_api.protocol.service import ApiService, Call, Caller, Handler, Role
from windfall.aws_api.protocol.validation import Check, ShapeCompiler

_JSON = b"application/x-amz-json-1.0"
#: (output, request id) -> response.
Write = Callable[[Mapping[str, Any], str], Response]


@dataclass(frozen=True, slots=True)
class _Asked:
    operation: str
    params: dict[str, Any]
    write: Write


class RpcService(ApiService):
    """An AWS service of several protocols, driven by botocore's model of it."""

    content_type = _JSON

    def __init__(self, name: str, handlers: Mapping[str, Handler], roles: Mapping[str, Role]) -> None:
        super().__init__(name, handlers, roles)
        self._handlers = dict(handlers)
        self._model = load_service_model(name, handlers)
        unknown = sorted(set(handlers) - set(self._model.operation_names))
        if unknown:
            raise ServiceDefinitionError(f"{name} has no operations {unknown}; check the spelling.")
        self.signing_name = self._model.signing_name
        self._prefix = self._model.metadata["targetPrefix"]
        self._namespace = self._model.metadata["xmlNamespace"]
        compiler = ShapeCompiler()
        self._checks: dict[str, Check] = {
            operation: compiler.compile(self._model.operation_model(operation).input_shape)
            for operation in handlers
        }

    async def answer(self, request: HttpRequest, caller: Caller, region: str, request_id: str) -> Response:
        """Read, authorise, validate, call the handler, and write its answer in the caller's protocol."""
        parsed = self._read(request)
        self._authorise(parsed.operation, caller)
        violations: list[str] = []
        try:
            params = self._checks[parsed.operation](parsed.params, None, violations)
        except RecursionError:
            raise SerializationError("The request body is nested too deeply.") from None
        if violations:
            raise ValidationError(violations)
        call = Call(self.name, parsed.operation, params, caller, region, request_id, len(request.body))
        return parsed.write(await self._handlers[parsed.operation](call), request_id)

    def refuse_to(self, request: HttpRequest) -> Callable[[ApiError, str], Response]:
        """Errors in the protocol of the request; those of CBOR are written before a service is known."""
        return xml_refusal if speaks_query(request) else self.refuse

    def _read(self, request: HttpRequest) -> _Asked:
        if speaks_cbor(request):
            name = self._named(request.path.removeprefix(f"/service/{self._prefix}/operation/"))
            return _Asked(name, read_cbor(request.body), self._in_cbor(name))
        if speaks_query(request):
            fields = form_fields(request)
            name = self._named(dict(fields).get("Action", ""))
            shape = self._model.operation_model(name).input_shape
            params = read_form(
                shape, [(key, text) for key, text in fields if key not in ("Action", "Version")]
            )
            return _Asked(name, params, self._in_xml(name))
        target = request.headers.get(b"x-amz-target", b"").decode("latin-1")
        name = self._named(target.removeprefix(f"{self._prefix}."))
        return _Asked(name, parse_object(request.body), self._in_json(name))

    def _named(self, name: str) -> str:
        if name not in self._model.operation_names:
            raise UnknownOperationError(f"There is no operation {name[:200]!r} in this service.", 400)
        if name not in self._handlers:
            raise UnsupportedOperationError(name, "InvalidAction")
        return name

    def _in_cbor(self, operation: str) -> Write:
        shape = self._model.operation_model(operation).output_shape
        return lambda output, _: cbor_answer(compile_dump(shape, epoch)(output))

    def _in_json(self, operation: str) -> Write:
        shape = self._model.operation_model(operation).output_shape
        return lambda output, _: Response(200, _JSON, encode_json(compile_dump(shape)(output)))

    def _in_xml(self, operation: str) -> Write:
        shape = self._model.operation_model(operation).output_shape

        def write(output: Mapping[str, Any], request_id: str) -> Response:
            text = (
                f'<{operation}Response xmlns="{self._namespace}">'
                f"<{operation}Result>{write_xml(shape, output)}</{operation}Result>"
                f"<ResponseMetadata><RequestId>{xml_text(request_id)}</RequestId></ResponseMetadata>"
                f"</{operation}Response>"
            )
            return Response(200, XML, text.encode("utf-8"))

        return write
