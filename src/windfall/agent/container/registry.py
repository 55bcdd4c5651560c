"""Who we are to an image's registry: what `docker login` left in the configuration of the agent's own user.

Decides which entry is meant. Only passwords that are in the file: programs that keep them elsewhere (credential
helpers) are not run. Imported by the keeper: the standard library alone.
"""

from __future__ import annotations

import base64
import json
import os

_DOCKER_HUB = ("https://index.docker.io/v1/", "index.docker.io", "docker.io")


def registry_of(image: str) -> str:
    """Return the host that an image comes from; empty for Docker's own."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else ""


def registry_headers(image: str, configuration: str) -> dict[str, str]:
    """Return the header that a pull needs; none when the file knows nothing of the registry."""
    try:
        with open(configuration, "rb") as file:
            known = json.load(file).get("auths", {})
        host = registry_of(image)
        names = (
            (host, f"https://{host}", f"https://{host}/v1/", f"https://{host}/v2/") if host else _DOCKER_HUB
        )
        entry = next((known[name] for name in names if name in known), None)
        if entry is None:
            return {}
        user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return {}
    said = json.dumps({"username": user, "password": password, "serveraddress": host or _DOCKER_HUB[0]})
    return {"X-Registry-Auth": base64.urlsafe_b64encode(said.encode()).decode()}


def configuration_path(environment: dict[str, str]) -> str:
    """Return where `docker login` writes in this environment."""
    directory = environment.get("DOCKER_CONFIG") or os.path.join(
        environment.get("HOME") or "/root", ".docker"
    )
    return os.path.join(directory, "config.json")
