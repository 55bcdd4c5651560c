"""A real usher with real model servers behind it, for tests: each a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import msgspec
from botocore.config import Config

from tests.waiting import wait_until
from windfall.agent import warden as warden_module
from windfall.aws_api.protocol.keys import Key, Role, create_key
from windfall.aws_api.protocol.sigv4 import sign
from windfall.hosting.routes import EndpointRoute, ReplicaRoute, RouteTable, VariantRoute
from windfall.hosting.traffic import UsherTraffic
from windfall.usher.process import SOCKET_NAME, UsherSettings, read_address
from windfall.usher.table_file import RouteWriter

ROOT = Path(__file__).resolve().parents[1]

#: Answers by what the body says. `count` has one line for each request that was begun, so that nothing is done twice.
MODEL = r"""
import http.server, os, sys, time, socketserver
name, count = sys.argv[1], sys.argv[2]
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def setup(self):
        super().setup()
        self.request.setsockopt(6, 1, 1)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        with open(count, "ab", 0) as file:
            file.write(body[:64].replace(b"\n", b" ") + b"\n")
        status, answer = 200, name.encode() + b":" + body
        if body.startswith(b"status "):
            status = int(body.split()[1]); answer = b"the model says no"
        elif body.startswith(b"sleep "):
            time.sleep(float(body.split()[1]))
        elif body.startswith(b"wait "):
            while not os.path.exists(body.split()[1]): time.sleep(0.005)
        elif body.startswith(b"headers"):
            answer = repr(sorted((k.lower(), v) for k, v in self.headers.items())).encode()
        elif body.startswith(b"die"):
            os._exit(9)
        elif body.startswith(b"garbage"):
            self.wfile.write(b"this is not HTTP\r\n\r\n"); self.close_connection = True; return
        elif body.startswith(b"large "):
            answer = b"x" * int(body.split()[1])
        elif body.startswith(b"stream "):
            self.send_response(200); self.send_header("content-type", "text/plain")
            self.send_header("transfer-encoding", "chunked"); self.end_headers()
            parts = body.split()
            for number in range(int(parts[1])):
                part = b"part %d\n" % number
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part)); self.wfile.flush()
                if len(parts) > 2:
                    while not os.path.exists(parts[2] + b".%d" % number): time.sleep(0.005)
            if len(parts) > 3: os._exit(9)
            self.wfile.write(b"0\r\n\r\n"); return
        self.send_response(status)
        self.send_header("content-type", self.headers.get("accept") or "text/plain")
        self.send_header("content-length", str(len(answer)))
        self.send_header("x-secret-of-the-model", "1")
        self.send_header("x-amzn-sagemaker-custom-attributes", "seen")
        self.end_headers(); self.wfile.write(answer)
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 512
server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@dataclass
class Model:
    """A server that stands for a replica's container."""

    name: str
    process: subprocess.Popen[str]
    port: int
    count: Path

    @property
    def route(self) -> ReplicaRoute:
        """Its row of the table."""
        return ReplicaRoute(self.name, "127.0.0.1", self.port, log_stream=f"AllTraffic/{self.name}")

    def end(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def begun(self) -> list[str]:
        """The bodies of the requests that it began with."""
        return self.count.read_text().splitlines() if self.count.exists() else []


def started_model(name: str, folder: Path) -> Model:
    """Start a server."""
    count = folder / f"{name}.count"
    process = subprocess.Popen(
        [sys.executable, "-c", MODEL, name, str(count)], stdout=subprocess.PIPE, text=True, cwd=folder
    )
    assert process.stdout is not None
    return Model(name, process, int(process.stdout.readline()), count)


@dataclass
class RunningUsher:
    """An usher under its warden, without a daemon."""

    data: Path
    key: Key
    warden: subprocess.Popen[bytes]
    models: list[Model] = field(default_factory=list)
    clients: list[Any] = field(default_factory=list)

    @property
    def directory(self) -> Path:
        """Its own directory."""
        return self.data / "usher"

    @property
    def url(self) -> str:
        """Where it listens."""
        url = read_address(self.directory)
        assert url is not None
        return url

    @property
    def port(self) -> int:
        """The port of that address."""
        return int(self.url.rpartition(":")[2])

    def model(self, name: str) -> Model:
        """Start a server."""
        self.models.append(started_model(name, self.data))
        return self.models[-1]

    def route(self, *variants: VariantRoute, name: str = "echo", tenant: str = "default") -> None:
        """Make these the variants of an endpoint, the only one, and wait until the usher follows."""
        self.publish(an_endpoint(*variants, name=name, tenant=tenant))

    def publish(self, *endpoints: EndpointRoute) -> None:
        """Make these all endpoints, and wait until the usher follows."""
        table = RouteWriter(self.directory).write(RouteTable(0, endpoints))
        wait_until(lambda: self.stats().table >= table.version, "the usher follows the table")

    def stats(self) -> UsherTraffic:
        """What it counted."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            descriptor = os.open(self.directory, os.O_PATH)
            try:
                connection.connect(f"/proc/self/fd/{descriptor}/{SOCKET_NAME}")
            finally:
                os.close(descriptor)
            connection.sendall(b"stats\n")
            return msgspec.json.decode(connection.makefile("rb").readline(), type=UsherTraffic)

    def client(self, key: Key | None = None, **options: Any) -> Any:
        """A boto3 client of sagemaker-runtime, which tries once."""
        key = key or self.key
        client = boto3.client(
            "sagemaker-runtime",
            endpoint_url=options.pop("url", self.url),
            region_name="us-east-1",
            aws_access_key_id=key.access_key_id,
            aws_secret_access_key=key.secret_access_key,
            aws_session_token=key.session_token,
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=64, **options),
        )
        self.clients.append(client)
        return client

    def connected(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def signed(
        self, body: bytes, *, name: str = "echo", action: str = "invocations", more: str = ""
    ) -> bytes:
        """The bytes of a signed request; `more` are lines that are not signed."""
        headers = sign(
            method="POST",
            url=f"{self.url}/endpoints/{name}/{action}",
            headers={"content-type": "text/plain"},
            body=body,
            access_key_id=self.key.access_key_id,
            secret_access_key=self.key.secret_access_key,
            region="us-east-1",
            service="sagemaker",
            now=time.time(),
        )
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST /endpoints/{name}/{action} HTTP/1.1\r\n{lines}{more}content-length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def ended(self) -> None:
        """End everything that was started."""
        for client in self.clients:
            client.close()
        if self.warden.poll() is None:
            pid = self.stats().pid
            os.kill(self.warden.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.warden.wait(5)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.warden.wait(20)
        for model in self.models:
            model.end()


@contextlib.contextmanager
def running_usher(data: Path) -> Iterator[RunningUsher]:
    """An usher in this directory."""
    directory = data / "usher"
    directory.mkdir(mode=0o700)
    key = create_key(data / "keys.json", role=Role.ADMIN, now=int(time.time() * 1000))
    settings = UsherSettings(str(directory), str(data / "keys.json"), port=0)
    command = [sys.executable, "-P", "-m", "windfall.usher.process", msgspec.json.encode(settings).decode()]
    with open(directory / "usher.log", "ab") as log:
        warden = subprocess.Popen(
            [sys.executable, "-I", "-S", warden_module.__file__, str(directory), *command],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdout=log,
            stderr=log,
        )
    usher = RunningUsher(data, key, warden)
    try:
        wait_until(lambda: (directory / SOCKET_NAME).exists() and read_address(directory), "an usher serves")
        yield usher
    finally:
        usher.ended()


def an_endpoint(*variants: VariantRoute, name: str = "echo", tenant: str = "default") -> EndpointRoute:
    """An endpoint with these variants."""
    arn = f"arn:aws:sagemaker:us-east-1:123456789012:endpoint/{name}"
    return EndpointRoute(name, arn, tenant, variants)


def a_variant(*models: Model, name: str = "AllTraffic", weight: float = 1.0, **more: Any) -> VariantRoute:
    """A variant over these models."""
    group = "arn:aws:logs:us-east-1:123456789012:log-group:/aws/sagemaker/Endpoints/echo"
    return VariantRoute(
        name=name, weight=weight, replicas=tuple(m.route for m in models), log_group_arn=group, **more
    )
