"""How an error looks on the wire: AWS's JSON form, and the XML form of services that speak the query
protocol.

Decides the bytes of an error answer, and the codes that the query protocol has other names for. Must not know
when something is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.sax.saxutils import escape

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.request import HttpRequest, Response
from windfall.aws_api.protocol.serialization import encode_json

JSON = b"application/json"
XML = b"text/xml"
_FORM = b"application/x-www-form-urlencoded"
#: Characters that XML 1.0 cannot hold, not even escaped.
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: What the front door says in JSON -> what the same refusal is called in the query protocol.
_QUERY_CODES: Mapping[str, str] = {
    "UnrecognizedClientException": "InvalidClientTokenId",
    "InvalidSignatureException": "SignatureDoesNotMatch",
    "IncompleteSignatureException": "IncompleteSignature",
    "MissingAuthenticationTokenException": "MissingAuthenticationToken",
    "AccessDeniedException": "AccessDenied",
    "UnknownOperationException": "InvalidAction",
    "SerializationException": "MalformedInput",
    "ValidationException": "ValidationError",
}


def json_refusal(error: ApiError, content_type: bytes) -> Response:
    """An error as the JSON services write it."""
    # Handlers may quote file names or log lines that are not valid text; an error must always be writable.
    message = error.message.encode("utf-8", "replace").decode("utf-8")
    body = {**error.members, "__type": error.code, "message": message}
    return Response(
        error.status, content_type, encode_json(body), ((b"x-amzn-errortype", error.code.encode("ascii")),)
    )


def xml_refusal(error: ApiError, request_id: str) -> Response:
    """An error as the query protocol writes it."""
    side = "Sender" if error.status < 500 else "Receiver"
    code = _QUERY_CODES.get(error.code, error.code)
    body = (
        f"<ErrorResponse><Error><Type>{side}</Type><Code>{xml_text(code)}</Code>"
        f"<Message>{xml_text(error.message)}</Message></Error>"
        f"<RequestId>{xml_text(request_id)}</RequestId></ErrorResponse>"
    )
    return Response(error.status, XML, body.encode("utf-8"))


def xml_text(text: str) -> str:
    """A text inside an XML element; what XML cannot hold becomes a question mark."""
    return escape(_NOT_IN_XML.sub("?", text))


def speaks_query(request: HttpRequest) -> bool:
    """Whether a client that sent this expects XML, told before its signature says which service it means."""
    return request.headers.get(b"content-type", b"").lower().startswith(_FORM)
