"""How a refusal reads: SageMaker's codes, and the sentences that its clients know.

Decides codes and texts. Must not know when something is refused.
"""

from __future__ import annotations

from windfall.aws_api.protocol.errors import ApiError, ValidationError

VALIDATION = "ValidationException"
RESOURCE_IN_USE = "ResourceInUse"
_SHOWN_CHARACTERS = 256


def invalid(message: str) -> ApiError:
    """The refusal of a request that contradicts itself or what exists; SageMaker's model has no name for it."""
    return ApiError(VALIDATION, message)


def in_use(message: str) -> ApiError:
    """The refusal of a name that is taken, or of a change to what still runs."""
    return ApiError(RESOURCE_IN_USE, message)


def not_found() -> ApiError:
    """The refusal of a name that stands for nothing; the stock waiter depends on this code."""
    return invalid("Requested resource not found.")


def missing(*members: str) -> ApiError:
    """The refusal of a request that lacks what its model merely allows to lack."""
    return ValidationError(
        [
            f"Value null at '{member}' failed to satisfy constraint: Member must not be null"
            for member in members
        ]
    )


def unsupported(what: str, instead: str) -> ApiError:
    """The refusal of something that AWS has and Windfall has not; nothing has been changed."""
    return invalid(f"Windfall does not support {what}: {instead}. Nothing has been changed.")


def shown(text: str) -> str:
    """A caller's own text, short enough for an error message."""
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
