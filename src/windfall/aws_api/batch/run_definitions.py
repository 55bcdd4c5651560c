"""The job definitions that `windfall run` overrides: one for each image, under a name that is reserved for it.

Every `windfall run` of a tenant uses them, with the rights of the key that submits. A submit key could otherwise
register a revision with variables or tags of its own, which would run its code as another user. So these names hold
the plain definition alone, unless an admin says otherwise. Must not know how a run overrides it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

IMAGE = "windfall/host"
DEFINITION = "windfall-run"


def definition_name(image: str | None) -> str:
    """The name of the definition that a run with this image overrides, as AWS allows it."""
    if image is None or image == IMAGE:
        return DEFINITION
    words = re.sub(r"[^A-Za-z0-9_]+", "-", image).strip("-_")[-64:].lstrip("-_")
    # Two images must not share one because their names differ in a sign only.
    return f"{DEFINITION}-{words}-{hashlib.sha256(image.encode()).hexdigest()[:8]}"


def plain_definition(image: str | None) -> dict[str, Any]:
    """The request that registers the definition of an image."""
    return {
        "jobDefinitionName": definition_name(image),
        "type": "container",
        "containerProperties": {
            "image": image or IMAGE,
            "command": [],
            "resourceRequirements": [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "2048"}],
        },
    }


def is_reserved(name: str) -> bool:
    """Whether a definition of this name, with or without a revision, is one that `windfall run` overrides."""
    bare = name.partition(":")[0]
    return bare == DEFINITION or bare.startswith(f"{DEFINITION}-")


def is_plain(params: Mapping[str, Any]) -> bool:
    """Whether a request registers exactly what `windfall run` would."""
    container = params.get("containerProperties")
    image = container.get("image") if isinstance(container, Mapping) else None
    return isinstance(image, str) and dict(params) == plain_definition(image)
