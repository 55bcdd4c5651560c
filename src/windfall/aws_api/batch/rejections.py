"""How a refusal reads: AWS Batch has one error for callers, and a sentence around each text that tools
match on.

Decides codes and wrapping. Must not know when something is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windfall.aws_api.batch.members import REFUSED
from windfall.aws_api.protocol.errors import ApiError

CLIENT_EXCEPTION = "ClientException"
_SHOWN_CHARACTERS = 256


def client_exception(message: str) -> ApiError:
    """The one error that AWS Batch has for requests that cannot be carried out."""
    return ApiError(CLIENT_EXCEPTION, message)


def shown(text: str) -> str:
    """A caller's own text, short enough for an error message."""
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def wrap_error(error: ApiError, request_id: str) -> ApiError:
    """Put AWS Batch's sentence around the text of a ClientException; other codes stay as they are."""
    if error.code != CLIENT_EXCEPTION:
        return error
    message = f"Error executing request, Exception : {error.message}, RequestId: {request_id}"
    return ApiError(error.code, message, error.status, error.members)


def does_not_exist(what: str) -> ApiError:
    """The refusal of a name or ARN that stands for nothing."""
    return client_exception(f"{shown(what)} does not exist")


def unsupported(what: str) -> ApiError:
    """The refusal of something that AWS has and Windfall has not; nothing has been changed."""
    return client_exception(f"Windfall does not support {what} yet. Nothing has been changed.")


def refuse_unsupported(operation: str, params: Mapping[str, Any]) -> None:
    """Raise unless every member that is set has behaviour here or can be kept without any."""
    refused = REFUSED[operation]
    if refused.keys().isdisjoint(params):
        return
    for member, what in refused.items():
        # Empty values ask for nothing; tools send them for fields that their users left out.
        if params.get(member) not in (None, "", [], {}):
            raise unsupported(f"{member} ({what})")
