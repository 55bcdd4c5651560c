"""Which variables open object storage for this agent's attempts.

Decides where they come from: a file that the daemon may change at any time, then the agent's own environment. A machine
that does not share the daemon's disk has no lasting keys: for each set of grants that an attempt there needs, the
daemon provides a session, a file beside the secrets. Must not know what is stored.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping

from windfall.agent.speech import say
from windfall.jobs.storage import StorageAccess
from windfall.objects.errors import Refused, Unreachable

#: Where sessions are, in place of keys. The daemon only says that there are some; the agent knows the directory.
SESSIONS_VARIABLE = "WINDFALL_SESSIONS"
#: In a session's file: until when it lasts, or why there is none.
EXPIRES_VARIABLE, REFUSED_VARIABLE = "WINDFALL_SESSION_EXPIRES", "WINDFALL_SESSION_REFUSED"
_SESSION_NAME = re.compile(r"session@[0-9a-f]{32}", re.ASCII)

#: What a job needs to reach the same storage by itself.
_SHARED = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)


def object_environment(objects_file: str | None, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables in which keys and addresses are looked for."""
    return {**inherited, **_from_file(objects_file)}


def attempt_environment(objects_file: str | None, access: StorageAccess) -> dict[str, str]:
    """Return the variables for what one attempt may use; Unreachable while the daemon has not sent its session."""
    variables = object_environment(objects_file)
    directory = variables.get(SESSIONS_VARIABLE)
    if not directory:
        return variables
    session = _from_file(os.path.join(directory, session_name(access)))
    if not session:
        raise Unreachable("the daemon has not sent the credentials for object storage yet")
    if refusal := session.get(REFUSED_VARIABLE):
        raise Refused(refusal)
    return {**variables, **session}


def session_name(access: StorageAccess) -> str:
    """Return under which name the session of what an attempt may use is kept, beside the secrets."""
    grants = access.grants
    said = None if grants is None else sorted((grant.uri, grant.write, *grant.but_not) for grant in grants)
    return f"session@{hashlib.sha256(json.dumps(said).encode()).hexdigest()[:32]}"


def is_session_name(name: str) -> bool:
    """Whether this names a session, and no secret."""
    return _SESSION_NAME.fullmatch(name) is not None


def region(objects_file: str | None) -> str:
    """Return the region that instance metadata name."""
    known = object_environment(objects_file)
    return known.get("AWS_REGION") or known.get("AWS_DEFAULT_REGION") or "us-east-1"


def shared_variables(objects_file: str | None) -> dict[str, str]:
    """Return the variables that a job may have so that it reaches the storage too."""
    known = object_environment(objects_file)
    return {name: known[name] for name in _SHARED if known.get(name)}


def _from_file(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        say(f"{path} cannot be read, so object storage is opened without it: {error}")
        return {}
    if not isinstance(content, dict):
        say(f"{path} is not a JSON object of variables; object storage is opened without it")
        return {}
    return {str(name): str(value) for name, value in content.items()}
