"""A real uvicorn server over the protocol layer with a few handlers, for tests that use real clients."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from windfall.aws_api.protocol.application import Application
from windfall.aws_api.protocol.errors import ApiError
from windfall.aws_api.protocol.keys import Key, KeyRing, Role, create_key, ensure_keys_file
from windfall.aws_api.protocol.service import Call, ModelledService, PlainService
from windfall.daemon.http_connection import HttpConnection

LENIENT_ENUMS = frozenset({"EvaluateOnExit.action"})


@dataclass
class Recorder:
    """Handlers that remember what they were called with."""

    calls: list[Call] = field(default_factory=list)

    async def submit_job(self, call: Call) -> dict[str, Any]:
        self.calls.append(call)
        name = call.params["jobName"]
        return {"jobName": name, "jobId": "7c8c0b4e", "jobArn": f"arn:aws:batch:{call.region}:1:job/7c8c0b4e"}

    async def describe_jobs(self, call: Call) -> dict[str, Any]:
        self.calls.append(call)
        return {"jobs": [{"jobId": job, "createdAt": 1_700_000_000_123} for job in call.params["jobs"]]}

    async def cancel_job(self, call: Call) -> dict[str, Any]:
        if call.params["jobId"] == "broken":
            raise ApiError("ClientException", "log \udc80 line")
        raise ApiError("ClientException", f"{call.params['jobId']} does not exist")

    async def terminate_job(self, call: Call) -> dict[str, Any]:
        raise ZeroDivisionError("a secret of the server")

    async def list_tags(self, call: Call) -> dict[str, Any]:
        self.calls.append(call)
        return {"tags": {"arn": call.params["resourceArn"]}}

    async def tag(self, call: Call) -> dict[str, Any]:
        self.calls.append(call)
        return {}

    async def get_log_events(self, call: Call) -> dict[str, Any]:
        self.calls.append(call)
        return {
            "events": [{"timestamp": 1, "message": "grüezi", "ingestionTime": None}],
            "nextForwardToken": "f/1",
        }

    async def whoami(self, call: Call) -> dict[str, Any]:
        self.calls.append(call)
        return {"tenant": call.caller.tenant, "params": call.params}


def wrap_batch_error(error: ApiError, request_id: str) -> ApiError:
    text = f"Error executing request, Exception : {error.message}, RequestId: {request_id}"
    return ApiError(error.code, text, error.status)


def build_services(recorder: Recorder) -> list[ModelledService | PlainService]:
    batch = ModelledService(
        "batch",
        {
            "SubmitJob": recorder.submit_job,
            "DescribeJobs": recorder.describe_jobs,
            "CancelJob": recorder.cancel_job,
            "TerminateJob": recorder.terminate_job,
            "ListTagsForResource": recorder.list_tags,
            "TagResource": recorder.tag,
            "UntagResource": recorder.tag,
        },
        {
            "SubmitJob": Role.SUBMIT,
            "DescribeJobs": Role.READ,
            "CancelJob": Role.SUBMIT,
            "TerminateJob": Role.SUBMIT,
            "ListTagsForResource": Role.READ,
            "TagResource": Role.SUBMIT,
            "UntagResource": Role.SUBMIT,
        },
        lenient_enums=LENIENT_ENUMS,
        wrap_error=wrap_batch_error,
        validation_code="ClientException",
        unsupported_code="ClientException",
    )
    logs = ModelledService(
        "logs",
        {"GetLogEvents": recorder.get_log_events},
        {"GetLogEvents": Role.READ},
        validation_code="InvalidParameterException",
    )
    own = PlainService("windfall", {"whoami": recorder.whoami}, {"whoami": Role.READ})
    return [batch, logs, own]


@dataclass
class Live:
    """A running server and what a client needs to talk to it."""

    port: int
    admin: Key
    keys_path: Path
    recorder: Recorder

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def new_key(self, role: Role, **options: Any) -> Key:
        return create_key(self.keys_path, role=role, now=2, **options)


@contextlib.contextmanager
def live_server(
    folder: Path,
    *,
    body_timeout_s: float = 30.0,
    idle_s: int = 5,
    connection: type[HttpConnection] = HttpConnection,
) -> Iterator[Live]:
    keys_path = folder / "keys.json"
    admin = ensure_keys_file(keys_path, now=1)[0]
    recorder = Recorder()
    application = Application(
        build_services(recorder),
        KeyRing(keys_path),
        time.time,
        lambda: str(uuid.uuid4()),
        body_timeout_s=body_timeout_s,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        application,
        http=connection,
        ws="none",
        loop="uvloop",
        log_config=None,
        access_log=False,
        timeout_keep_alive=idle_s,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        # The socket listens already: a client that connects now is served as soon as the loop runs.
        yield Live(listener.getsockname()[1], admin, keys_path, recorder)
    finally:
        server.should_exit = True
        thread.join(timeout=120)
        listener.close()
        assert not thread.is_alive()
