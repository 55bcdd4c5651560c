"""Which of the daemon's environment variables may be used for object storage: never its own keys or addresses.

A daemon may be started from a shell with `eval "$(windfall env)"`. A key of the API is not a key of storage: passed to
agents it would open the API to everyone who can read theirs, and would be sent to AWS. Decides what is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from os import devnull

from windfall.objects.credentials import KEY_VARIABLES, is_api_key, stored_profile

_KEY_ID = KEY_VARIABLES[0]
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS")


def without_own(
    environment: Mapping[str, str], key_ids: Collection[str], addresses: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """The environment without Windfall's own keys and addresses, and a text about each thing left out.

    What is left out is empty rather than missing, so that an agent that inherited it does not use it either.
    """
    left, left_out = dict(environment), []

    def is_own(key_id: str) -> bool:
        return key_id in key_ids or is_api_key(key_id)

    if is_own(left.get(_KEY_ID, "")):
        left_out.append(f"{_KEY_ID} is {left[_KEY_ID]}, a key of Windfall's API")
        left.update(dict.fromkeys(KEY_VARIABLES, ""))
    for name in _ENDPOINTS:
        if left.get(name, "").rstrip("/") in addresses:
            left_out.append(f"{name} is {left[name]}, which is Windfall itself")
            left[name] = ""
    profile = left.get("AWS_PROFILE") or "default"
    stored = stored_profile(profile, left)
    if is_own(stored.get("aws_access_key_id", "")):
        left_out.append(f"the profile {profile} has {stored['aws_access_key_id']}, a key of Windfall's API")
        left |= {"AWS_PROFILE": "", "AWS_SHARED_CREDENTIALS_FILE": devnull, "AWS_CONFIG_FILE": devnull}
    return left, left_out
