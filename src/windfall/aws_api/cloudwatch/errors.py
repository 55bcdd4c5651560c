"""CloudWatch's own errors: every one says what to send instead."""

from __future__ import annotations

from windfall.aws_api.protocol.errors import ApiError


def invalid_value(message: str) -> ApiError:
    """A parameter with an invalid value."""
    return ApiError("InvalidParameterValue", message)


def invalid_combination(message: str) -> ApiError:
    """Parameters that contradict one another."""
    return ApiError("InvalidParameterCombination", message)


def invalid_token() -> ApiError:
    """A token that does not belong to this request."""
    return ApiError("InvalidNextToken", "The token was not given out for this request; ask again without it.")
