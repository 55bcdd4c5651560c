"""What is asked of a container engine: Docker's Engine API, which Podman serves too.

Decides paths and parameters, and nothing about when to ask. Imported by the keeper: the standard library alone.
"""

from __future__ import annotations

import json
import select

from windfall.agent.container.errors import EngineRefused, EngineUnreachable
from windfall.agent.container.exchange import Exchange

#: As typing has it: importing that would cost a keeper megabytes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

#: The newest version of the API that this was written for.
NEWEST_API = (1, 44)
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")
_NO_SUCH_THING = 404
_CONFLICT = 409
_NOT_MODIFIED = 304
_PULL_BEGINS_WITHIN_S = 600.0
_PULL_PAUSE_S = 0.5
_CREATE_WITHIN_S = 240.0
_REMOVE_WITHIN_S = 120.0


def quoted(text: str) -> str:
    """Return a text as a part of an address; slashes stay."""
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in text.encode())


def negotiated(newest: str, oldest: str) -> str:
    """Return the version of the API to speak with an engine that serves these two and all between them."""
    theirs = _numbers(newest)
    chosen = min(theirs, NEWEST_API) if theirs else NEWEST_API
    chosen = max(chosen, _numbers(oldest) or chosen)
    return f"{chosen[0]}.{chosen[1]}"


def _numbers(version: str) -> tuple[int, int] | None:
    parts = version.split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    return int(parts[0]), int(parts[1])


class Engine:
    """An engine at a socket."""

    def __init__(self, path: str, api: str = "", *, timeout_s: float = 60.0) -> None:
        self.path = path
        self._prefix = f"/v{api}" if api else ""
        self._timeout_s = timeout_s

    def version(self) -> dict[str, Any]:
        """Return who it is and what it speaks."""
        return _object(self._ask("GET", "/version").value())

    def facts(self) -> dict[str, Any]:
        """Return what it says of itself and its host."""
        return _object(self._ask("GET", "/info").value())

    def networks(self) -> list[str]:
        """Return the names of its networks."""
        return [str(network.get("Name", "")) for network in objects_in(self._ask("GET", "/networks").value())]

    def image(self, name: str) -> dict[str, Any] | None:
        """Return an image that is here, or None."""
        return self._unless_missing("GET", f"/images/{quoted(name)}/json")

    def pull(self, name: str, headers: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Fetch an image and yield what is said meanwhile, nothing when a while brings nothing.

        EngineRefused when it is not available.
        """
        reference, tag = split_image(name)
        target = f"/images/create?fromImage={quoted(reference)}" + (f"&tag={quoted(tag)}" if tag else "")
        exchange = self._ask("POST", target, None, headers, timeout_s=_PULL_BEGINS_WITHIN_S).settled()
        rest = b""
        try:
            while not exchange.ended:
                if not exchange.has_part and not select.select([exchange.fileno()], [], [], _PULL_PAUSE_S)[0]:
                    yield {}
                    continue
                *lines, rest = (rest + exchange.receive()).split(b"\n")
                yield from map(_pull_line, filter(bytes.strip, lines))
            if rest.strip():
                yield _pull_line(rest)
        finally:
            exchange.close()

    def create(self, name: str, body: Mapping[str, Any]) -> str:
        """Make a container and return its id."""
        made = self._ask("POST", f"/containers/create?name={quoted(name)}", body, timeout_s=_CREATE_WITHIN_S)
        container = str(_object(made.value()).get("Id") or "")
        if not container:
            raise EngineUnreachable("the container engine made a container without returning its id")
        return container

    def start(self, container: str) -> None:
        """Start a container; one that runs is left as it is."""
        exchange = self._ask("POST", f"/containers/{container}/start", timeout_s=_CREATE_WITHIN_S)
        if exchange.status != _NOT_MODIFIED:
            exchange.settled()
        exchange.close()

    def inspect(self, container: str) -> dict[str, Any] | None:
        """Return all that is known of a container, or None when there is none of that id or name."""
        return self._unless_missing("GET", f"/containers/{quoted(container)}/json")

    def kill(self, container: str, signal: str) -> None:
        """Signal the first process of a container; one that has ended, or is gone, has what it needs."""
        try:
            self._ask("POST", f"/containers/{container}/kill?signal={quoted(signal)}").settled().close()
        except EngineRefused as error:
            if error.status not in (_NO_SUCH_THING, _CONFLICT) and "not running" not in error.message:
                raise

    def remove(self, container: str) -> None:
        """Remove a container and its anonymous volumes, killing it if it runs."""
        target = f"/containers/{quoted(container)}?force=1&v=1"
        try:
            self._ask("DELETE", target, timeout_s=_REMOVE_WITHIN_S).settled().close()
        except EngineRefused as error:
            # Gone already, or somebody else is at it.
            if error.status not in (_NO_SUCH_THING, _CONFLICT) and not _is_gone(error):
                raise

    def containers(self, label: str) -> list[dict[str, Any]]:
        """Return all containers with a label, whether they run or not."""
        filters = quoted(json.dumps({"label": [label]}))
        return objects_in(self._ask("GET", f"/containers/json?all=1&filters={filters}").value())

    def logs(self, container: str) -> Exchange:
        """Open the output of a container from its beginning to its end."""
        target = f"/containers/{container}/logs?follow=1&stdout=1&stderr=1"
        return self._ask("GET", target).settled()

    def make_command(self, container: str, body: Mapping[str, Any]) -> str:
        """Make a command that is to run beside a container's own, and return its id."""
        made = _object(self._ask("POST", f"/containers/{quoted(container)}/exec", body).value())
        return str(made.get("Id") or "")

    def start_command(self, command: str, *, tty: bool) -> Exchange:
        """Start a command and return the line that its streams go over."""
        return self._ask("POST", f"/exec/{command}/start", {"Detach": False, "Tty": tty}).settled()

    def inspect_command(self, command: str) -> dict[str, Any] | None:
        """Return what is known of a command, or None when it is forgotten."""
        return self._unless_missing("GET", f"/exec/{command}/json")

    def resize_command(self, command: str, rows: int, columns: int) -> None:
        """Tell a command the size of its terminal."""
        self._ask("POST", f"/exec/{command}/resize?h={rows}&w={columns}").settled().close()

    def copy_out(self, container: str, path: str) -> bytes | None:
        """Return a file of a container as a tar archive, or None when there is no such file."""
        exchange = self._ask("GET", f"/containers/{container}/archive?path={quoted(path)}")
        if exchange.status == _NO_SUCH_THING:
            exchange.close()
            return None
        return exchange.settled().read()

    def _unless_missing(self, method: str, target: str) -> dict[str, Any] | None:
        exchange = self._ask(method, target)
        if exchange.status == _NO_SUCH_THING:
            exchange.close()
            return None
        try:
            return _object(exchange.value())
        except EngineRefused as error:
            if _is_gone(error):
                return None
            raise

    def _ask(
        self,
        method: str,
        target: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Exchange:
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        return Exchange(self.path, method, self._prefix + target, body, headers, timeout_s)


def _is_gone(error: EngineRefused) -> bool:
    """Tell whether a container went while it was asked about: Podman calls that a fault of its own (status 500)."""
    return any(words in error.message for words in ("no such container", "container not known"))


def split_image(name: str) -> tuple[str, str]:
    """Return an image's repository and tag; one with a digest has no tag, and without either it is `latest`."""
    if "@" in name:
        return name, ""
    head, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        return name, "latest"
    return head, tag


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; whatever else answers in an engine's place has none."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _pull_line(raw: bytes) -> dict[str, Any]:
    try:
        line = _object(json.loads(raw))
    except ValueError:
        return {}
    if "error" in line:
        raise EngineRefused(500, str(line["error"]))
    return line
