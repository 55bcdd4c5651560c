"""Commands about log groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CreateLogGroup:
    """`in_use` says whether jobs have made it by logging to it. The reply is the LogGroup."""

    name: str
    tags: Mapping[str, str]
    in_use: bool


@dataclass(frozen=True, slots=True)
class DeleteLogGroup:
    """Its streams are gone with it."""

    name: str


@dataclass(frozen=True, slots=True)
class SetLogGroup:
    """Change retention or tags; what is None stays. A retention of 0 takes it away. The reply is the LogGroup."""

    name: str
    retention_days: int | None = None
    tags: Mapping[str, str] | None = None


LogCommand = CreateLogGroup | DeleteLogGroup | SetLogGroup
