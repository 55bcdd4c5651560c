"""Commands about the places of object storage that jobs of submit keys may use."""

from __future__ import annotations

from dataclasses import dataclass

from windfall.jobs.storage import StoragePlace


@dataclass(frozen=True, slots=True)
class AddStorage:
    """The reply is the StoragePlace; one that is registered for the same tenant is replaced."""

    place: StoragePlace


@dataclass(frozen=True, slots=True)
class RemoveStorage:
    """Attempts that run keep what they have; the next ones are refused."""

    uri: str
    tenant: str | None = None


StorageCommand = AddStorage | RemoveStorage
