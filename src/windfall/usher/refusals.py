"""What the usher answers itself: errors in the shape that SageMaker's runtime has, with a reason and what to do.

Decides codes, statuses and texts. Must not know connections.
"""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from windfall.aws_api.protocol.errors import ApiError, RequestSizeError, RequestTimeoutError

#: What SageMaker's model of the operation allows for a request, and for an answer.
BODY_LIMIT_BYTES = 6 * 1024 * 1024
#: Several times what the request line and headers of a signed request take.
HEAD_LIMIT_BYTES = 32 * 1024
#: How much of a model's own error is passed on.
_MESSAGE_CHARACTERS = 4096


def endpoint_not_found(name: str) -> ApiError:
    """No endpoint of this name, or none of the caller's tenant."""
    return ApiError("ValidationError", f"Endpoint {name} not found.")


def invalid(text: str) -> ApiError:
    """A request that can be read and is not valid."""
    return ApiError("ValidationError", text)


def queue_full(variant: str, waiting: int) -> ApiError:
    """As many requests wait as may wait."""
    return ApiError(
        "ThrottlingException",
        f"{waiting} requests wait for variant {variant}, which is its limit. Send fewer at once, or add instances.",
        429,
    )


def waited_too_long(variant: str, waited_s: float) -> ApiError:
    """No replica was free in time."""
    return ApiError(
        "ThrottlingException",
        f"No instance of variant {variant} was free within {waited_s:g} seconds. "
        "Send fewer requests at once, or add instances.",
        429,
    )


def no_replica(variant: str) -> ApiError:
    """No replica is ready."""
    return ApiError(
        "ServiceUnavailable", f"No instance of variant {variant} is ready now. Try again in a moment.", 503
    )


def endpoint_gone(name: str) -> ApiError:
    """The endpoint or variant left while the request waited."""
    return ApiError(
        "ValidationError", f"Endpoint {name} or its variant was deleted while the request waited."
    )


def overloaded() -> ApiError:
    """The bodies of all requests together fill the memory that they may have."""
    return ApiError(
        "ServiceUnavailable", "Too many large requests are being received. Try again in a moment.", 503
    )


def too_large() -> ApiError:
    """A body above the limit."""
    return RequestSizeError(BODY_LIMIT_BYTES)


def body_too_slow(timeout_s: float) -> ApiError:
    """A body that did not come in time."""
    return RequestTimeoutError(timeout_s)


def malformed() -> ApiError:
    """Bytes that are not HTTP, or a head above the limit."""
    return ApiError(
        "SerializationException",
        f"The request is not valid HTTP/1.1, or its head has more than {HEAD_LIMIT_BYTES} bytes.",
    )


def model_error(status: int, said: bytes, log_stream_arn: str) -> ApiError:
    """The model's own error: SageMaker wraps it in one of its own, with HTTP 424."""
    text = said[: 4 * _MESSAGE_CHARACTERS].decode("utf-8", "replace")[:_MESSAGE_CHARACTERS]
    side = "client" if 400 <= status < 500 else "server"
    return ApiError(
        "ModelError",
        f'Received {side} error ({status}) from primary with message "{text}"'
        + (f". Its log: {log_stream_arn}" if log_stream_arn else ""),
        424,
        {"OriginalStatusCode": status, "OriginalMessage": text, "LogStreamArn": log_stream_arn},
    )


def error_body(error: ApiError) -> bytes:
    """The JSON of an error; a text that is not valid Unicode is still written."""
    message = error.message.encode("utf-8", "replace").decode("utf-8")
    # Both spellings: the model of the runtime has `Message`, and its front door `message`.
    return msgspec.json.encode({"Message": message, "message": message, **error.members})


def error_answer(error: ApiError, request_id: str, *, close: bool) -> bytes:
    """The whole HTTP answer for an error."""
    body = error_body(error)
    try:
        phrase = HTTPStatus(error.status).phrase
    except ValueError:
        phrase = "Error"
    return (
        f"HTTP/1.1 {error.status} {phrase}\r\ncontent-type: application/json\r\n"
        f"x-amzn-errortype: {error.code}\r\nx-amzn-requestid: {request_id}\r\n"
        f"content-length: {len(body)}\r\n{'connection: close' if close else 'connection: keep-alive'}\r\n\r\n"
    ).encode("ascii") + body
