"""Commands about consumable resources."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from windfall.capacity.consumables import ConsumableResource


class QuantityOperation(StrEnum):
    """What an update does to the total."""

    SET = "SET"
    ADD = "ADD"
    REMOVE = "REMOVE"


@dataclass(frozen=True, slots=True)
class CreateConsumableResource:
    resource: ConsumableResource


@dataclass(frozen=True, slots=True)
class UpdateConsumableResource:
    """The reply is the ConsumableResource."""

    name: str
    operation: QuantityOperation
    quantity: int
    client_token: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteConsumableResource:
    name: str


ConsumableCommand = CreateConsumableResource | UpdateConsumableResource | DeleteConsumableResource
