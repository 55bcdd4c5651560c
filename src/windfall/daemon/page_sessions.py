"""CreateSession and WhoAmI: what the page needs to know about the one who looks at it.

Decides how long a session may last and that it never has more rights than its key, nor makes other sessions. Nothing of
a session is stored (aws_api/protocol/sessions.py). Must not know what the page shows.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from windfall import __version__
from windfall.aws_api.protocol.errors import AccessDeniedError, ApiError, unrecognized_client
from windfall.aws_api.protocol.keys import Key, Role
from windfall.aws_api.protocol.service import Call
from windfall.aws_api.protocol.sessions import LONGEST_S, begin_session
from windfall.daemon.settings import Settings
from windfall.views.spelling import Answer

DEFAULT_HOURS = 8.0
LEAST_S = 60
_ROLES = tuple(role.name.lower() for role in Role)


class PageSessions:
    """The handlers."""

    def __init__(
        self,
        settings: Settings,
        find_key: Callable[[str], Key | None],
        clock_ms: Callable[[], int],
        leader: Callable[[], tuple[bool, str | None]],
    ) -> None:
        """`leader` says whether this daemon leads, and the address of the one that does."""
        self._settings = settings
        self._find_key = find_key
        self._clock_ms = clock_ms
        self._leader = leader

    async def create(self, call: Call) -> Answer:
        """Temporary credentials of the caller's own key."""
        caller = call.caller
        if caller.ends_at is not None:
            raise AccessDeniedError(
                "A session cannot make another one. Run `windfall dashboard` again, or use the key itself."
            )
        role, lasts_ms = _asked(call)
        if role > caller.role:
            raise AccessDeniedError(
                f"The key {caller.access_key_id} has the role {caller.role.name.lower()}, so its sessions cannot have "
                f"the role {role.name.lower()}."
            )
        key = self._find_key(caller.access_key_id)
        if key is None:  # Revoked since the request was verified.
            raise unrecognized_client()
        ends_at = self._clock_ms() + lasts_ms
        session = begin_session(key, role, ends_at, secrets.token_hex(16))
        return {
            "v": 1,
            "accessKeyId": session.access_key_id,
            "secretAccessKey": session.secret_access_key,
            "sessionToken": session.session_token,
            "expiresAt": ends_at,
            "role": role.name.lower(),
            "tenant": session.tenant,
            "region": self._settings.region,
        }

    async def who_am_i(self, call: Call) -> Answer:
        """The caller's key, its rights, and which daemon answers."""
        caller = call.caller
        key = self._find_key(caller.access_key_id)
        leads, leader = self._leader()
        return {
            "now": self._clock_ms(),
            "accessKeyId": caller.access_key_id,
            "name": None if key is None else key.name,
            "role": caller.role.name.lower(),
            "tenant": caller.tenant,
            "seesAll": caller.sees_all,
            "expiresAt": caller.ends_at,
            "version": __version__,
            "region": self._settings.region,
            "accountId": self._settings.account_id,
            "leads": leads,
            "leader": leader,
        }


def _asked(call: Call) -> tuple[Role, int]:
    role, hours = call.params.get("role", "read"), call.params.get("hours", DEFAULT_HOURS)
    if role not in _ROLES:
        raise ApiError("Invalid", f"role must be one of {', '.join(_ROLES)}, not {role!r}.")
    is_number = isinstance(hours, int | float) and not isinstance(hours, bool)
    if not is_number or not LEAST_S <= hours * 3600 <= LONGEST_S:
        raise ApiError(
            "Invalid",
            f"hours must be a number from {LEAST_S / 3600:.3f} to {LONGEST_S // 3600}, not {hours!r}.",
        )
    return Role[role.upper()], int(hours * 3_600_000)
