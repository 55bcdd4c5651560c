"""One request on its way: what was asked, what the replica is sent, and the bytes of the answer.

Decides which headers pass in either direction; all others are left out, as SageMaker does. Must not know sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from windfall.usher.balance import LiveEndpoint, LiveReplica, LiveVariant
from windfall.usher.event_stream import CONTENT_TYPE as EVENT_STREAM

if TYPE_CHECKING:
    from windfall.usher.client_side import ClientConnection
    from windfall.usher.replica_side import ReplicaConnection

TARGET_VARIANT = b"x-amzn-sagemaker-target-variant"
_ACCEPT_OF_STREAM = b"x-amzn-sagemaker-accept"
#: Headers of a request that a model sees.
_TO_MODEL = (
    b"content-type",
    b"x-amzn-sagemaker-custom-attributes",
    b"x-amzn-sagemaker-inference-id",
    b"x-amzn-sagemaker-target-model",
    b"x-amzn-sagemaker-session-id",
)
#: Headers of a model's answer that a client sees.
_TO_CLIENT = (
    b"x-amzn-sagemaker-custom-attributes",
    b"x-amzn-sagemaker-new-session-id",
    b"x-amzn-sagemaker-closed-session-id",
)


class Exchange:
    """A request from its last byte to the end of its answer."""

    __slots__ = (
        "client",
        "request_id",
        "endpoint",
        "variant",
        "replica",
        "connection",
        "to_model",
        "streams",
        "deadline",
        "tried",
        "times",
        "began_answer",
        "lacks_replica",
        "ended",
    )

    def __init__(
        self,
        client: ClientConnection | None,
        request_id: str,
        endpoint: LiveEndpoint[Exchange],
        variant: LiveVariant[Exchange],
        times: list[float],
    ) -> None:
        """`times` has the moments of the first byte, of the last byte and of the verified signature."""
        #: None for a copy, and once the client has left.
        self.client = client
        self.request_id = request_id
        self.endpoint = endpoint
        self.variant = variant
        self.replica: LiveReplica | None = None
        self.connection: ReplicaConnection | None = None
        self.to_model = b""
        self.streams = False
        self.deadline = 0.0
        #: Replicas that could not be reached.
        self.tried: set[str] = set()
        self.times = times
        #: The head of a streamed answer was sent.
        self.began_answer = False
        #: It waits for any replica at all, and not for its turn.
        self.lacks_replica = False
        self.ended = False

    @property
    def limit_s(self) -> float:
        """How long it may take from its last byte to the end of its answer."""
        route = self.variant.route
        return route.stream_timeout_s if self.streams else route.timeout_s

    @property
    def log_stream_arn(self) -> str:
        """Where the output of its replica is."""
        group = self.variant.route.log_group_arn
        if not group or self.replica is None or not self.replica.route.log_stream:
            return ""
        return f"{group}:log-stream:{self.replica.route.log_stream}"

    def copy_for(self, variant: LiveVariant[Exchange]) -> Exchange:
        """The same request for a shadow variant, with nobody to answer to."""
        copy = Exchange(None, self.request_id, self.endpoint, variant, list(self.times))
        copy.to_model = self.to_model
        return copy


class ModelAnswer:
    """What has come of a model's answer."""

    __slots__ = ("status", "headers", "parts", "size")

    def __init__(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status = status
        self.headers = headers
        self.parts: list[bytes] = []
        self.size = 0


def request_to_model(headers: Mapping[bytes, bytes], body: bytes, *, streams: bool) -> bytes:
    """The whole request that a replica gets."""
    lines = [b"POST /invocations HTTP/1.1\r\nhost: model\r\ncontent-length: %d\r\n" % len(body)]
    lines += [b"%b: %b\r\n" % (name, headers[name]) for name in _TO_MODEL if name in headers]
    accept = headers.get(_ACCEPT_OF_STREAM if streams else b"accept")
    if accept is not None:
        lines.append(b"accept: %b\r\n" % accept)
    lines += [b"\r\n", body]
    return b"".join(lines)


def answer_head(
    exchange: Exchange, headers: Mapping[bytes, bytes], length: int | None, *, close: bool
) -> bytes:
    """The head of an answer to the client; without a length it is a stream of events."""
    kind = headers.get(b"content-type", b"application/octet-stream")
    lines = [b"HTTP/1.1 200 OK\r\n"]
    if length is None:
        lines.append(b"content-type: %b\r\nx-amzn-sagemaker-content-type: %b\r\n" % (EVENT_STREAM, kind))
        lines.append(b"transfer-encoding: chunked\r\n")
    else:
        lines.append(b"content-type: %b\r\ncontent-length: %d\r\n" % (kind, length))
    lines.append(
        b"x-amzn-requestid: %b\r\nx-amzn-invoked-production-variant: %b\r\n"
        % (exchange.request_id.encode("ascii"), exchange.variant.route.name.encode("ascii"))
    )
    lines += [b"%b: %b\r\n" % (name, headers[name]) for name in _TO_CLIENT if name in headers]
    lines.append(b"connection: close\r\n\r\n" if close else b"\r\n")
    return b"".join(lines)


def chunk(content: bytes) -> bytes:
    """One chunk of a body without a length; an empty one ends it."""
    return b"%x\r\n%b\r\n" % (len(content), content)
