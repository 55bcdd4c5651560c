"""A service: which operations it answers, who may call them, and the way from a request to an answer.

Decides, per request, in this order: which operation, whether Windfall has it, whether the caller's role
suffices, whether the request is valid; then calls the handler. Must not know signatures, ASGI or what any
operation means.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from windfall.aws_api.protocol.errors import (
    AccessDeniedError,
    ApiError,
    SerializationError,
    ServiceDefinitionError,
    UnknownOperationError,
    UnsupportedOperationError,
    ValidationError,
)
from windfall.aws_api.protocol.keys import Key, Role
from windfall.aws_api.protocol.operations import (
    Operation,
    compile_operation,
    load_service_model,
    parse_object,
)
from windfall.aws_api.protocol.refusals import json_refusal
from windfall.aws_api.protocol.request import HttpRequest, Response
from windfall.aws_api.protocol.routing import Labels, router_for
from windfall.aws_api.protocol.serialization import encode_json
from windfall.aws_api.protocol.validation import ShapeCompiler
from windfall.control.origins import Origin
from windfall.jobs.submitters import Submitter

__all__ = [
    "ApiService",
    "Call",
    "Caller",
    "Handler",
    "ModelledService",
    "OnBehalfOf",
    "PlainHandler",
    "PlainService",
    "Role",
    "WrapError",
]

_PLAIN_PREFIX = "/windfall/v1/"
_PLAIN_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Caller:
    """The key that signed a request: its role, its tenant and the Unix account that its jobs run as, if any.

    Of a session it is the key that it was made from, with the session's role.
    """

    access_key_id: str
    role: Role
    tenant: str
    user: str | None = None
    #: When a session ends, in milliseconds since the epoch; None for a key.
    ends_at: int | None = None
    #: Whether it is a session of an admin key that may only read: it sees what its key sees.
    reads_all: bool = False

    @classmethod
    def of(cls, key: Key) -> Caller:
        """The caller that holds a key."""
        return cls(key.access_key_id, key.role, key.tenant, key.user)

    @classmethod
    def of_session(cls, session: Key, parent: Key, ends_at: int) -> Caller:
        """The caller that holds a session of a key."""
        reads_all = parent.role is Role.ADMIN and session.role is Role.READ
        return replace(cls.of(session), ends_at=ends_at, reads_all=reads_all)

    @property
    def sees_all(self) -> bool:
        """Whether what other tenants have exists for it."""
        return self.role is Role.ADMIN or self.reads_all

    @classmethod
    def of_submitter(cls, submitter: Submitter) -> Caller:
        """The caller of something that a key asked for earlier, with at most the rights to submit or, by an admin, to
        name any storage."""
        role = Role.ADMIN if submitter.is_admin else Role.SUBMIT
        return cls(submitter.key_id, role, submitter.tenant, submitter.user)

    @property
    def submitter(self) -> Submitter:
        """What the core remembers of it."""
        return Submitter(self.tenant, self.access_key_id, self.role is Role.ADMIN, self.user)


@dataclass(frozen=True, slots=True)
class OnBehalfOf:
    """Who a part of the daemon acts for: a caller with its tenant and role; and what its request is for."""

    caller: Caller
    #: None where a client asked for it at this moment.
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One authentic, valid request, as handlers see it."""

    service: str
    operation: str
    params: dict[str, Any]
    caller: Caller
    region: str
    request_id: str
    #: Bytes of the request's body.
    size: int
    #: What the daemon itself makes the request for; None for a client's.
    origin: Origin | None = None


Handler = Callable[[Call], Awaitable[dict[str, Any]]]
#: One of Windfall's own operations may also answer in bytes.
PlainHandler = Callable[[Call], Awaitable[dict[str, Any] | Response]]
#: Gives an error of a service its final form: (error, request id) -> error.
WrapError = Callable[[ApiError, str], ApiError]


class ApiService(ABC):
    """What the application asks of a service."""

    #: The service name in the credential scope of requests that are meant for it.
    signing_name: str
    #: Content type of its answers, errors included.
    content_type: bytes

    def __init__(self, name: str, handled: Collection[str], roles: Mapping[str, Role]) -> None:
        without_role = sorted(set(handled) - set(roles))
        if without_role:
            raise ServiceDefinitionError(
                f"Give a minimal role to these operations of {name}: {without_role}."
            )
        self.name = name
        self._roles = dict(roles)

    @property
    def operations(self) -> Mapping[str, Role]:
        """The operations that it answers, each with the least role that may call it."""
        return self._roles

    @abstractmethod
    async def answer(self, request: HttpRequest, caller: Caller, region: str, request_id: str) -> Response:
        """Answer an authentic request; raise ApiError to refuse it."""

    def refuse_to(self, _request: HttpRequest, /) -> Callable[[ApiError, str], Response]:
        """How errors are written for the client that sent this request."""
        return self.refuse

    def refuse(self, error: ApiError, _request_id: str, /) -> Response:
        """An error in the form that clients of this service read; JSON has the request id in a header alone."""
        return json_refusal(error, self.content_type)

    def _authorise(self, operation: str, caller: Caller) -> None:
        needed = self._roles[operation]
        if caller.role < needed:
            raise AccessDeniedError(
                f"The key {caller.access_key_id} has the role {caller.role.name.lower()}, and "
                f"{self.name}:{operation} needs {needed.name.lower()}. "
                f"An admin can make such a key: `windfall keys create --role {needed.name.lower()}`."
            )


class ModelledService(ApiService):
    """An AWS service, driven by botocore's model of it."""

    def __init__(
        self,
        name: str,
        handlers: Mapping[str, Handler],
        roles: Mapping[str, Role],
        *,
        lenient_enums: frozenset[str] = frozenset(),
        lenient_patterns: frozenset[str] = frozenset(),
        tenant_names: Mapping[str, str] | None = None,
        wrap_error: WrapError | None = None,
        validation_code: str = "ValidationException",
        unsupported_code: str = "UnsupportedOperation",
    ) -> None:
        """Load the model of `name`.

        `lenient_enums` names enumerations that are not enforced: by their shape (`RetryAction`) or at one
        place (`EvaluateOnExit.action`). `lenient_patterns` names texts of which more is understood here than their
        pattern allows. `tenant_names` names texts that may begin with a tenant, each with what stands behind that: so
        administrators name the things of others. `validation_code` and `unsupported_code` are the error codes that
        clients of this service expect. `wrap_error` has the last word on what handlers, validation and
        missing operations answer; what the front door refuses (keys, roles, routes) does not pass it.
        """
        super().__init__(name, handlers, roles)
        self._handlers = dict(handlers)
        self._model = load_service_model(name, handlers)
        unknown = sorted(set(handlers) - set(self._model.operation_names))
        if unknown:
            raise ServiceDefinitionError(
                f"{name} has no operations {unknown}; check the spelling of the handlers."
            )
        self.signing_name = self._model.signing_name
        self.content_type = (
            b"application/json" if self._model.protocol == "rest-json" else b"application/x-amz-json-1.1"
        )
        self._router = router_for(self._model)
        self._compiler = ShapeCompiler(lenient_enums, lenient_patterns, tenant_names)
        self._operations: dict[str, Operation] = {}
        self._wrap_error = wrap_error
        self._validation_code = validation_code
        self._unsupported_code = unsupported_code

    async def answer(self, request: HttpRequest, caller: Caller, region: str, request_id: str) -> Response:
        """Route, authorise, validate, call the handler and write its answer."""
        name, labels = self._router.route(request)
        output = await self._perform(name, labels, request, caller, region, request_id)
        return self._operations[name].write(output)

    async def perform(
        self, name: str, body: bytes, on_behalf_of: OnBehalfOf, region: str, request_id: str
    ) -> dict[str, Any]:
        """Perform an operation for a part of the daemon, validated and refused as if it came over the wire.

        Only for operations whose members are all in the body, a JSON object.
        """
        request = HttpRequest("POST", "/", "", {}, body)
        return await self._perform(
            name, {}, request, on_behalf_of.caller, region, request_id, on_behalf_of.origin
        )

    async def _perform(
        self,
        name: str,
        labels: Labels,
        request: HttpRequest,
        caller: Caller,
        region: str,
        request_id: str,
        origin: Origin | None = None,
    ) -> dict[str, Any]:
        handler = self._handlers.get(name)
        if handler is not None:
            self._authorise(name, caller)
        try:
            if handler is None:
                raise UnsupportedOperationError(name, self._unsupported_code)
            operation = self._operations.get(name) or self._compile(name)
            params = operation.read(request, labels)
            size = len(request.body)
            return await handler(Call(self.name, name, params, caller, region, request_id, size, origin))
        except ApiError as error:
            if isinstance(error, ValidationError):
                error.code = self._validation_code
            if self._wrap_error is None:
                raise
            raise self._wrap_error(error, request_id) from error

    def _compile(self, name: str) -> Operation:
        operation = compile_operation(self._model.operation_model(name), self._compiler, self.content_type)
        self._operations[name] = operation
        return operation


class PlainService(ApiService):
    """Windfall's own operations: POST /windfall/v1/<operation>, a JSON object in, and a JSON object or bytes out."""

    content_type = b"application/json"

    def __init__(self, name: str, handlers: Mapping[str, PlainHandler], roles: Mapping[str, Role]) -> None:
        super().__init__(name, handlers, roles)
        self._handlers = dict(handlers)
        self.signing_name = name

    async def answer(self, request: HttpRequest, caller: Caller, region: str, request_id: str) -> Response:
        """Route by the path's last part, authorise, and call the handler."""
        name = request.path.removeprefix(_PLAIN_PREFIX)
        handler = self._handlers.get(name) if request.path.startswith(_PLAIN_PREFIX) else None
        if handler is None or request.method != "POST":
            raise UnknownOperationError(
                f"There is no operation {request.method} {request.path[:200]}; Windfall's own are POST "
                f"{_PLAIN_PREFIX}<operation>: {', '.join(sorted(self._handlers))}."
            )
        self._authorise(name, caller)
        params = parse_object(request.body)
        _check_plain(params, _PLAIN_DEPTH)
        output = await handler(Call(self.name, name, params, caller, region, request_id, len(request.body)))
        return (
            output if isinstance(output, Response) else Response(200, self.content_type, encode_json(output))
        )


def _check_plain(value: Any, depth: int) -> None:
    """Refuse what no modelled service would let through: NUL characters and bottomless nesting."""
    if isinstance(value, str):
        if "\0" in value:
            raise SerializationError("A text of the request contains a NUL character.")
    elif isinstance(value, list | dict):
        if depth == 0:
            raise SerializationError("The request body is nested too deeply.")
        if isinstance(value, dict):
            for key in value:
                _check_plain(key, depth)
        for item in value.values() if isinstance(value, dict) else value:
            _check_plain(item, depth - 1)
