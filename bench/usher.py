"""Signed requests of 1 KiB per second that one core of the usher verifies and forwards, and the time that it adds.

nginx forwards the same bytes to the same backend in the same run; it verifies nothing. The backend is a loop over epoll
that answers each request with a few bytes, so that the processes in the middle are what is measured. Where another
program shares the cores, figures per second of the process's own processor time say more than those of the clock.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from bench.machine import cpu_s
from bench.results import Bench, Result, middle
from bench.running_daemon import ROOT
from windfall.aws_api.protocol.keys import Role, create_key
from windfall.aws_api.protocol.sigv4 import sign
from windfall.hosting.routes import EndpointRoute, ReplicaRoute, RouteTable, VariantRoute
from windfall.usher.process import UsherSettings, read_address
from windfall.usher.table_file import RouteWriter

CONNECTIONS = 32
BODY = b"x" * 1024
TARGET = 10_000
ADDED_MS = 0.5

_BACKEND = r"""
import asyncio, sys, uvloop
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok"
class Backend(asyncio.Protocol):
    def connection_made(self, transport): self.transport, self.have = transport, b""
    def data_received(self, data):
        self.have += data
        while (end := self.have.find(b"\r\n\r\n")) >= 0:
            head = self.have[:end].lower()
            start = head.index(b"content-length:") + 15
            length = int(head[start:].split(b"\r\n", 1)[0])
            if len(self.have) < end + 4 + length: return
            self.have = self.have[end + 4 + length:]
            self.transport.write(ANSWER)
async def main():
    server = await asyncio.get_running_loop().create_server(Backend, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
uvloop.run(main())
"""


def measure(bench: Bench) -> list[Result]:
    """Send requests over 32 connections, then one after the other, to the backend, nginx and the usher."""
    folder = bench.workspace / "usher"
    folder.mkdir(mode=0o700)
    with _process([sys.executable, "-c", _BACKEND], stdout=subprocess.PIPE) as backend:
        assert backend.stdout is not None
        port = int(backend.stdout.readline())
        with _usher(folder, port) as (pid, url, request):
            ways = {"the backend itself": (backend.pid, port), "the usher": (pid, urlsplit(url).port or 0)}
            with _nginx(folder, port) as nginx:
                if nginx is None:
                    bench.say("nginx is not installed: no figures beside it")
                else:
                    ways = {**ways, "nginx": nginx}
                return _compared(bench, ways, request)


def _compared(bench: Bench, ways: dict[str, tuple[int, int]], request: bytes) -> list[Result]:
    count = bench.count(30_000, 5_000)
    rates, per_core, alone_ms = {}, {}, {}
    for name, (pid, port) in ways.items():
        _load(port, request, 1_000, CONNECTIONS)
        before_s, begin = cpu_s(pid), time.perf_counter()
        _load(port, request, count, CONNECTIONS)
        rates[name] = count / (time.perf_counter() - begin)
        per_core[name] = count / max(cpu_s(pid) - before_s, 0.001)
        alone_ms[name] = middle(_one_by_one(port, request, bench.count(3_000, 500)))
        bench.say(
            f"{name}: {rates[name]:,.0f}/s, {per_core[name]:,.0f} per second of its processor time, "
            f"{alone_ms[name]:.3f} ms one after the other"
        )
    added_ms = alone_ms["the usher"] - alone_ms["the backend itself"]
    details = {"requests/s": rates, "requests/s per core": per_core, "p50 ms": alone_ms}
    return [
        Result(
            "signed 1 KiB requests that one core of the usher forwards",
            per_core["the usher"],
            "requests/s",
            per_core.get("nginx"),
            "nginx on one core, which verifies nothing",
            target=f"{TARGET:,}/s",
            reached=per_core["the usher"] >= TARGET,
            note=f"{CONNECTIONS} connections; {rates['the usher']:,.0f}/s by the clock",
            details=details,
        ),
        Result(
            "time that the usher adds to a request, p50",
            added_ms,
            "ms",
            alone_ms["nginx"] - alone_ms["the backend itself"] if "nginx" in alone_ms else None,
            "nginx",
            target=f"{ADDED_MS} ms",
            reached=added_ms < ADDED_MS,
            note="one connection, one request after the other",
        ),
    ]


@contextmanager
def _process(command: list[str], **more: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, **more)  # type: ignore[call-overload] # one set of options for all of them
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _usher(folder: Path, backend: int) -> Iterator[tuple[int, str, bytes]]:
    """An usher without a warden: its process id, its address, and one signed request that may be sent again."""
    key = create_key(folder / "keys.json", role=Role.ADMIN, now=0)
    variant = VariantRoute(name="v", weight=1.0, replicas=(ReplicaRoute("r#1", "127.0.0.1", backend),))
    RouteWriter(folder).write(RouteTable(0, (EndpointRoute("e", "arn", "default", (variant,)),)))
    settings = UsherSettings(str(folder), str(folder / "keys.json"), port=0)
    command = [sys.executable, "-m", "windfall.usher.process", msgspec.json.encode(settings).decode()]
    with _process(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}) as process:
        while (url := read_address(folder)) is None:
            time.sleep(0.01)
        path = "/endpoints/e/invocations"
        headers = sign(
            method="POST",
            url=url + path,
            headers={"content-type": "text/plain"},
            body=BODY,
            access_key_id=key.access_key_id,
            secret_access_key=key.secret_access_key,
            region="us-east-1",
            service="sagemaker",
            now=time.time(),
        )
        lines = [f"POST {path} HTTP/1.1", f"content-length: {len(BODY)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        yield process.pid, url, "\r\n".join(lines).encode() + b"\r\n\r\n" + BODY


@contextmanager
def _nginx(folder: Path, backend: int) -> Iterator[tuple[int, int] | None]:
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "nginx.conf").write_text(f"""
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream backend {{ server 127.0.0.1:{backend}; keepalive 64; }}
  server {{ listen 127.0.0.1:{port}; keepalive_requests 10000000;
    location / {{ proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}
}}
""")
    with _process([program, "-p", str(folder), "-c", str(folder / "nginx.conf")]) as process:
        for _ in range(500):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.01)
        yield process.pid, port


def _load(port: int, request: bytes, count: int, connections: int) -> None:
    """Keep one request under way on each connection until `count` were answered; every answer must be a 200."""
    import select

    poll = select.epoll()
    sockets = {}
    for _ in range(connections):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[connection.fileno()] = connection
        poll.register(connection.fileno(), select.EPOLLIN)
        connection.sendall(request)
    answered = 0
    while answered < count:
        for fd, _ in poll.poll():
            if not sockets[fd].recv(65536).startswith(b"HTTP/1.1 200"):
                raise RuntimeError("an answer was not a 200")
            answered += 1
            sockets[fd].sendall(request)
    for connection in sockets.values():
        connection.close()
    poll.close()


def _one_by_one(port: int, request: bytes, count: int) -> list[float]:
    times_ms = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            begin = time.perf_counter()
            connection.sendall(request)
            if not connection.recv(65536).startswith(b"HTTP/1.1 200"):
                raise RuntimeError("an answer was not a 200")
            times_ms.append((time.perf_counter() - begin) * 1000)
    return times_ms
