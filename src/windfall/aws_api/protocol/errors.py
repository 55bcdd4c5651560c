"""What the wire can refuse, and with which code and HTTP status.

    WireError                        base of everything raised in this folder
    |-- KeyFileError                 the file with access keys cannot be used as it is
    |-- ServiceDefinitionError       a service was put together wrongly (found at start, never per request)
    `-- ApiError                     an answer to the caller: code, message, HTTP status
        |-- AuthenticationError      unsigned, mis-signed, expired, unknown key
        |-- AccessDeniedError        the key is genuine, its role is too low
        |-- UnknownOperationError    no such method, path, target or service
        |-- UnsupportedOperationError  a real AWS operation that Windfall has no behaviour for yet
        |-- SerializationError       the body or a parameter cannot be parsed
        |-- ValidationError          parsed, but against the constraints of the model
        |-- AnsweredElsewhereError   only another daemon, the one that leads, can answer this
        `-- RequestSizeError, RequestTimeoutError

Decides codes and statuses that AWS's front door decides. Must not know the texts of any one service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class WireError(Exception):
    """Base of every error that this folder raises."""


class KeyFileError(WireError):
    """The file with access keys is missing, malformed or open to other users."""


class ServiceDefinitionError(WireError):
    """Handlers, roles and service model do not fit together."""


class ApiError(WireError):
    """An error answer: AWS's code, a text for the user, and the HTTP status."""

    def __init__(
        self, code: str, message: str, status: int = 400, members: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        #: Further members of the modelled error shape, for codes that have any.
        self.members: Mapping[str, Any] = members or {}

    def __str__(self) -> str:
        return f"{self.code} ({self.status}): {self.message}"


class AuthenticationError(ApiError):
    """The request does not prove who sent it."""

    def __init__(self, code: str, message: str, status: int = 403) -> None:
        super().__init__(code, message, status)


class AnsweredElsewhereError(ApiError):
    """Only the daemon that leads can answer this; nothing has been changed here."""

    def __init__(self) -> None:
        super().__init__(
            "ServiceUnavailable",
            "The Windfall daemons are changing their leader; try again in a moment.",
            503,
        )


class AccessDeniedError(ApiError):
    """The caller is known and may not do this."""

    def __init__(self, message: str) -> None:
        super().__init__("AccessDeniedException", message, 403)


class UnknownOperationError(ApiError):
    """Nothing is served under what was asked."""

    def __init__(self, message: str, status: int = 404) -> None:
        super().__init__("UnknownOperationException", message, status)


class UnsupportedOperationError(ApiError):
    """AWS has this operation; Windfall does not have it yet."""

    def __init__(self, operation: str, code: str = "UnsupportedOperation") -> None:
        super().__init__(code, f"Windfall does not support {operation} yet.")
        self.operation = operation


class SerializationError(ApiError):
    """The request cannot be read as what the operation expects."""

    def __init__(self, message: str) -> None:
        super().__init__("SerializationException", message)


class ValidationError(ApiError):
    """The request is readable and breaks constraints of the service model."""

    def __init__(self, violations: Sequence[str], code: str = "ValidationException") -> None:
        count = len(violations)
        errors = "error" if count == 1 else "errors"
        super().__init__(code, f"{count} validation {errors} detected: {'; '.join(violations)}")
        self.violations = tuple(violations)


class RequestSizeError(ApiError):
    """The body is larger than any request needs to be."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            "RequestEntityTooLargeException", f"The request body must not exceed {limit_bytes} bytes.", 413
        )


class RequestTimeoutError(ApiError):
    """The body did not arrive in time."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(
            "RequestTimeoutException",
            f"The request body did not arrive within {timeout_s:g} seconds; check its Content-Length.",
            408,
        )


def missing_authentication() -> AuthenticationError:
    """Return the refusal of a request that carries no signature."""
    return AuthenticationError(
        "MissingAuthenticationTokenException",
        'The request is not signed. Run `eval "$(windfall env)"` to give your client its keys.',
    )


def incomplete_signature(what: str) -> AuthenticationError:
    """Return the refusal of a request whose signature cannot be read."""
    return AuthenticationError("IncompleteSignatureException", f"The signature is incomplete: {what}.", 400)


def invalid_signature(what: str) -> AuthenticationError:
    """Return the refusal of a request whose signature is readable and not valid."""
    return AuthenticationError("InvalidSignatureException", what)


def unrecognized_client() -> AuthenticationError:
    """Return the refusal of an unknown or revoked key, in words that do not tell the two apart."""
    return AuthenticationError(
        "UnrecognizedClientException",
        "The access key or session token of this request is not valid here. "
        "Run `windfall keys list` to see the valid keys.",
    )


def internal_failure() -> ApiError:
    """Return the answer to an internal error; details go to the log and never to the caller."""
    return ApiError(
        "InternalFailure",
        "Windfall failed on this request; its log has the details under this request id.",
        500,
    )
