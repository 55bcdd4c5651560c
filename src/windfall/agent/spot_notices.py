"""Watches the instance metadata of EC2 for the notice that this very machine will be taken away.

A thread asks every few seconds, as AWS recommends, and wakes the agent's loop when the answer changes. Decides when a
machine has such metadata at all and what its answers mean. Must not know attempts: the daemon is told, and gives notice
to them as it does for every other reason.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable
from datetime import datetime
from urllib.parse import urlsplit

from windfall.agent.messages import Noticed
from windfall.agent.speech import say

#: What the setting may say instead of an address.
AUTO, OFF = "auto", "off"
_ADDRESS = "http://169.254.169.254"
_EVERY_S = 5.0
_ANSWER_WITHIN_S = 2.0
#: Answers are a line or two; more is not from EC2.
_MOST_BYTES = 1 << 16
_TOKEN_TTL_S = 21_600
_TOKEN_PATH = "/latest/api/token"  # noqa: S105 (a path, not a token)
_ACTION_PATH = "/latest/meta-data/spot/instance-action"
_REBALANCE_PATH = "/latest/meta-data/events/recommendations/rebalance"
_VENDOR_FILES = ("/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/board_asset_tag", "/sys/hypervisor/uuid")


def is_ec2_instance() -> bool:
    """Whether this machine is an EC2 instance, by what its firmware says."""
    for path in _VENDOR_FILES:
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            vendor = file.read().strip()
            if vendor == "Amazon EC2" or vendor.startswith(("i-", "ec2")):
                return True
    return False


def metadata_address(setting: str) -> str | None:
    """Where to ask; None where there is nobody to ask."""
    if setting == AUTO:
        return _ADDRESS if is_ec2_instance() else None
    return None if setting == OFF else setting


class Metadata:
    """The metadata service at an address, asked with a session token (IMDSv2)."""

    def __init__(self, address: str) -> None:
        self._host = urlsplit(address).netloc
        self._token, self._token_until_s = "", 0.0

    def notice(self) -> Noticed:
        """What it says now. Raises OSError or HTTPException where it does not answer, ValueError for nonsense."""
        action = self._get(_ACTION_PATH)
        if action is not None:
            asked = json.loads(action)
            at = datetime.fromisoformat(asked["time"])
            if at.tzinfo is None:
                raise ValueError(f"a time without a zone: {asked['time']}")
            return Noticed(int(at.timestamp() * 1000), f"spot interruption: EC2 will {asked['action']} it")
        return Noticed(rebalance=self._get(_REBALANCE_PATH) is not None)

    def _get(self, path: str) -> bytes | None:
        """What is at a path; None where there is nothing."""
        if time.monotonic() >= self._token_until_s:
            status, token = self._ask(
                "PUT", _TOKEN_PATH, {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)}
            )
            if status != 200:
                raise ValueError(f"no session token: status {status}")
            self._token, self._token_until_s = token.decode("ascii"), time.monotonic() + _TOKEN_TTL_S / 2
        status, body = self._ask("GET", path, {"X-aws-ec2-metadata-token": self._token})
        if status == 401:
            self._token_until_s = 0.0
        if status not in (200, 404):
            raise ValueError(f"{path} answers with status {status}")
        return body if status == 200 else None

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self._host, timeout=_ANSWER_WITHIN_S)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(_MOST_BYTES)
        finally:
            connection.close()


class SpotNotices:
    """The newest notice for this machine; `notify` wakes the loop, which then takes it. Watches from its making on."""

    def __init__(self, setting: str, notify: Callable[[], None], every_s: float = _EVERY_S) -> None:
        self._address = metadata_address(setting)
        self._notify = notify
        self._every_s = every_s
        self._lock = threading.Lock()
        self._notice, self._changed = Noticed(), False
        self._trouble = ""
        self._closed = threading.Event()
        if self._address is not None:
            metadata = Metadata(self._address)
            threading.Thread(target=self._run, args=(metadata,), name="spot-notices", daemon=True).start()

    @property
    def in_force(self) -> list[Noticed]:
        """What a daemon that connects now has to know."""
        with self._lock:
            return [self._notice] if self._notice != Noticed() else []

    def take(self) -> list[Noticed]:
        """The notice, if it has changed since it was last taken."""
        with self._lock:
            changed, self._changed = self._changed, False
            return [self._notice] if changed else []

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()

    def _run(self, metadata: Metadata) -> None:
        while not self._closed.is_set():
            self._look(metadata)
            self._closed.wait(self._every_s)

    def _look(self, metadata: Metadata) -> None:
        try:
            notice = metadata.notice()
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError) as error:
            # A notice that was heard stays: a service that falls silent takes nothing back.
            if (trouble := f"{type(error).__name__}: {error}") != self._trouble:
                self._trouble = trouble
                say(
                    f"the metadata service at {self._address} does not say whether this machine has notice: {trouble}"
                )
            return
        self._trouble = ""
        with self._lock:
            if notice == self._notice:
                return
            self._notice, self._changed = notice, True
        self._notify()
