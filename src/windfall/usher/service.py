"""What becomes of a request: verified, given a variant and a replica, forwarded, answered, counted.

Decides the order of these, when a request waits, when it is tried on another replica (only if it was not begun), and
what its client hears when something fails. Callbacks instead of tasks: a task for each request would cost as much as
all the rest. Must not know files or processes.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable

import msgspec

from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Key
from windfall.hosting.routes import RouteTable
from windfall.hosting.traffic import EndpointTraffic
from windfall.usher.balance import Balance, LiveEndpoint, LiveReplica, LiveVariant, endpoint_traffic
from windfall.usher.client_side import ClientConnection, Incoming, RefusedConnection
from windfall.usher.event_stream import exception, payload_parts
from windfall.usher.exchange import (
    TARGET_VARIANT,
    Exchange,
    ModelAnswer,
    answer_head,
    chunk,
    request_to_model,
)
from windfall.usher.gatekeeper import Gatekeeper, is_health_check
from windfall.usher.refusals import (
    BODY_LIMIT_BYTES,
    endpoint_gone,
    endpoint_not_found,
    error_answer,
    invalid,
    model_error,
    no_replica,
    queue_full,
    waited_too_long,
)
from windfall.usher.replica_side import ReplicaPool

#: How often deadlines are looked at.
SWEEP_EVERY_S = 0.25
#: How long a request waits for a variant to have any replica that can be reached: one may be in a table to come.
UNREADY_S = 1.0
#: The bodies of all requests together.
HELD_BYTES_MOST = 512 * 1024 * 1024
CONNECTIONS_MOST = 8192

_HEALTHY = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n{"status":"ok"}'


class UsherService:
    """All requests of one usher."""

    def __init__(
        self,
        find_key: Callable[[str], Key | None],
        refresh: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`refresh` looks whether there is a newer table."""
        self._refresh = refresh
        self._gatekeeper = Gatekeeper(find_key, clock)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._balance: Balance[Exchange] = Balance()
        self._pools: dict[LiveReplica, ReplicaPool] = {}
        self._answers: dict[Exchange, ModelAnswer] = {}
        self._under_way: set[Exchange] = set()
        self.clients: set[ClientConnection] = set()
        self.held_bytes = 0
        self.held_bytes_most = HELD_BYTES_MOST
        self.refused = 0

    @property
    def under_way(self) -> int:
        """Requests that were received and are not answered, copies included."""
        return len(self._under_way)

    def connect(self) -> asyncio.Protocol:
        """A new connection of a client; beyond the limit it is closed at once."""
        if len(self.clients) >= CONNECTIONS_MOST:
            return RefusedConnection()
        client = ClientConnection(self)
        self.clients.add(client)
        return client

    def new_request_id(self) -> str:
        """An id for an answer."""
        return str(uuid.uuid4())

    def screen(self, method: str, url: bytes, headers: dict[bytes, bytes]) -> ApiError | None:
        """Refuse by its head what no body can make right."""
        return self._gatekeeper.screen(method, url, headers)

    def on_refused(self) -> None:
        """A connection refused a request itself."""
        self.refused += 1

    def on_request(self, client: ClientConnection, request: Incoming) -> None:
        """Begin with a request."""
        if is_health_check(request.method, request.url):
            client.end_answer(_HEALTHY)
            return
        request_id = self.new_request_id()
        try:
            exchange = self._exchange(client, request, request_id)
        except ApiError as error:
            self.refused += 1
            client.end_answer(error_answer(error, request_id, close=client.closes))
            return
        client.exchange = exchange
        exchange.endpoint.last_request_at = int(self._clock() * 1000)
        self._under_way.add(exchange)
        for shadow in exchange.endpoint.copies():
            self._copy(exchange, shadow)
        self._route(exchange)

    def _exchange(self, client: ClientConnection, request: Incoming, request_id: str) -> Exchange:
        tenant, target = self._gatekeeper.admit(request)
        times = [request.began_at, request.received_at, self._loop.time()]
        endpoint = self._balance.find(tenant, target.endpoint)
        if endpoint is None:
            self._refresh()  # It may have been made a moment ago.
            endpoint = self._balance.find(tenant, target.endpoint)
        if endpoint is None:
            raise endpoint_not_found(target.endpoint)
        variant = self._variant(endpoint, request.headers)
        exchange = Exchange(client, request_id, endpoint, variant, times)
        exchange.streams = target.streams
        exchange.deadline = times[2] + exchange.limit_s
        exchange.to_model = request_to_model(request.headers, request.body, streams=exchange.streams)
        return exchange

    def _variant(
        self, endpoint: LiveEndpoint[Exchange], headers: dict[bytes, bytes]
    ) -> LiveVariant[Exchange]:
        named = headers.get(TARGET_VARIANT)
        if named is not None:
            variant = endpoint.variants.get(named.decode("latin-1"))
            if variant is None or variant.route.shadow:
                endpoint.invalid += 1
                raise invalid(
                    f"Variant {named.decode('latin-1')[:100]} not found for endpoint {endpoint.route.name}."
                )
            return variant
        chosen = endpoint.choose(self._loop.time())
        if chosen is None:
            raise no_replica(endpoint.route.name)
        return chosen

    def _copy(self, exchange: Exchange, shadow: LiveVariant[Exchange]) -> None:
        replica = None if exchange.streams else shadow.pick(self._loop.time())
        if replica is None:
            shadow.copies_dropped += 1
            return
        copy = exchange.copy_for(shadow)
        copy.deadline = exchange.times[2] + copy.limit_s
        self._under_way.add(copy)
        self._send(copy, replica)

    def _route(self, exchange: Exchange) -> None:
        """Send a request to a replica, or let it wait, or refuse it."""
        variant, now = exchange.variant, self._loop.time()
        # Those that wait were first.
        replica = None if variant.waiting and not exchange.tried else variant.pick(now, exchange.tried)
        if replica is not None:
            self._send(exchange, replica)
        elif exchange.client is None:
            self._drop(exchange)
        elif not variant.can_serve(now) and exchange.tried:
            self._refuse_unavailable(exchange)
        elif variant.is_full():
            variant.throttled += 1
            self._refuse(exchange, queue_full(variant.route.name, len(variant.waiting)))
        elif exchange.tried:
            variant.waiting.appendleft(exchange)
        else:
            if not variant.can_serve(now):
                exchange.lacks_replica = True
                exchange.deadline = min(exchange.deadline, now + UNREADY_S)
            variant.waiting.append(exchange)

    def _refuse_unavailable(self, exchange: Exchange) -> None:
        exchange.variant.unavailable += 1
        self._refuse(exchange, no_replica(exchange.variant.route.name))

    def _send(self, exchange: Exchange, replica: LiveReplica) -> None:
        replica.in_flight += 1
        exchange.replica = replica
        if exchange.lacks_replica:
            exchange.lacks_replica = False
            exchange.deadline = exchange.times[2] + exchange.limit_s
        times = exchange.times
        del times[3:]
        times.append(self._loop.time())
        pool = self._pools.get(replica)
        if pool is None:
            pool = self._pools[replica] = ReplicaPool(replica, self)
        pool.send(exchange)

    def _dispatch(self, variant: LiveVariant[Exchange], now: float) -> None:
        """Send on what waits, as far as replicas are free."""
        while variant.waiting:
            replica = variant.pick(now)
            if replica is None:
                return
            self._send(variant.waiting.popleft(), replica)

    def on_unreachable(self, exchange: Exchange, replica: LiveReplica) -> None:
        """No connection: certainly not begun, so another replica may have it."""
        now = self._loop.time()
        replica.failed(now)
        exchange.tried.add(replica.route.id)
        exchange.replica = None
        self._release(exchange.variant, replica, now)
        if not exchange.ended:
            self._route(exchange)

    def _release(self, variant: LiveVariant[Exchange], replica: LiveReplica, now: float) -> None:
        replica.in_flight -= 1
        if replica.gone and not replica.in_flight:
            self._forget(replica)
            if replica in variant.leaving:
                variant.leaving.remove(replica)
        if variant.waiting:
            self._dispatch(variant, now)

    def _forget(self, replica: LiveReplica) -> None:
        pool = self._pools.pop(replica, None)
        if pool is not None:
            pool.close()

    def on_answer_begun(self, exchange: Exchange, status: int, headers: dict[bytes, bytes]) -> None:
        """Status and headers of the model."""
        self._answers[exchange] = ModelAnswer(status, headers)
        if exchange.streams and status < 300 and exchange.client is not None:
            exchange.began_answer = True
            exchange.client.write(answer_head(exchange, headers, None, close=exchange.client.closes))

    def on_answer_part(self, exchange: Exchange, part: bytes) -> None:
        """A part of the model's answer: passed on at once if it is streamed, kept otherwise."""
        if exchange.began_answer:
            if exchange.client is not None:
                exchange.client.write(chunk(payload_parts(part)))
            return
        answer = self._answers[exchange]
        answer.size += len(part)
        if answer.size <= BODY_LIMIT_BYTES:
            answer.parts.append(part)

    def on_answer_ended(self, exchange: Exchange) -> None:
        """The model's answer is whole."""
        answer = self._answers.pop(exchange)
        assert exchange.replica is not None
        exchange.replica.answered()
        status = answer.status
        exchange.times.append(self._loop.time())
        client = exchange.client
        if client is not None and not exchange.ended:
            if exchange.began_answer:
                client.end_answer(chunk(b""))
            elif answer.size > BODY_LIMIT_BYTES:
                status = 500
                self._say_failed(exchange, f"its answer has more than {BODY_LIMIT_BYTES} bytes")
            elif status < 300:
                body = b"".join(answer.parts)
                head = answer_head(exchange, answer.headers, len(body), close=client.closes)
                client.end_answer(head + body)
            else:
                error = model_error(status, b"".join(answer.parts), exchange.log_stream_arn)
                client.end_answer(error_answer(error, exchange.request_id, close=client.closes))
        self._finish(exchange, status)

    def on_answer_broken(self, exchange: Exchange, why: str) -> None:
        """The model's answer will not come; it may have begun with the request, so nobody else gets it."""
        assert exchange.replica is not None
        exchange.replica.failed(self._loop.time())
        self._fail(exchange, why, "StreamBroken")

    def _fail(self, exchange: Exchange, why: str, stream_code: str) -> None:
        self._answers.pop(exchange, None)
        exchange.times.append(self._loop.time())
        client = exchange.client
        if client is not None and exchange.began_answer:
            payload = msgspec.json.encode(
                {"Message": f"The model's answer broke off: {why}.", "ErrorCode": stream_code}
            )
            client.end_answer(chunk(exception("ModelStreamError", payload)) + chunk(b""))
        elif client is not None:
            self._say_failed(exchange, why)
        self._finish(exchange, 500)

    def _say_failed(self, exchange: Exchange, why: str) -> None:
        """Tell the client of an answer that the model did not give; status 0 says that the model said nothing."""
        client = exchange.client
        if client is not None:
            error = model_error(
                0, f"The model gave no usable answer: {why}.".encode(), exchange.log_stream_arn
            )
            client.end_answer(error_answer(error, exchange.request_id, close=client.closes))

    def _finish(self, exchange: Exchange, status: int) -> None:
        exchange.ended = True
        self._under_way.discard(exchange)
        replica = exchange.replica
        if replica is not None:
            now = self._loop.time()
            exchange.times.append(now)
            replica.counters.count(status, exchange.times, int(self._clock() * 1000))
            self._release(exchange.variant, replica, now)

    def _refuse(self, exchange: Exchange, error: ApiError) -> None:
        client = exchange.client
        self._drop(exchange)
        if client is not None:
            client.end_answer(error_answer(error, exchange.request_id, close=client.closes))

    def _drop(self, exchange: Exchange) -> None:
        """End a request that no replica has."""
        exchange.ended = True
        exchange.client = None
        self._under_way.discard(exchange)

    def on_client_left(self, client: ClientConnection, exchange: Exchange | None) -> None:
        """Nobody waits for this answer: a model that streams is stopped, any other finishes unheard."""
        self.clients.discard(client)
        if exchange is None or exchange.ended:
            return
        exchange.client = None
        if exchange.replica is None:
            exchange.variant.waiting.remove(exchange)
            self._drop(exchange)
        elif exchange.connection is None:
            # Its connection is being made: it was not begun.
            self._drop(exchange)
            self._release(exchange.variant, exchange.replica, self._loop.time())
        elif exchange.streams:
            exchange.connection.abandon()
            self._answers.pop(exchange, None)
            exchange.times.append(self._loop.time())
            self._finish(exchange, 200)

    def follow(self, table: RouteTable) -> None:
        """Take over a newer table; requests that wait for a variant which has left are refused."""
        replicas, variants = self._balance.follow(table)
        for replica in replicas:
            if not replica.in_flight:
                self._forget(replica)
        for variant in variants:
            for exchange in list(variant.waiting):
                self._refuse(exchange, endpoint_gone(exchange.endpoint.route.name))
            variant.waiting.clear()
        self._dispatch_all(self._loop.time())

    def sweep(self) -> None:
        """Look at all deadlines."""
        now = self._loop.time()
        for client in list(self.clients):
            client.check_times(now)
        for exchange in [exchange for exchange in self._under_way if now > exchange.deadline]:
            self._expire(exchange)
        for pool in self._pools.values():
            pool.close_idle(now)
        self._dispatch_all(now)

    def _dispatch_all(self, now: float) -> None:
        for endpoint in self._balance:
            for variant in endpoint.variants.values():
                self._dispatch(variant, now)

    def _expire(self, exchange: Exchange) -> None:
        variant = exchange.variant
        if exchange.ended:
            return
        limit_s = exchange.limit_s
        if exchange.replica is None:
            variant.waiting.remove(exchange)
            if exchange.lacks_replica:
                self._refuse_unavailable(exchange)
                return
            variant.throttled += 1
            self._refuse(exchange, waited_too_long(variant.route.name, limit_s))
            return
        if exchange.connection is not None:
            exchange.connection.abandon()
        self._fail(exchange, f"it took longer than {limit_s:g} seconds", "ModelInvocationTimeExceeded")

    def traffic(self) -> tuple[EndpointTraffic, ...]:
        """What was counted, endpoint by endpoint."""
        return tuple(endpoint_traffic(endpoint) for endpoint in self._balance)
