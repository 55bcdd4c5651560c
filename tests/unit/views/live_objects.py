"""Finds objects of the daemon's state in a value: what leaves the loop must be a copy or cannot change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

from windfall.control.state import State


def live_objects_in(value: Any, state: State) -> list[str]:
    """The mutable objects of a state that a value holds, or through which it could see the state change."""
    live = {id(found) for found in _objects(state, set(), through_values=False) if _can_change(found)}
    reached = _objects(value, set(), through_values=True)
    return sorted({type(found).__name__ for found in reached if id(found) in live})


class WatchedThreads(ThreadPoolExecutor):
    """The threads of an event loop; notes what of a state is handed to them."""

    def __init__(self, state: State) -> None:
        super().__init__(1)
        self._state = state
        self.calls = 0
        self.live: list[str] = []

    def submit(self, work: Any, /, *args: Any, **named: Any) -> Future[Any]:
        self.calls += 1
        self.live += live_objects_in(list(_arguments(work, args, named)), self._state)
        return super().submit(work, *args, **named)


def _arguments(work: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[Any]:
    """What a call is given, also through a partial and through the variables of an inner function."""
    for value in (*args, *named.values()):
        yield from _arguments(value, (), {}) if callable(value) else (value,)
    if isinstance(work, partial):
        yield from _arguments(work.func, work.args, work.keywords)
    for cell in getattr(work, "__closure__", None) or ():
        yield cell.cell_contents


def _objects(value: Any, seen: set[int], *, through_values: bool) -> Iterator[Any]:
    """A value and all that it holds. A frozen dataclass is a value: what the state has in one does not change."""
    inner: list[Any] = []
    if isinstance(value, Mapping):
        inner = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        inner = list(value)
    elif is_dataclass(value) and not isinstance(value, type):
        if not through_values and not _can_change(value):
            return
        inner = [getattr(value, field.name) for field in fields(value)]
    else:
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    yield value
    for item in inner:
        yield from _objects(item, seen, through_values=through_values)


def _can_change(value: Any) -> bool:
    if isinstance(value, dict | list | set):
        return True
    params = getattr(value, "__dataclass_params__", None)
    return params is not None and not params.frozen
