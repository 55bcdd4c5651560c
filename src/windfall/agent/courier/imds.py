"""EC2's instance metadata as far as programs that live on spot capacity ask for it: paths, tokens, status codes.

Decides the answers, version 1 (plain GET) and version 2 (with a token) alike. Must not know sockets: a request comes in
as values, an answer goes out as values.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

_TTL_HEADER = "x-aws-ec2-metadata-token-ttl-seconds"
_TOKEN_HEADER = "x-aws-ec2-metadata-token"  # noqa: S105 - a header's name, no secret
_MOST_TTL_S = 21_600
_MOST_TOKENS = 4_096
_VERSIONS = ("1.0", "2016-09-02", "2021-07-15", "latest")


class Reply(NamedTuple):
    """An answer over HTTP."""

    status: int
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What the metadata say of an instance and its future."""

    instance: str
    instance_type: str
    #: spot or on-demand.
    market: str
    region: str
    #: The content of the notice file and of the rebalance file, where there is one.
    notice: Callable[[], bytes | None]
    rebalance: Callable[[], bytes | None]


class MetadataService:
    """One instance's metadata with the tokens that it has given out; time is an argument, in seconds."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._tokens: dict[str, float] = {}

    def answer(self, method: str, path: str, headers: Mapping[str, str], now: float) -> Reply:
        """Answer one request; header names are in lower case."""
        path = "/" + path.split("?", 1)[0].strip("/")
        if method == "PUT":
            return self._give_token(path, headers, now)
        if method not in ("GET", "HEAD"):
            return Reply(405, "Method Not Allowed")
        token = headers.get(_TOKEN_HEADER)
        if token is not None and self._tokens.get(token, 0.0) <= now:
            return Reply(401, "Unauthorized")
        return self._look_up(path)

    def _give_token(self, path: str, headers: Mapping[str, str], now: float) -> Reply:
        if path != "/latest/api/token":
            return Reply(403 if path.endswith("/api/token") else 404, "Forbidden")
        if "x-forwarded-for" in headers:
            return Reply(403, "Forbidden")
        text = headers.get(_TTL_HEADER, "").strip()
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _MOST_TTL_S):
            return Reply(400, "Bad Request")
        self._tokens = {token: until for token, until in self._tokens.items() if until > now}
        if len(self._tokens) >= _MOST_TOKENS:
            return Reply(503, "Service Unavailable")
        token = secrets.token_urlsafe(40)
        self._tokens[token] = now + int(text)
        return Reply(200, token, ((_TTL_HEADER, text),))

    def _look_up(self, path: str) -> Reply:
        parts = [part for part in path.split("/") if part]
        if not parts:
            return Reply(200, "\n".join(_VERSIONS))
        if parts[0] not in _VERSIONS:
            return Reply(404, "Not Found")
        node: object = self._tree()
        for part in parts[1:]:
            if not isinstance(node, dict) or part not in node:
                return Reply(404, "Not Found")
            node = node[part]
        if isinstance(node, dict):
            return Reply(
                200, "\n".join(f"{name}/" if isinstance(node[name], dict) else name for name in node)
            )
        return Reply(200, str(node))

    def _tree(self) -> dict[str, object]:
        facts = self._facts
        zone = f"{facts.region}a"
        names: dict[str, object] = {
            "events": _present({"recommendations": _present({"rebalance": _text(facts.rebalance())})}),
            "instance-id": facts.instance,
            "instance-life-cycle": facts.market,
            "instance-type": facts.instance_type,
            "placement": {"availability-zone": zone, "region": facts.region},
            "spot": self._spot(),
        }
        document = {
            "availabilityZone": zone,
            "instanceId": facts.instance,
            "instanceType": facts.instance_type,
            "region": facts.region,
            "version": "2017-09-30",
        }
        identity = {"document": json.dumps(document, indent=2)}
        return {"dynamic": {"instance-identity": identity}, "meta-data": _present(names)}

    def _spot(self) -> dict[str, object]:
        content = _text(self._facts.notice())
        if content is None:
            return {}
        try:
            notice = json.loads(content)
            action = {"action": str(notice["action"]), "time": str(notice["time"])}
        except (ValueError, LookupError, TypeError):
            return {}
        return {"instance-action": json.dumps(action), "termination-time": action["time"]}


def _present(names: Mapping[str, object]) -> dict[str, object]:
    """What is not so is not there: programs ask for a path and take 404 for no."""
    return {name: value for name, value in names.items() if value not in (None, {})}


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")
