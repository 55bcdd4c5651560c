"""Short-lived credentials for machines that do not share the daemon's disk: they open what an attempt's tenant may use.

Decides how long a session lasts and when it is renewed. It is asked for in a thread, by the same call as those of jobs'
programs, once for all attempts that may use the same. The daemon's own keys of storage stay here. Must not know
machines, nor who gets a session.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from windfall.agent.job_credentials import ROLE_VARIABLE, STS_VARIABLE
from windfall.agent.object_access import EXPIRES_VARIABLE, REFUSED_VARIABLE, SESSIONS_VARIABLE, session_name
from windfall.backoff import FailureLog
from windfall.jobs.storage import StorageAccess
from windfall.objects.credentials import KEY_VARIABLES, ObjectOptions, resolved
from windfall.objects.errors import ObjectsError, Refused
from windfall.objects.policies import storage_policy
from windfall.objects.sessions import SessionCredentials, assume_role

log = logging.getLogger(__name__)

#: With the daemon's own S3 server. A daemon may be away for three of the four hours before an attempt cannot store.
OWN_DURATION_S = 4 * 3600
#: AWS grants no more unless the role says so.
DURATION_S = 3600
#: After which part of its time a session is renewed, and how soon a failed request is repeated.
_RENEW_AFTER = 0.25
_AGAIN_S = 2.0


@dataclass(frozen=True, slots=True, repr=False)
class _Session:
    content: str
    renew_at_s: float


class MachineSessions:
    """The sessions of one daemon; its methods are called on the event loop."""

    def __init__(self, variables: Callable[[], Mapping[str, str]], duration_s: int) -> None:
        """`variables` open the STS with the daemon's own keys."""
        self._variables = variables
        self._duration_s = duration_s
        self._sessions: dict[str, _Session] = {}
        self._asked_at_s: dict[str, float] = {}
        self._listeners: dict[str, Callable[[], None]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sessions")
        self._failures = FailureLog(time.monotonic)

    def value(self, access: StorageAccess) -> str | None:
        """The content of a session's file; None while it is being asked for."""
        name, now = session_name(access), time.monotonic()
        session = self._sessions.get(name)
        if (session is None or now >= session.renew_at_s) and now >= self._asked_at_s.get(name, -1.0):
            self._asked_at_s[name] = now + _AGAIN_S
            loop = asyncio.get_running_loop()
            request = loop.run_in_executor(self._thread, self._ask, name, access)
            request.add_done_callback(lambda done: self._take(name, done))
        return None if session is None else session.content

    def listen(self, name: str, on_news: Callable[[], None]) -> None:
        """Call this when a session has come or was renewed; one listener for a name."""
        self._listeners[name] = on_news

    def _ask(self, name: str, access: StorageAccess) -> _Session | None:
        variables = self._variables()
        try:
            session = assume_role(
                variables.get(STS_VARIABLE, ""),
                variables.get(ROLE_VARIABLE, ""),
                name,
                storage_policy(access.grants),
                self._duration_s,
                resolved(ObjectOptions(), variables),
            )
        except Refused as refusal:
            # The attempt hears it, and fails with the reason.
            return _Session(json.dumps({REFUSED_VARIABLE: str(refusal)}), time.monotonic() + _AGAIN_S)
        except ObjectsError as error:
            if self._failures.is_news(type(error).__name__):
                log.warning("machines get no credentials for object storage now: %s", error)
            return None
        self._failures.is_over()
        return _Session(_content(session), time.monotonic() + self._duration_s * _RENEW_AFTER)

    def _take(self, name: str, request: asyncio.Future[_Session | None]) -> None:
        if request.cancelled() or (session := request.result()) is None:
            return  # Asked again at the next look at the machine, which is soon.
        self._sessions[name] = session
        for on_news in list(self._listeners.values()):
            on_news()


def without_keys(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of storage for a machine whose credentials come as sessions."""
    left_out = (*KEY_VARIABLES, STS_VARIABLE, ROLE_VARIABLE)
    sent = {name: value for name, value in variables.items() if name not in left_out}
    return {**sent, SESSIONS_VARIABLE: "provided"}


def _content(session: SessionCredentials) -> str:
    return json.dumps(
        {
            "AWS_ACCESS_KEY_ID": session.access_key_id,
            "AWS_SECRET_ACCESS_KEY": session.secret_access_key,
            "AWS_SESSION_TOKEN": session.session_token,
            EXPIRES_VARIABLE: session.expiration,
        }
    )
