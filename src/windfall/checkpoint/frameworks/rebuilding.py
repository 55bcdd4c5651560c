"""Decides how a stored tree becomes values again, inside of the object it came from or one built the same way.

The template is the live value at the same place: its arrays are filled in place, its containers are changed in
place where the user holds them directly, and it supplies the types that a tree only names (namedtuples, pytree
nodes, objects with state). No type is ever imported by a name from a checkpoint, except members of enums that the
program has already loaded.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

from windfall.checkpoint.errors import Mismatch
from windfall.checkpoint.frameworks.structure import (
    TAG,
    ArrayKind,
    ObjectKind,
    Registered,
    child_path,
    field_values,
    is_pair,
    is_record,
    type_name,
)
from windfall.checkpoint.leaves import ReadLeaf, Tree

#: Stands for "nothing live is there", since None is a value.
NOTHING = object()
_PLAIN_DICTS: dict[str, type] = {"OrderedDict": OrderedDict, "Counter": Counter}


class Rebuilder:
    """Puts one tracked object together again."""

    def __init__(
        self,
        arrays: Sequence[ArrayKind],
        objects: Sequence[ObjectKind],
        registered: dict[type, Registered],
        reassemble: Callable[[Any, Callable[[Sequence[Any]], list[Any]]], Any],
        read: ReadLeaf,
    ) -> None:
        self._arrays = {array_kind.kind: array_kind for array_kind in arrays}
        self._objects = objects
        self._registered = {type_name(kind): registered for kind, registered in registered.items()}
        self._reassemble = reassemble
        self._read = read
        self._builders: dict[str, Callable[[dict[str, Any], Any, str, bool], Any]] = {
            "array": self._array,
            "pair": self._pair,
            "object": self._object,
            "registered": self._registered_value,
            "dict": self._dict,
            "tuple": self._tuple,
            "deque": self._deque,
            "set": self._set,
            "frozenset": self._frozenset,
            "record": self._record,
            "fields": self._fields,
            "pytree": self._pytree,
            "enum": self._enum,
            "float": lambda node, *_: float.fromhex(node["hex"]),
            "complex": lambda node, *_: complex(*map(float.fromhex, node["hex"])),
            "bytes": lambda node, *_: base64.b64decode(node["base64"]),
        }

    def top(self, value: Any, tree: Tree) -> None:
        """Puts the stored state into a tracked object."""
        self.value(tree, value, "", direct=True)

    def value(self, node: Tree, template: Any, path: str, *, direct: bool) -> Any:
        """The stored value; with `direct`, containers of the template are changed rather than replaced."""
        if isinstance(node, list):
            return self._list(node, template, path, direct=direct)
        if not isinstance(node, dict):
            return node
        build = self._builders.get(node[TAG])
        if build is None:
            raise Mismatch(
                f"{path}: the checkpoint holds a value of the form {node[TAG]!r}, which this version does not know; "
                "resume with the version of windfall that wrote it"
            )
        return build(node, template, path, direct)

    # ------------------------------------------------------------------------------------- arrays and objects

    def _array(self, node: dict[str, Any], template: Any, path: str, direct: bool) -> Any:
        array_kind = self._arrays.get(node["kind"])
        if array_kind is None:
            raise Mismatch(
                f"{path}: stored as an array of {node['kind']}, which this program has not imported; import it "
                "before resume()"
            )
        owned = template if template is not NOTHING and array_kind.owns(template) else None
        built = array_kind.rebuild(self._read(node["at"]), node, owned, path)
        if direct and built is not owned:
            raise Mismatch(
                f"{path or 'the tracked object'}: stored with another shape or type than the array tracked now; "
                "build the same objects as in the run that wrote the checkpoint"
            )
        return built

    def _pair(self, node: dict[str, Any], template: Any, path: str, _direct: bool) -> Any:
        if not is_pair(template):
            raise self._differs(path, "a pair (get, set)", template)
        get, set_ = template
        set_(self.value(node["value"], get(), path, direct=False))
        return template

    def _object(self, node: dict[str, Any], template: Any, path: str, _direct: bool) -> Any:
        for object_kind in self._objects:
            if object_kind.name == node["kind"] and object_kind.owns(template):
                object_kind.load(
                    template, lambda live: self.value(node["state"], live, path, direct=False), path
                )
                return template
        raise self._differs(path, f"an object of the kind {node['kind']}", template)

    def _registered_value(self, node: dict[str, Any], _template: Any, path: str, _direct: bool) -> Any:
        registered = self._registered.get(node["type"])
        if registered is None:
            raise Mismatch(
                f"{path}: stored by a registered type {node['type']}; call "
                "windfall.checkpoint.frameworks.register for it before resume()"
            )
        return registered.unpack(self.value(node["state"], NOTHING, path, direct=False))

    # -------------------------------------------------------------------------------------------- containers

    def _members(
        self, nodes: list[Tree], templates: Sequence[Any], path: str, *, direct: bool = False
    ) -> list[Any]:
        return [
            self.value(
                node,
                templates[position] if position < len(templates) else NOTHING,
                child_path(path, position),
                direct=direct and position < len(templates),
            )
            for position, node in enumerate(nodes)
        ]

    def _list(self, node: list[Tree], template: Any, path: str, *, direct: bool) -> list[Any]:
        live = template if isinstance(template, list) else []
        members = self._members(node, live, path, direct=direct)
        if direct and isinstance(template, list):
            template[:] = members
            return template
        return members

    def _dict(self, node: dict[str, Any], template: Any, path: str, direct: bool) -> Any:
        live = template if isinstance(template, dict) else {}
        built: dict[Any, Any] = {}
        for key_node, member in node["items"]:
            key = self.value(key_node, NOTHING, path, direct=False)
            old_value = live.get(key, NOTHING)
            built[key] = self.value(
                member, old_value, child_path(path, key), direct=direct and old_value is not NOTHING
            )
        if direct and isinstance(template, dict):
            template.clear()
            template.update(built)
            return template
        if isinstance(template, defaultdict):
            return defaultdict(template.default_factory, built)
        return _PLAIN_DICTS.get(node["type"], dict)(built)

    def _tuple(self, node: dict[str, Any], template: Any, path: str, direct: bool) -> Any:
        live = template if isinstance(template, tuple) else ()
        return tuple(self._members(node["items"], live, path, direct=direct))

    def _deque(self, node: dict[str, Any], template: Any, path: str, direct: bool) -> Any:
        members = self._members(node["items"], list(template) if isinstance(template, deque) else [], path)
        if direct and isinstance(template, deque):
            template.clear()
            template.extend(members)
            return template
        return deque(members, maxlen=node["maxlen"])

    def _set(self, node: dict[str, Any], template: Any, path: str, direct: bool) -> Any:
        members = set(self._members(node["items"], (), path))
        if direct and isinstance(template, set):
            template.clear()
            template.update(members)
            return template
        return members

    def _frozenset(self, node: dict[str, Any], _template: Any, path: str, _direct: bool) -> Any:
        return frozenset(self._members(node["items"], (), path))

    def _record(self, node: dict[str, Any], template: Any, path: str, direct: bool) -> Any:
        if not is_record(template) or type(template).__name__ != node["type"]:
            raise self._differs(path, f"a namedtuple {node['type']}", template)
        members = {
            name: self.value(member, getattr(template, name), child_path(path, name), direct=direct)
            for name, member in node["fields"].items()
        }
        return type(template)(**members)

    def _fields(self, node: dict[str, Any], template: Any, path: str, direct: bool) -> Any:
        if type(template).__name__ != node["type"]:
            raise self._differs(path, f"an object {node['type']} with attributes", template)
        live = field_values(template)
        members = {
            name: self.value(member, live.get(name, NOTHING), child_path(path, name), direct=False)
            for name, member in node["fields"].items()
        }
        if dataclasses.is_dataclass(template) and not direct:
            return dataclasses.replace(template, **members)  # type: ignore[type-var]  # an instance: type() was compared
        for name, member in members.items():
            setattr(template, name, member)
        return template

    def _pytree(self, node: dict[str, Any], template: Any, path: str, _direct: bool) -> Any:
        if type(template).__name__ != node["type"]:
            raise self._differs(path, f"a pytree node {node['type']}", template)
        return self._reassemble(template, lambda live: self._members(node["items"], live, path))

    # ------------------------------------------------------------------------------------------- plain values

    def _enum(self, node: dict[str, Any], template: Any, path: str, _direct: bool) -> Any:
        module, _, qualname = node["type"].partition(":")
        kind: Any = sys.modules.get(module)
        for part in qualname.split("."):
            kind = getattr(kind, part, None)
        if not (isinstance(kind, type) and issubclass(kind, enum.Enum)):
            raise self._differs(path, f"a member of the enum {node['type']}", template)
        return kind[node["name"]]

    @staticmethod
    def _differs(path: str, stored: str, template: Any) -> Mismatch:
        live = "nothing" if template is NOTHING else f"a {type(template).__name__}"
        return Mismatch(
            f"{path or 'the tracked object'}: the checkpoint holds {stored}, the program holds {live}; track objects "
            "built the same way as in the run that wrote the checkpoint"
        )
