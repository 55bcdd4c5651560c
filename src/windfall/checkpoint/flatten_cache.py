"""Reuses the flattened form of tracked objects, as long as the same tensors are still in place.

Taking a model and its optimizer apart makes tens of thousands of small Python objects while the loop stands still, and
they trigger the garbage collector in the middle of a later step. But between two saves of one run only numbers change.
So the flattened form of plain torch modules and optimizers is cached, together with a list of where each tensor was
found; if each is still there, with the same memory and shape, the form is still valid, and of an optimizer only its
groups (learning rates and the like) are read again. Anything unusual (hooks, overridden methods, numbers in an
optimizer's state) is flattened in full, every time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from windfall.checkpoint.errors import NotTrackable
from windfall.checkpoint.leaves import Flattened, Tree

_MODULE_HOOKS = ("_state_dict_hooks", "_state_dict_pre_hooks")
_OPTIMIZER_HOOKS = ("_optimizer_state_dict_pre_hooks", "_optimizer_state_dict_post_hooks")
_GROUPS = "param_groups"


class TensorPlaces:
    """Members of dictionaries, and the memory of those that are tensors."""

    def __init__(self, torch: Any, holders: Iterable[dict[Any, Any]]) -> None:
        holders = list(holders)
        self._sizes = [(holder, len(holder)) for holder in holders]
        self._members = [(holder, key, member) for holder in holders for key, member in holder.items()]
        tensors = [member for _, _, member in self._members if isinstance(member, torch.Tensor)]
        self._tensors = [(tensor, tensor.data_ptr(), tensor.shape) for tensor in tensors]

    def hold(self) -> bool:
        """Whether everything is where it was."""
        return (
            all(len(holder) == size for holder, size in self._sizes)
            and all(holder.get(key) is member for holder, key, member in self._members)
            and all(t.data_ptr() == address and t.shape == shape for t, address, shape in self._tensors)
        )


class _CachedForm:
    """A flattened object, and the conditions under which it is still valid."""

    def __init__(
        self, flattened: Flattened, places: TensorPlaces, groups: Callable[[], Tree] | None, way: list[Any]
    ) -> None:
        self._flattened = flattened
        self._places = places
        self._groups = groups
        self._way = way

    def again(self) -> Flattened | None:
        if not self._places.hold():
            return None
        if self._groups is None:
            return self._flattened
        groups = self._groups()
        if groups is None:
            return None
        tree = _replaced(self._flattened.tree, self._way, groups)
        return Flattened(tree, self._flattened.leaves)


class FlattenCache:
    """Flattens tracked objects by name; from the cache, where that is safe."""

    def __init__(self, flatten: Callable[[Any], Flattened]) -> None:
        self._flatten = flatten
        self._cached: dict[str, _CachedForm] = {}

    def flatten(self, name: str, tracked: Any) -> Flattened:
        """What frameworks.flatten gives, now."""
        cached = self._cached.get(name)
        if cached is not None and (again := cached.again()) is not None:
            return again
        try:
            flattened = self._flatten(tracked)
        except NotTrackable as error:
            raise NotTrackable(f"run.track({name}=...): {error}") from None
        self._cached.pop(name, None)
        if (form := self._cacheable(tracked, flattened)) is not None:
            self._cached[name] = form
        return flattened

    def _cacheable(self, tracked: Any, flattened: Flattened) -> _CachedForm | None:
        torch = sys.modules.get("torch")
        if torch is None or not is_plain(tracked):
            return None
        if isinstance(tracked, torch.nn.Module):
            holders = [
                members
                for part in tracked.modules()
                for members in (part._parameters, part._buffers, part._modules)  # noqa: SLF001 (what state_dict reads)
            ]
            return _CachedForm(flattened, TensorPlaces(torch, holders), None, [])
        if not isinstance(tracked, torch.optim.Optimizer):
            return None
        states = list(tracked.state.values())
        members = [member for state in states for member in state.values()]
        if not all(isinstance(member, torch.Tensor) for member in members):
            return None
        order = [dict(enumerate(group["params"])) for group in tracked.param_groups]
        holders = [tracked.state, *states]
        places = TensorPlaces(torch, holders)

        def groups() -> Tree:
            now = tracked.param_groups
            if len(now) != len(order):
                return None
            for group, params in zip(now, order, strict=True):
                cached = group["params"]
                if len(cached) != len(params) or any(cached[n] is not p for n, p in params.items()):
                    return None
            probe = self._flatten({_GROUPS: _packed(now)})
            return None if probe.leaves else _at(probe.tree, _way_to(probe.tree) or [])

        way = _way_to(flattened.tree)
        # Only if reading the groups alone gives exactly what the whole gave may the two be mixed.
        if way is None or groups() != _at(flattened.tree, way):
            return None
        return _CachedForm(flattened, places, groups, way)


def is_plain(tracked: Any) -> bool:
    """Whether a torch module or optimizer gives its state by torch's own methods, without hooks."""
    torch = sys.modules["torch"]
    if isinstance(tracked, torch.nn.Module):
        base = torch.nn.Module
        methods = ("state_dict", "_save_to_state_dict", "get_extra_state")
        return not any(
            any(getattr(part, hooks, None) for hooks in _MODULE_HOOKS)
            or any(getattr(type(part), method) is not getattr(base, method) for method in methods)
            for part in tracked.modules()
        )
    if isinstance(tracked, torch.optim.Optimizer):
        overridden = type(tracked).state_dict is not torch.optim.Optimizer.state_dict
        return not overridden and not any(getattr(tracked, hooks, None) for hooks in _OPTIMIZER_HOOKS)
    return False


def _packed(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups as an optimizer's state_dict has them: parameters by number."""
    numbers: dict[int, int] = {}
    packed = []
    for group in groups:
        for parameter in group["params"]:
            numbers.setdefault(id(parameter), len(numbers))
        plain = {key: value for key, value in group.items() if key != "params"}
        packed.append({**plain, "params": [numbers[id(parameter)] for parameter in group["params"]]})
    return packed


def _way_to(tree: Tree, depth: int = 5) -> list[Any] | None:
    """The steps from the root of a tree to what stands beside the key of the groups."""
    if depth == 0:
        return None
    if isinstance(tree, dict):
        if _GROUPS in tree:
            return [_GROUPS]
        branches: Iterable[tuple[Any, Any]] = tree.items()
    elif isinstance(tree, list):
        if len(tree) == 2 and tree[0] == _GROUPS:
            return [1]
        branches = enumerate(tree)
    else:
        return None
    for key, branch in branches:
        if isinstance(branch, (dict, list)) and (way := _way_to(branch, depth - 1)) is not None:
            return [key, *way]
    return None


def _at(tree: Tree, way: list[Any]) -> Tree:
    for key in way:
        tree = tree[key]
    return tree


def _replaced(tree: Tree, way: list[Any], value: Tree) -> Tree:
    """A tree with one branch exchanged; all other branches are shared, since nobody changes them."""
    if not way:
        return value
    twin = tree.copy()
    twin[way[0]] = _replaced(tree[way[0]], way[1:], value)
    return twin
