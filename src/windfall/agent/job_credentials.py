"""Temporary storage credentials for the programs of attempts, at an address of loopback where every SDK looks for them.

Decides which variables an attempt gets and what is answered: credentials for exactly what the attempt may use, as long
as it runs. An attempt proves itself by a token that says what it may use and is signed with a secret of this agent, so
that nothing need be remembered over a restart. Must not know what is stored.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import secrets
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from windfall.agent.attempt import Attempt
from windfall.agent.courier.imds import Reply
from windfall.agent.messages import Start
from windfall.agent.object_access import (
    EXPIRES_VARIABLE,
    SESSIONS_VARIABLE,
    attempt_environment,
    object_environment,
    shared_variables,
)
from windfall.agent.speech import say
from windfall.jobs.storage import Grant, StorageAccess
from windfall.objects.errors import ObjectsError

if TYPE_CHECKING:
    from windfall.agent.courier.metadata import MetadataServer
    from windfall.objects.sessions import SessionCredentials

#: Where the daemon says whose sessions jobs get, beside the keys in the agent's file of variables.
ROLE_VARIABLE, STS_VARIABLE = "WINDFALL_SESSION_ROLE", "WINDFALL_STS_URL"
_FILE = "job-credentials.json"
_PATH = "/credentials"
#: SDKs ask again when a quarter of an hour is left.
_DURATION_S = 1800
_RENEW_BEFORE_S = 1200
_MOST_KEPT = 1000


class _Identity(msgspec.Struct, frozen=True):
    """What a token says: whose it is, and what that attempt may use."""

    attempt: str
    #: None means everything.
    grants: tuple[Grant, ...] | None


class JobCredentials:
    """The server of one agent, which is started when the first attempt needs it."""

    def __init__(self, directory: str, objects_file: str | None) -> None:
        self._path = os.path.join(directory, _FILE)
        self._objects_file = objects_file
        self._attempts: Mapping[str, Attempt] = {}
        self._lock = threading.Lock()
        self._sessions: dict[str, tuple[SessionCredentials, float]] = {}
        self._server: MetadataServer | None = None
        self._secret = b""

    def attach(self, attempts: Mapping[str, Attempt]) -> None:
        """Say where all attempts are found; the address that those of an earlier agent know answers again."""
        self._attempts = attempts
        if os.path.exists(self._path):
            self._serve()

    def variables(self, start: Start) -> dict[str, str]:
        """Return the variables by which an attempt reaches object storage; none if it may not, or there is no way."""
        storage = start.storage
        staged = start.staging is not None and start.staging.shares_object_credentials
        if storage is None or not (storage.for_programs or staged) or not self._is_running(start.token):
            return {}
        known = object_environment(self._objects_file)
        if not (known.get(ROLE_VARIABLE) or known.get(SESSIONS_VARIABLE)):
            # Only those who could read the keys anyway get long-lived ones.
            return shared_variables(self._objects_file) if storage.grants is None else {}
        address = self._serve()
        if address is None:
            return {}
        region = known.get("AWS_REGION") or known.get("AWS_DEFAULT_REGION") or "us-east-1"
        found = {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{address}{_PATH}",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": self._token(_Identity(start.token, storage.grants)),
            "AWS_REGION": region,
            "AWS_DEFAULT_REGION": region,
        }
        if known.get("AWS_ENDPOINT_URL_S3"):
            found["AWS_ENDPOINT_URL_S3"] = known["AWS_ENDPOINT_URL_S3"]
        return found

    def answer(self, method: str, path: str, headers: Mapping[str, str], now: float) -> Reply:
        """Answer one request; header names are in lower case."""
        if method not in ("GET", "HEAD") or path.partition("?")[0] != _PATH:
            return Reply(404, _problem("NotFound", "credentials are at another path"))
        identity = self._identity(headers.get("authorization", ""))
        if identity is None or not self._is_running(identity.attempt):
            return Reply(403, _problem("AccessDenied", "no attempt that runs has this token"))
        try:
            session = self._session(identity, now)
        except ObjectsError as error:
            say(f"{identity.attempt}: no credentials for its programs: {error}")
            return Reply(503, _problem("ServiceUnavailable", str(error)))
        content = {
            "AccessKeyId": session.access_key_id,
            "SecretAccessKey": session.secret_access_key,
            "Token": session.session_token,
            "Expiration": session.expiration,
        }
        return Reply(200, json.dumps(content))

    def _is_running(self, token: str) -> bool:
        attempt = self._attempts.get(token)
        return attempt is not None and not attempt.gone

    def _session(self, identity: _Identity, now: float) -> SessionCredentials:
        from windfall.objects.credentials import ObjectOptions, resolved
        from windfall.objects.policies import storage_policy
        from windfall.objects.sessions import assume_role

        with self._lock:
            kept = self._sessions.get(identity.attempt)
            if kept is not None and kept[1] > now:
                return kept[0]
            known = object_environment(self._objects_file)
            if known.get(SESSIONS_VARIABLE):
                return _provided(attempt_environment(self._objects_file, StorageAccess(identity.grants)))
            session = assume_role(
                known.get(STS_VARIABLE, ""),
                known.get(ROLE_VARIABLE, ""),
                identity.attempt,
                storage_policy(identity.grants),
                _DURATION_S,
                resolved(ObjectOptions(), known),
            )
            left_s = datetime.fromisoformat(session.expiration).timestamp() - time.time()
            if len(self._sessions) >= _MOST_KEPT:
                self._sessions.clear()
            self._sessions[identity.attempt] = (session, now + left_s - _RENEW_BEFORE_S)
            return session

    def _token(self, identity: _Identity) -> str:
        said = msgspec.json.encode(identity)
        return base64.urlsafe_b64encode(hmac.digest(self._secret, said, "sha256") + said).decode()

    def _identity(self, token: str) -> _Identity | None:
        try:
            content = base64.urlsafe_b64decode(token.encode())
            mark, said = content[:32], content[32:]
            if hmac.compare_digest(mark, hmac.digest(self._secret, said, "sha256")):
                return msgspec.json.decode(said, type=_Identity)
        except (ValueError, msgspec.MsgspecError):
            pass
        return None

    def _serve(self) -> str | None:
        """Listen, at the port of before if there was one; return the address, None where that is not possible."""
        # Most agents never serve credentials, and a server is much to load.
        from windfall.agent.courier.metadata import LOOPBACK, MetadataServer

        with self._lock:
            if self._server is not None:
                return f"http://{LOOPBACK}:{self._server.port}"
            port, secret = self._before()
            try:
                self._secret = secret or secrets.token_bytes(32)
                self._server = MetadataServer((LOOPBACK, port), lambda _: self)
                if not port:
                    self._keep(self._server.port)
            except OSError as error:
                say(f"credentials cannot be served to programs of jobs: {error}")
                return None
            return f"http://{LOOPBACK}:{self._server.port}"

    def _before(self) -> tuple[int, bytes]:
        try:
            with open(self._path, encoding="utf-8") as file:
                content = json.load(file)
            return int(content["port"]), bytes.fromhex(content["secret"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0, b""

    def _keep(self, port: int) -> None:
        beside = f"{self._path}.new"
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, json.dumps({"port": port, "secret": self._secret.hex()}).encode())
        finally:
            os.close(fd)
        os.replace(beside, self._path)


def _provided(variables: Mapping[str, str]) -> SessionCredentials:
    """The session that the daemon has sent for the attempt, which it renews."""
    from windfall.objects.sessions import SessionCredentials

    return SessionCredentials(
        variables["AWS_ACCESS_KEY_ID"],
        variables["AWS_SECRET_ACCESS_KEY"],
        variables["AWS_SESSION_TOKEN"],
        variables[EXPIRES_VARIABLE],
    )


def _problem(code: str, text: str) -> str:
    return json.dumps({"code": code, "message": text})
