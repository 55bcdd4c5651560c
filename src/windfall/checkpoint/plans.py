"""Turns flattened state into a plan of copies, and knows cheaply when the plan of the last save still holds.

A training state has a thousand leaves, and the loop stands still while they are looked at, so a plan is made
once and kept as long as names, types, shapes and devices stay the same. Nothing is copied here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windfall.checkpoint import layout as layouts
from windfall.checkpoint.leaves import Flattened, Leaf, LeafForm

Pair = tuple[layouts.Extent, Leaf]


@dataclass(slots=True)
class SavePlan:
    """Where the leaves of one form of state go; lists hold positions in the order of flattening."""

    number: int
    layout: layouts.Layout
    #: By CUDA device.
    on_device: dict[str, list[tuple[layouts.Extent, int]]] = field(default_factory=dict)
    #: Immutable arrays on other devices: may be held and copied later.
    held: list[tuple[layouts.Extent, int]] = field(default_factory=list)
    on_host: list[tuple[layouts.Extent, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A plan, the leaves to copy by it, and what has changed since the last look."""

    plan: SavePlan
    leaves: list[Leaf]
    new: bool
    #: Whether leaves on CUDA devices may be other ones than at the last look.
    moved: bool


@dataclass(frozen=True, slots=True)
class _Part:
    leaves: Mapping[str, Leaf]
    keys: list[Any]
    on_device: bool


class Planner:
    """The last plan, and what it was made for."""

    def __init__(self, describe: Callable[[Leaf], LeafForm]) -> None:
        self._describe = describe
        self._parts: dict[str, _Part] = {}
        self.plan: SavePlan | None = None

    def fit(self, state: Mapping[str, Flattened]) -> Fitted:
        """The plan for this state, and its leaves in order."""
        parts = {name: self._part(name, flattened) for name, flattened in state.items()}
        leaves = [leaf for part in parts.values() for leaf in part.leaves.values()]
        moved = any(part is not self._parts.get(name) for name, part in parts.items() if part.on_device)
        same = list(parts) == list(self._parts) and all(
            part is self._parts[name] or part.keys == self._parts[name].keys for name, part in parts.items()
        )
        self._parts = parts
        if self.plan is not None and same:
            return Fitted(self.plan, leaves, new=False, moved=moved)
        paths = [f"{name}/{path}" for name, part in parts.items() for path in part.leaves]
        number = 1 if self.plan is None else self.plan.number + 1
        self.plan = _make(number, paths, [self._describe(leaf) for leaf in leaves])
        return Fitted(self.plan, leaves, new=True, moved=True)

    def _part(self, name: str, flattened: Flattened) -> _Part:
        old_part = self._parts.get(name)
        if old_part is not None and old_part.leaves is flattened.leaves:
            return old_part  # the very same leaves: nothing about them has to be asked again
        keys = [(path, *_key(leaf)) for path, leaf in flattened.leaves.items()]
        return _Part(flattened.leaves, keys, any(str(key[-1]).startswith("cuda") for key in keys))


def _key(leaf: Leaf) -> tuple[Any, ...]:
    if isinstance(leaf, bytes):
        return (bytes, len(leaf))
    return (type(leaf), leaf.shape, leaf.dtype, getattr(leaf, "device", None))


def _make(number: int, paths: list[str], forms: list[LeafForm]) -> SavePlan:
    layout = layouts.plan(list(zip(paths, forms, strict=True)))
    position = {path: place for place, path in enumerate(paths)}
    plan = SavePlan(number, layout)
    for extent in layout.extents:
        entry = (extent, position[extent.path])
        if layouts.is_cuda(extent.form):
            plan.on_device.setdefault(extent.form.device, []).append(entry)
        elif extent.form.immutable and extent.form.device != "cpu":
            plan.held.append(entry)
        else:
            plan.on_host.append(entry)
    return plan
