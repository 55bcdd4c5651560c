"""Which variables open object storage for this agent's attempts. Decides where they come from: a file that the daemon
may change at any time, then the agent's own environment. Must not know what is stored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from windfall.agent.speech import say

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
