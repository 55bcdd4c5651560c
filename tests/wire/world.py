"""A whole Windfall in this process, but for agents and HTTP: all services, the real loop and a real SQLite store.

Requests are given as members and travel as bytes from there on: routed, read and checked as any client's.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from windfall.agent.attempt_files import AttemptDirectory
from windfall.aws_api.batch.service import batch_service
from windfall.aws_api.cloudwatch.service import cloudwatch_service
from windfall.aws_api.logs.service import logs_service
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.operations import load_service_model
from windfall.aws_api.protocol.request import HttpRequest
from windfall.aws_api.protocol.service import ApiService, Caller, Role
from windfall.aws_api.sagemaker.context import TrainingSettings
from windfall.aws_api.sagemaker.service import training_service
from windfall.aws_api.scheduler.service import scheduler_service
from windfall.capacity.environments import ComputeEnvironment
from windfall.capacity.machines import Offer
from windfall.control.changes import Changes
from windfall.control.instructions import Instruction
from windfall.control.ports import Holdings, Store
from windfall.control.rebuild import rebuild
from windfall.control.state import Rules
from windfall.daemon.loop import ControlLoop
from windfall.daemon.time_zones import zone_named
from windfall.store.opening import open_store

NOW = 1_800_000_000_000
REGION, ACCOUNT = "eu-west-1", "123456789012"
ADMIN = Caller("AKIAWINDFALLTESTS000", Role.ADMIN, "default")


class NoEngine:
    """Has nothing to offer, so that nothing is ever placed."""

    name = "none"

    def check(self, _environment: ComputeEnvironment, /) -> None:
        """Serves any environment."""

    def adopt(self, _holdings: Holdings, /) -> None:
        """There is nothing to adopt."""

    def offers(self, _environment: ComputeEnvironment, /) -> tuple[Offer, ...]:
        """Nothing can be launched."""
        return ()

    def carry_out(self, instructions: Sequence[Instruction]) -> None:
        """Nothing is placed, so there is nothing to do."""


class CountingStore:
    """The store, and how often something was written to it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.commits = 0

    def commit(self, changes: Changes) -> Sequence[str]:
        """Count and write."""
        self.commits += bool(replace(changes, purge=None))  # old things are looked for all the time
        return self._store.commit(changes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    #: AWS's code for a refusal; empty for a success.
    code: str
    body: Any


class World:
    """Services over one loop."""

    def __init__(self, store: CountingStore, loop: ControlLoop, services: Mapping[str, ApiService]) -> None:
        self.store, self.loop, self.services = store, loop, services

    async def ask(self, service: str, operation: str, params: Any, caller: Caller = ADMIN) -> Answer:
        """Send a request, and answer when all that it changed is written."""
        request = request_of(service, operation, params)
        try:
            response = await self.services[service].answer(request, caller, REGION, str(uuid.uuid4()))
        except ApiError as error:
            return Answer(error.status, error.code, error.message)
        finally:
            await self.loop.inspect(lambda *_: None)
        return Answer(response.status, "", json.loads(response.body or b"{}"))

    async def done(self, service: str, operation: str, params: Any) -> Any:
        """Send a request that must succeed, and answer its body."""
        answer = await self.ask(service, operation, params)
        assert answer.status < 300, f"{service}:{operation} {params}: {answer}"
        return answer.body


class Relay:
    """The gate that services speak to: that of the present world. Services are made once, since models are large."""

    loop: ControlLoop | None = None
    ticking = count(NOW)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)

    def clock_ms(self) -> int:
        """Every look at the clock finds it a little later."""
        return next(self.ticking)


RELAY = Relay()


@cache
def all_services(directory: Path) -> dict[str, ApiService]:
    """Every service that speaks AWS's protocols, over the present world."""
    gate: Any = RELAY
    clock_ms = RELAY.clock_ms
    return {
        "batch": batch_service(gate, ACCOUNT, lambda: str(uuid.uuid4()), clock_ms),
        "sagemaker": training_service(
            gate, ACCOUNT, clock_ms, AttemptDirectory(directory), TrainingSettings()
        ),
        "logs": logs_service(gate, AttemptDirectory(directory), ACCOUNT, clock_ms),
        "cloudwatch": cloudwatch_service(gate, lambda _: None),
        "scheduler": scheduler_service(gate, ACCOUNT, zone_named),
    }


@asynccontextmanager
async def a_world(file: Path) -> AsyncIterator[World]:
    """A Windfall that begins with what the file of a store has."""
    store = CountingStore(open_store(str(file)))
    state = rebuild(store.load(), Rules(zones=zone_named))
    loop = ControlLoop(state, store, {"local": NoEngine()}, RELAY.clock_ms, lambda _: None, tuple)
    RELAY.loop = loop
    turning = asyncio.create_task(loop.run())
    await loop.inspect(lambda *_: None)  # what a start itself changes is not the first request's doing
    try:
        yield World(store, loop, all_services(Path("/nowhere")))
    finally:
        turning.cancel()
        await asyncio.gather(turning, return_exceptions=True)
        loop.close()
        store.close()


_MODELS: dict[str, Any] = {}


def model_of(service: str) -> Any:
    """Botocore's model of a service, read once."""
    if service not in _MODELS:
        _MODELS[service] = load_service_model(service)
    return _MODELS[service]


def request_of(service: str, operation: str, params: Any) -> HttpRequest:
    """A request with these members, right or wrong, as a client would put them on the wire."""
    model = model_of(service)
    asked = model.operation_model(operation)
    headers = {b"content-type": b"application/json"}
    if model.metadata["protocol"] != "rest-json":
        target = f"{model.metadata['targetPrefix']}.{operation}".encode()
        headers = {b"x-amz-target": target, b"content-type": b"application/x-amz-json-1.1"}
        if service == "cloudwatch":
            headers[b"content-type"] = b"application/x-amz-json-1.0"
        return HttpRequest("POST", "/", "", headers, _encoded(params))
    path, query, body = asked.http["requestUri"], [], params
    if isinstance(params, dict) and asked.input_shape is not None:
        body = {}
        for name, value in params.items():
            member = asked.input_shape.members.get(name)
            location = None if member is None else member.serialization.get("location")
            wire_name = name if member is None else member.serialization.get("name", name)
            if location == "uri":
                text = quote(_text(value), safe="")
                path = path.replace(f"{{{wire_name}}}", text).replace(f"{{{wire_name}+}}", text)
            elif location == "querystring":
                values = value if isinstance(value, list) else [value]
                query += [f"{quote(wire_name, safe='')}={quote(_text(one), safe='')}" for one in values]
            else:
                body[wire_name] = value
    return HttpRequest(asked.http["method"], path, "&".join(query), headers, _encoded(body) if body else b"")


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _encoded(params: Any) -> bytes:
    return json.dumps(params).encode()
