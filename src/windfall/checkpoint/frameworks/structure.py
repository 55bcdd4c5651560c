"""Decides how nested Python values become a JSON tree with arrays taken out of it, and how they come back.

A node is a JSON scalar for itself, a JSON list for a list, and an object with the tag "~" for everything else.
What an array is, and which objects bring state of their own, is told by the `Kind`s that are passed in; this
module knows no framework. Nothing is pickled: a value of an unknown type is an error that says what to do.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import math
import types
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol

from windfall.checkpoint.errors import NotTrackable
from windfall.checkpoint.leaves import Leaf, LeafForm, StoredLeaf, Tree

TAG = "~"


class ArrayKind(Protocol):
    """One framework's arrays."""

    kind: str

    def owns(self, value: Any) -> bool:
        """Whether the value is an array of this framework."""
        ...

    def take(self, value: Any, path: str) -> tuple[Leaf, dict[str, Any]]:
        """The leaf to store and notes for the tree; raises NotTrackable for what has no plain bytes."""
        ...

    def identity(self, leaf: Leaf) -> Hashable:
        """Equal for two leaves that are the same memory in the same order; None where that cannot be said."""
        ...

    def immutable(self, leaf: Leaf) -> bool:
        """Whether nobody can change the array in place."""
        ...

    def describe(self, leaf: Leaf) -> LeafForm:
        """Metadata only."""
        ...

    def host_bytes(self, leaf: Leaf) -> memoryview:
        """Row-major bytes."""
        ...

    def rebuild(self, stored: StoredLeaf, node: dict[str, Any], template: Any, path: str) -> Any:
        """Fills the template in place where it fits, or makes a new array."""
        ...

    def fold_views(self, nodes: list[tuple[dict[str, Any], Leaf]]) -> set[str]:
        """Turns leaves that lie inside of another into views of it; returns the paths no longer needed."""
        ...


class ObjectKind(Protocol):
    """Objects that carry state and take it back in place: modules, optimizers, generators, ..."""

    name: str

    def owns(self, value: Any) -> bool:
        """Whether this kind knows how to take the object apart."""
        ...

    def state(self, value: Any) -> Any:
        """The state as plain values and arrays."""
        ...

    def load(self, value: Any, rebuild: Callable[[Any], Any], path: str) -> None:
        """Puts a state back: `rebuild(template)` gives the stored one, into the template's arrays where it fits."""
        ...


class Registered(Protocol):
    """A type whose values somebody taught us to write as plain values."""

    def pack(self, value: Any) -> Any:
        """Plain values and arrays."""
        ...

    def unpack(self, state: Any) -> Any:
        """The value again."""
        ...


def child_path(path: str, key: object) -> str:
    """The path of a member; a slash inside of a key cannot be taken for a separator."""
    part = key if isinstance(key, str) else str(key)
    if "/" in part or "%" in part:
        part = part.replace("%", "%25").replace("/", "%2F")
    return f"{path}/{part}" if path else part


def advice(path: str, value: object) -> NotTrackable:
    """The error for a value that cannot be written down, with what to do about it."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return NotTrackable(
        f"{path or 'the tracked object'} is a {kind}, which cannot be stored without pickle. Track something that has "
        "state_dict() and load_state_dict() made of arrays, numbers, strings and containers of them; or track a pair "
        "(get, set) of functions that give and take such values; or teach the type with "
        "windfall.checkpoint.frameworks.register(type, pack, unpack)."
    )


def is_record(value: object) -> bool:
    """Whether a tuple is a namedtuple, which is rebuilt by its own type."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def is_pair(value: object) -> bool:
    """Whether a value is the form (get, set) of two functions."""
    return isinstance(value, tuple) and len(value) == 2 and not is_record(value) and all(map(callable, value))


class Flattener:
    """Takes one tracked object apart."""

    def __init__(
        self,
        arrays: Sequence[ArrayKind],
        objects: Sequence[ObjectKind],
        registered: dict[type, Registered],
        children: Callable[[Any], Sequence[Any] | None],
        array_types: dict[type, ArrayKind],
    ) -> None:
        """`array_types` remembers from call to call which types are arrays: thousands are asked for at each save."""
        self._arrays = arrays
        self._array_types = array_types
        self._objects = objects
        self._registered = registered
        #: The members of a type that a framework knows as a container (a JAX pytree node), or None.
        self._children = children
        self.leaves: dict[str, Leaf] = {}
        self._seen: dict[Hashable, str] = {}
        self._nodes: dict[str, list[tuple[dict[str, Any], Leaf]]] = {}

    def top(self, value: Any) -> Tree:
        """The tree of a whole tracked object; arrays that overlap are stored once."""
        tree = self.node(value, "", direct=True)
        for array_kind in self._arrays:
            for path in array_kind.fold_views(self._nodes.get(array_kind.kind, [])):
                del self.leaves[path]
        return tree

    def node(self, value: Any, path: str, *, direct: bool) -> Tree:
        """The tree of one value; `direct` where only a change in place will be seen by the user's program."""
        kind = type(value)
        if kind is str or value is None or kind is bool or kind is int:
            return self._plain(value, path, direct=direct) if direct else value
        if kind is float:
            return self._plain(
                value if math.isfinite(value) else {TAG: "float", "hex": value.hex()}, path, direct=direct
            )
        if (remembered_kind := self._array_types.get(kind)) is not None:
            return self._array(remembered_kind, value, path, direct=direct)
        if kind is dict or kind is list:
            return self._container(value, path, direct=direct)
        for array_kind in self._arrays:
            if array_kind.owns(value):
                self._array_types[kind] = array_kind
                return self._array(array_kind, value, path, direct=direct)
        if is_pair(value):
            return {TAG: "pair", "value": self.node(value[0](), path, direct=False)}
        for object_kind in self._objects:
            if object_kind.owns(value):
                state = self.node(object_kind.state(value), path, direct=False)
                return {TAG: "object", "kind": object_kind.name, "state": state}
        if isinstance(value, (dict, list, deque, tuple, set, frozenset)) and not isinstance(value, enum.Enum):
            return self._container(value, path, direct=direct)
        return self._other(value, path, direct=direct)

    def _plain(self, node: Tree, path: str, *, direct: bool) -> Tree:
        if direct and not path:
            raise NotTrackable(
                "A number, a string or None cannot be changed in place. Track a dict that holds it, such as "
                '{"epoch": 0}, or a pair (get, set) of functions.'
            )
        return node

    def _array(self, array_kind: ArrayKind, value: Any, path: str, *, direct: bool) -> Tree:
        if direct and array_kind.immutable(value):
            raise NotTrackable(
                f"{path or 'The tracked object'} is an array of {array_kind.kind}, which never changes in place: a "
                "loop that binds its name to a new array would leave the old one here. Track a pair of functions, "
                "run.track(state=(lambda: state, set_state)), or a types.SimpleNamespace whose attributes hold the "
                "arrays."
            )
        leaf, notes = array_kind.take(value, path)
        identity = array_kind.identity(leaf)
        stored_at = self._seen.get(identity) if identity is not None else None
        if stored_at is None:
            stored_at = path or "value"
            while stored_at in self.leaves:  # the keys 1 and "1" of one dict give the same text
                stored_at += "~"
            self.leaves[stored_at] = leaf
            if identity is not None:
                self._seen[identity] = stored_at
        node = {TAG: "array", "kind": array_kind.kind, "at": stored_at, **notes}
        self._nodes.setdefault(array_kind.kind, []).append((node, leaf))
        return node

    def _members(self, values: Iterable[Any], path: str, *, direct: bool) -> list[Tree]:
        return [
            self.node(value, child_path(path, position), direct=direct)
            for position, value in enumerate(values)
        ]

    def _container(self, value: Any, path: str, *, direct: bool) -> Tree:
        if isinstance(value, dict):
            items = [
                [
                    key if type(key) is str else self.node(key, child_path(path, "key"), direct=False),
                    self.node(member, child_path(path, key), direct=direct),
                ]
                for key, member in value.items()
            ]
            return {TAG: "dict", "type": type(value).__name__, "items": items}
        if isinstance(value, (set, frozenset)):
            members = self._members(sorted(value, key=repr), path, direct=False)
            return {TAG: "frozenset" if isinstance(value, frozenset) else "set", "items": members}
        if is_record(value):
            fields = {
                name: self.node(getattr(value, name), child_path(path, name), direct=direct)
                for name in value._fields
            }
            return {TAG: "record", "type": type(value).__name__, "fields": fields}
        members = self._members(value, path, direct=direct)
        if isinstance(value, tuple):
            if direct and not path and any(not isinstance(member, dict) for member in members):
                raise NotTrackable("The members of a tuple cannot be changed in place; track a list")
            return {TAG: "tuple", "items": members}
        if isinstance(value, deque):
            return {TAG: "deque", "maxlen": value.maxlen, "items": members}
        return members

    def _other(self, value: Any, path: str, *, direct: bool) -> Tree:
        if isinstance(value, (bytes, bytearray)):
            return self._plain(
                {TAG: "bytes", "base64": base64.b64encode(value).decode()}, path, direct=direct
            )
        if isinstance(value, complex):
            return self._plain(
                {TAG: "complex", "hex": [value.real.hex(), value.imag.hex()]}, path, direct=direct
            )
        if isinstance(value, enum.Enum):
            return {TAG: "enum", "type": type_name(type(value)), "name": value.name}
        if isinstance(value, (int, float, str)):  # a subclass: numpy.float64, torch's version strings, ...
            plain = (
                int(value)
                if isinstance(value, int)
                else str(value)
                if isinstance(value, str)
                else float(value)
            )
            return self.node(plain, path, direct=direct)
        for kind, registered in self._registered.items():
            if isinstance(value, kind):
                packed = self.node(registered.pack(value), path, direct=False)
                return {TAG: "registered", "type": type_name(kind), "state": packed}
        if isinstance(value, types.SimpleNamespace) or (
            dataclasses.is_dataclass(value) and not isinstance(value, type) and self._children(value) is None
        ):
            fields = {
                name: self.node(v, child_path(path, name), direct=False)
                for name, v in field_values(value).items()
            }
            return {TAG: "fields", "type": type(value).__name__, "fields": fields}
        if (children := self._children(value)) is not None:
            if direct and not path:
                raise NotTrackable(
                    f"A {type(value).__name__} is replaced, not changed, by a training step. Track a pair of "
                    "functions: run.track(state=(lambda: state, set_state))."
                )
            return {
                TAG: "pytree",
                "type": type(value).__name__,
                "items": self._members(children, path, direct=False),
            }
        raise advice(path, value)


def field_values(value: Any) -> dict[str, Any]:
    """The attributes of a namespace or dataclass that make up its state."""
    if isinstance(value, types.SimpleNamespace):
        return dict(vars(value))
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def type_name(kind: type) -> str:
    """How a tree names a type; it is compared, never imported."""
    return f"{kind.__module__}:{kind.__qualname__}"
