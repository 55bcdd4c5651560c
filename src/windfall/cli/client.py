"""A small signed client of the daemon's three APIs, over the standard library's HTTP.

Decides how failures of the connection and of the daemon become sentences. Must not know what operations mean.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import click

from windfall.aws_api.protocol.sigv4 import sign
from windfall.cli.endpoint import Endpoint, find_endpoint, is_address, not_an_address
from windfall.cli.errors import CliError, NoDaemon, RequestRefused
from windfall.cli.notes import note

#: The server closes a connection that idles; one that idled for less can be used again.
_REUSE_S = 2.0
_WITHOUT_BODY = ("GET", "DELETE")
_WRAPPED = re.compile(r"Error executing request, Exception : (.*?)(?:, RequestId: [0-9a-f-]+|\Z)", re.DOTALL)

#: How the daemon refuses a key that it does not know.
_UNKNOWN_KEY = "UnrecognizedClientException"

Answer = dict[str, Any]


class Client:
    """One connection to the daemon, opened when first used and again when it broke."""

    def __init__(self, endpoint: Endpoint, timeout_s: float = 30.0) -> None:
        self.endpoint = endpoint
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None
        self._used_at = 0.0

    def batch(self, operation: str, **params: Any) -> Answer:
        """Call an operation of AWS Batch; parameters that are None are left out."""
        return self._call("batch", f"/v1/{operation.lower()}", {"content-type": "application/json"}, params)

    def logs(self, operation: str, **params: Any) -> Answer:
        """Call an operation of CloudWatch Logs."""
        headers = {
            "content-type": "application/x-amz-json-1.1",
            "x-amz-target": f"Logs_20140328.{operation}",
        }
        return self._call("logs", "/", headers, params)

    def scheduler(self, method: str, *path: str, **params: Any) -> Answer:
        """Call an operation of EventBridge Scheduler by its method and the parts of its path."""
        headers = {"content-type": "application/json"}
        where = "".join(f"/{quote(part, safe='')}" for part in path)
        if method in _WITHOUT_BODY:
            given = {name: value for name, value in params.items() if value is not None}
            where, params = where + (f"?{urlencode(given)}" if given else ""), {}
        return self._read(*self._send("scheduler", where, headers, params, method))

    def own(self, operation: str, **params: Any) -> Answer:
        """Call one of Windfall's own operations."""
        return self._read(*self._send_own(operation, params))

    def own_bytes(self, operation: str, **params: Any) -> bytes:
        """Call one of Windfall's own operations that answers in bytes."""
        status, content = self._send_own(operation, params)
        if status >= 400:
            self._read(status, content)
        return content

    def _send_own(self, operation: str, params: dict[str, Any]) -> tuple[int, bytes]:
        headers = {"content-type": "application/json"}
        status, content = self._send("windfall", f"/windfall/v1/{operation}", headers, params)
        if status == 404 and b"UnknownOperationException" in content:
            raise CliError(
                f"the daemon at {self.endpoint.url} is of another version of Windfall and does not know {operation}; "
                "start it again with this version: `windfall down` (jobs go on), then `windfall up`"
            )
        return status, content

    def queue_names(self) -> list[str]:
        """The names of all job queues."""
        return [queue["jobQueueName"] for queue in self.pages("DescribeJobQueues", "jobQueues")]

    def service_queue_names(self) -> list[str]:
        """The names of the queues that take service jobs."""
        queues = self.pages("DescribeJobQueues", "jobQueues")
        return [queue["jobQueueName"] for queue in queues if queue.get("serviceEnvironmentOrder")]

    def pages(self, operation: str, member: str, limit: int | None = None, **params: Any) -> list[Answer]:
        """All items of a paged operation of AWS Batch, or the first `limit` of them."""
        items: list[Answer] = []
        token: str | None = None
        while True:
            wanted = None if limit is None else min(limit - len(items), 100)
            answer = self.batch(operation, nextToken=token, maxResults=wanted, **params)
            items += answer.get(member, [])
            token = answer.get("nextToken")
            if not token or (limit is not None and len(items) >= limit):
                return items[:limit]

    def answers(self) -> bool:
        """Whether something still listens there; nothing is asked of it."""
        try:
            connection = self._open()
            connection.close()
        except OSError:
            return False
        return True

    def _call(self, service: str, path: str, headers: dict[str, str], params: dict[str, Any]) -> Answer:
        return self._read(*self._send(service, path, headers, params))

    def _send(
        self, service: str, path: str, headers: dict[str, str], params: dict[str, Any], method: str = "POST"
    ) -> tuple[int, bytes]:
        given = {name: value for name, value in params.items() if value is not None}
        body = b"" if method in _WITHOUT_BODY else json.dumps(given).encode()
        endpoint = self.endpoint
        signed = sign(
            method=method,
            url=endpoint.url.rstrip("/") + path,
            headers=headers,
            body=body,
            access_key_id=endpoint.access_key_id,
            secret_access_key=endpoint.secret_access_key,
            session_token=endpoint.session_token,
            region=endpoint.region,
            service=service,
            now=time.time(),
        )
        return self._exchange(path, body, signed, method)

    def _read(self, status: int, content: bytes) -> Answer:
        try:
            answer = json.loads(content or b"{}")
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise CliError(
                f"what answers at {self.endpoint.url} is not a Windfall daemon (HTTP {status}); "
                "check the address, or start one with `windfall up`"
            )
        if status >= 400:
            raise self._refusal(answer, status)
        return answer

    def _refusal(self, answer: Answer, status: int) -> RequestRefused:
        code = str(answer.get("__type") or f"HTTP {status}")
        text = str(answer.get("message") or answer.get("Message") or f"the daemon answered HTTP {status}")
        if code == _UNKNOWN_KEY:
            text = self._unknown_key()
        return RequestRefused(code, unwrapped(text).strip().removesuffix("."))

    def _unknown_key(self) -> str:
        """What to do when the daemon does not know the key that the user has."""
        url, directory = self.endpoint.url, self.endpoint.directory
        if directory is None:
            return (
                f"the daemon at {url} does not know the key of AWS_ACCESS_KEY_ID: it was revoked, or another daemon"
                " listens there now; ask its owner for a key of `windfall keys create`"
            )
        return (
            f"the daemon at {url} does not know the keys in {directory}, so it is probably another user's; start your"
            " own with `windfall up --port 0`, or ask its owner for the lines of `windfall env --key ID`"
        )

    def _exchange(
        self, path: str, body: bytes, headers: dict[str, str], method: str = "POST"
    ) -> tuple[int, bytes]:
        if self._connection is not None and time.monotonic() - self._used_at > _REUSE_S:
            self.close()
        try:
            if self._connection is None:
                self._connection = self._open()
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            content = response.read()
        except TimeoutError:
            self.close()
            raise NoDaemon(
                f"the Windfall daemon at {self.endpoint.url} does not answer within {self._timeout_s:g} s; "
                "it may be overloaded: try again, or look at its output"
            ) from None
        except (OSError, http.client.HTTPException):
            self.close()
            raise NoDaemon(
                f"no Windfall daemon answers at {self.endpoint.url}; start one with `windfall up`"
            ) from None
        except BaseException:
            # Interrupted half-way: the rest of this answer must not be read as the next one.
            self.close()
            raise
        self._used_at = time.monotonic()
        return response.status, content

    def _open(self) -> http.client.HTTPConnection:
        if not is_address(self.endpoint.url):
            raise not_an_address(self.endpoint.url)
        parts = urlsplit(self.endpoint.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(str(parts.hostname), parts.port, timeout=self._timeout_s)
        connection.connect()
        return connection

    def close(self) -> None:
        """Drop the connection; the next call opens another."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None


def connect(data: Path | None, timeout_s: float = 30.0) -> Client:
    """A client of the daemon that --data, WINDFALL_DATA or the AWS_* variables mean; of any that answers."""
    endpoint = find_endpoint(data)
    if endpoint.instead_of is not None:
        note(
            f"using the daemon at {endpoint.url}, which AWS_ENDPOINT_URL_BATCH and AWS_ACCESS_KEY_ID name; your own is"
            f" used with --data {shlex.quote(str(endpoint.instead_of))}, or without these variables"
        )
    client = Client(endpoint, timeout_s)
    if endpoint.others and not client.answers():
        for url in endpoint.others:
            other = Client(replace(endpoint, url=url), timeout_s)
            if other.answers():
                client = other
                break
    if context := click.get_current_context(silent=True):
        context.call_on_close(client.close)
    return client


def unwrapped(text: str) -> str:
    """A text without the wrapping in which AWS Batch puts what its errors say, wherever that stands in it."""
    return _WRAPPED.sub(r"\1", text)
