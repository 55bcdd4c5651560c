"""What CloudWatch Logs refuses, in the words its clients look for.

    ApiError (of the protocol)
    `-- LogsError                    base of everything raised in this folder
        |-- ResourceNotFound         no such log group or log stream
        `-- InvalidParameter         understood, and not to be answered as it was asked

Decides codes and texts. Must not know when they apply.
"""

from __future__ import annotations

from windfall.aws_api.protocol.errors import ApiError


class LogsError(ApiError):
    """Base of every error that this folder raises."""


class ResourceNotFound(LogsError):
    """The log group or log stream does not exist (yet)."""

    def __init__(self, what: str) -> None:
        super().__init__("ResourceNotFoundException", f"The specified {what} does not exist.")


class InvalidParameter(LogsError):
    """A parameter, or a pair of them, that cannot be served."""

    def __init__(self, message: str) -> None:
        super().__init__("InvalidParameterException", message)


def group_not_found() -> ResourceNotFound:
    """Return the refusal that clients wait on until a job's first attempt has started."""
    return ResourceNotFound("log group")


def stream_not_found() -> ResourceNotFound:
    """Return the refusal that clients wait on until this attempt has started."""
    return ResourceNotFound("log stream")


def token_invalid() -> InvalidParameter:
    """Return the refusal of a token that this request did not get from an earlier answer."""
    return InvalidParameter(
        "The specified nextToken is invalid. "
        "Pass the token of the previous answer unchanged, with the same other parameters."
    )
