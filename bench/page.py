"""The page's questions with a million jobs stored, and what open pages cost the daemon.

The first part fills a store with finished jobs by SQL of its own, because a million real ones would take an hour, and
asks each question some times. The second measures SubmitJob with 0, 1 and 10 streams of Watch open, and how many rounds
of the control loop there are while nothing else happens.
"""

from __future__ import annotations

import base64
import json
import socket
import sqlite3
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.restart import fill
from bench.results import Bench, Result, middle
from bench.running_daemon import DEFINITION, QUEUE, RunningDaemon
from bench.submit_rate import CONNECTIONS
from bench.wire import REGION, Account, Connection, send_all
from windfall.aws_api.protocol.sigv4 import sign

TARGET_MS = 100.0
#: Real jobs that the others are copies of.
SEED_JOBS = 100
TOPICS = ["now", "counts", "alarms", "queues", "activity"]
QUIET_S = 10.0

_COPY = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :copies)
INSERT INTO jobs (id, queue, name, name_folded, definition, created_at, state, stopped_at, ord, record, submission)
SELECT substr(j.id, 1, 24) || printf('%012x', n), j.queue, j.name || n, j.name_folded || n, j.definition,
       j.created_at - n * 600, CASE n % 50 WHEN 0 THEN 'FAILED' ELSE 'SUCCEEDED' END, j.created_at - n * 600 + 500,
       j.ord, j.record, j.submission
FROM numbers, (SELECT * FROM jobs LIMIT 1) j
"""


def measure(bench: Bench) -> list[Result]:
    """Both parts."""
    return [*_questions(bench), *_watchers(bench)]


def store_with_jobs(bench: Bench) -> tuple[Path, int]:
    """A data directory whose store has a million finished jobs, and how many there are."""
    jobs = bench.count(1_000_000, 50_000)
    data = Path(tempfile.mkdtemp(prefix="page-", dir=bench.workspace))
    fill(data, SEED_JOBS)
    with sqlite3.connect(data / "store" / "windfall.db") as database:
        database.execute(_COPY, {"copies": jobs})
    bench.say(f"stored {jobs:,} finished jobs")
    return data, jobs


def _questions(bench: Bench) -> list[Result]:
    data, jobs = store_with_jobs(bench)
    now = time.time_ns() // 1_000_000
    week = {"sinceAt": now - 7 * 86_400_000, "untilAt": now}
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "Counts": ("Counts", {}),
        "Jobs, newest 100": ("Jobs", {}),
        "Jobs, FAILED": ("Jobs", {"states": ["FAILED"]}),
        "Jobs, a week ago": ("Jobs", {"untilAt": week["sinceAt"]}),
        "Jobs, a name of 11,000 of them": ("Jobs", {"name": "job-012*", "limit": 50}),
        "Submissions of a week, read anew": ("Submissions", week),
        "Alarms": ("Alarms", {}),
        "Top": ("Top", {}),
        "Machines": ("Machines", {}),
        "WhoAmI": ("WhoAmI", {}),
    }
    results = []
    with RunningDaemon(bench.workspace, 2, data) as daemon:
        for name, (operation, params) in asked.items():
            times = []
            for number in range(bench.count(9, 3)):
                # Another span each time, so that no answer is one that was kept.
                given = (
                    {**params, "sinceAt": params["sinceAt"] - number * 3_600_000}
                    if name.startswith("Sub")
                    else params
                )
                begin = time.perf_counter()
                ask(daemon.account, operation, given)
                times.append((time.perf_counter() - begin) * 1000)
            value = middle(times)
            results.append(
                Result(
                    f"page: {name}, {jobs:,} jobs stored",
                    value,
                    "ms",
                    target=f"{TARGET_MS:.0f} ms",
                    reached=value <= TARGET_MS,
                    note="one request, on a new connection",
                    details={"runs": times},
                )
            )
    return results


def _watchers(bench: Bench) -> list[Result]:
    count = bench.count(5_000, 1_000)
    rates: dict[int, list[float]] = {0: [], 1: [], 10: []}
    rounds: dict[int, float] = {}
    with RunningDaemon(bench.workspace, 2) as daemon:
        connection = Connection(daemon.account)
        daemon.declare(connection, enabled=False)
        connection.close()
        _submit(daemon, 500)
        for turn in range(bench.count(3, 1)):
            for watchers, measured in rates.items():
                streams = [Stream(daemon.account) for _ in range(watchers)]
                measured.append(count / _submit(daemon, count))
                bench.say(f"SubmitJob with {watchers} pages open: {measured[-1]:,.0f} calls/s")
                if turn == 0:
                    before = _rounds(daemon.account)
                    time.sleep(QUIET_S)
                    rounds[watchers] = (_rounds(daemon.account) - before) / QUIET_S
                    bench.say(f"rounds of the loop with {watchers} pages open: {rounds[watchers]:.1f}/s")
                for stream in streams:
                    stream.close()
    alone = middle(rates[0])
    return [
        Result(
            f"SubmitJob calls with {watchers} pages open",
            middle(rates[watchers]),
            "calls/s",
            alone,
            "the same with none, calls/s",
            middle(rates[watchers]) / alone,
            note=f"{rounds[watchers]:.1f} rounds of the loop a second while idle, {rounds[0]:.1f} with none",
            details={"runs": rates[watchers], "rounds": rounds},
        )
        for watchers in (1, 10)
    ]


def _submit(daemon: RunningDaemon, count: int) -> float:
    requests = [
        daemon.account.request("SubmitJob", {"jobName": "a", "jobQueue": QUEUE, "jobDefinition": DEFINITION})
        for _ in range(count)
    ]
    begin = time.perf_counter()
    send_all(daemon.account, requests, CONNECTIONS)
    return time.perf_counter() - begin


def signed_request(account: Account, operation: str, params: dict[str, Any]) -> bytes:
    """One of Windfall's own operations, ready to be sent."""
    path, body = f"/windfall/v1/{operation}", json.dumps(params).encode()
    headers = sign(
        method="POST",
        url=account.url + path,
        headers={"content-type": "application/json"},
        body=body,
        access_key_id=account.access_key_id,
        secret_access_key=account.secret_access_key,
        region=REGION,
        service="windfall",
        now=time.time(),
    )
    lines = [f"POST {path} HTTP/1.1", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def ask(account: Account, operation: str, params: dict[str, Any]) -> dict[str, Any]:
    """Ask on a connection of its own."""
    with socket.create_connection(account.address) as line:
        line.sendall(signed_request(account, operation, params))
        answer = b""
        while chunk := line.recv(1 << 16):
            answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise RuntimeError(f"{operation}: {answer[:300]!r}")
    content: dict[str, Any] = json.loads(body)
    return content


def _rounds(account: Account) -> int:
    basic = base64.b64encode(f"{account.access_key_id}:{account.secret_access_key}".encode()).decode()
    with socket.create_connection(account.address) as line:
        line.sendall(
            f"GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Basic {basic}\r\nconnection: close\r\n\r\n".encode()
        )
        answer = b""
        while chunk := line.recv(1 << 16):
            answer += chunk
    found = [text for text in answer.decode().splitlines() if text.startswith("windfall_rounds_total")]
    return int(float(found[0].split()[-1]))


class Stream:
    """A page that watches and reads what it is told."""

    def __init__(self, account: Account) -> None:
        self._line = socket.create_connection(account.address)
        self._line.sendall(signed_request(account, "Watch", {"topics": TOPICS}))
        self._line.recv(1 << 16)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while self._line.recv(1 << 16):
                pass
        except OSError:
            return

    def close(self) -> None:
        """Leave."""
        self._line.shutdown(socket.SHUT_RDWR)
        self._line.close()
