"""Decides, by type, how each object that a training loop tracks is taken apart and put together again.

Implements the contract of windfall.checkpoint.leaves over PyTorch, JAX, TensorFlow with Keras, numpy and plain
Python values. A framework takes part when the job has imported it, and is never imported here. What is done with
the leaves (copied, written, verified) is not known here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from windfall.checkpoint.errors import Mismatch, NotTrackable
from windfall.checkpoint.frameworks import (
    generators,
    jax_state,
    numpy_state,
    tensorflow_state,
    torch_state,
    torch_tensors,
)
from windfall.checkpoint.frameworks.rebuilding import Rebuilder
from windfall.checkpoint.frameworks.structure import ArrayKind, Flattener, ObjectKind, Registered
from windfall.checkpoint.leaves import Flattened, Leaf, LeafForm, ReadLeaf, Tree

__all__ = [
    "flatten",
    "restore",
    "describe",
    "host_bytes",
    "start_host_copy",
    "rng_state",
    "set_rng_state",
    "register",
]


class StatefulObjects:
    """Whatever has state_dict and load_state_dict: schedulers, scalers, stateful data loaders, the user's own."""

    name = "state_dict"

    def owns(self, value: Any) -> bool:
        """Classes themselves have the methods too, and no state."""
        return (
            not isinstance(value, type) and hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
        )

    def state(self, value: Any) -> Any:
        """As the object says."""
        return value.state_dict()

    def load(self, value: Any, rebuild: Callable[[Any], Any], path: str) -> None:  # noqa: ARG002 (the form of all object kinds)
        """Arrays of the live state are filled in place, then the object is given all of it."""
        value.load_state_dict(rebuild(value.state_dict()))


@dataclass(frozen=True, slots=True)
class _Functions:
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What the job has imported, in the order in which types are asked."""

    numpy: Any
    torch: Any
    jax: Any
    arrays: Sequence[ArrayKind]
    objects: Sequence[ObjectKind]
    registered: dict[type, Registered]

    def flattener(self) -> Flattener:
        return Flattener(self.arrays, self.objects, self.registered, self.children, _array_types)

    def children(self, value: Any) -> Sequence[Any] | None:
        return None if self.jax is None else jax_state.pytree_children(self.jax, value)

    def reassemble(self, template: Any, members: Callable[[Sequence[Any]], list[Any]]) -> Any:
        if self.jax is None:
            raise Mismatch("The checkpoint holds a JAX pytree; import jax before resume()")
        return jax_state.reassembled(self.jax, template, members)


#: Types that were found to be arrays; a type belongs to one framework for good.
_array_types: dict[type, ArrayKind] = {}
_taught: dict[type, Registered] = {}
_known: dict[tuple[int, ...], _Loaded] = {}


def register(kind: type, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
    """Teaches a type: `pack(value)` gives plain values and arrays, `unpack` makes the value again."""
    _taught[kind] = _Functions(pack, unpack)
    _known.clear()


def _usable(name: str, probe: str) -> Any:
    """A framework that is imported, and not just being imported by another thread."""
    module = sys.modules.get(name)
    return module if module is not None and hasattr(module, probe) else None


def _loaded() -> _Loaded:
    numpy, torch = _usable("numpy", "ndarray"), _usable("torch", "optim")
    jax, keras = _usable("jax", "Array"), _usable("keras", "Layer")
    tensorflow = _usable("tensorflow", "Variable")
    key = tuple(map(id, (numpy, torch, jax, keras, tensorflow)))
    if key not in _known:
        _known[key] = _assembled(numpy, torch, jax, keras, tensorflow)
    return _known[key]


def _assembled(numpy: Any, torch: Any, jax: Any, keras: Any, tensorflow: Any) -> _Loaded:
    arrays: list[ArrayKind] = []
    objects: list[ObjectKind] = []
    plain: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {}
    if torch is not None:
        arrays.append(torch_tensors.TorchArrays(torch))
        objects.append(torch_state.TorchOptimizers(torch))
        objects.append(torch_state.TorchGenerators(torch))
        plain.update(torch_state.plain_values(torch))
    if jax is not None:
        arrays.append(jax_state.JaxArrays(jax, numpy))
    if numpy is not None:
        arrays.append(numpy_state.NumpyArrays(numpy))
        objects.append(numpy_state.NumpyGenerators(numpy))
        plain.update(numpy_state.plain_values(numpy))
    if keras is not None:  # before torch's modules: on the torch backend a Keras layer is one of those too
        objects.append(tensorflow_state.KerasObjects(keras))
    if torch is not None:
        objects.append(torch_state.TorchModules(torch))
    if tensorflow is not None:
        arrays.append(tensorflow_state.TensorFlowArrays(tensorflow, numpy))
        objects.append(tensorflow_state.TensorFlowGenerators(tensorflow))
        objects.append(tensorflow_state.TensorFlowModules(tensorflow))
    objects += [generators.PythonGenerators(), StatefulObjects()]
    registered: dict[type, Registered] = {kind: _Functions(*pair) for kind, pair in plain.items()}
    return _Loaded(numpy, torch, jax, arrays, objects, {**registered, **_taught})


def flatten(obj: Any) -> Flattened:
    """Takes apart a module, optimizer, scaler, generator, object with state_dict, container or (get, set)."""
    flattener = _loaded().flattener()
    tree = flattener.top(obj)
    return Flattened(tree, flattener.leaves)


def restore(obj: Any, tree: Tree, read: ReadLeaf) -> None:
    """Puts a stored state back into the object it came from, or one built the same way."""
    _rebuilder(read).top(obj, tree)


def _rebuilder(read: ReadLeaf) -> Rebuilder:
    loaded = _loaded()
    return Rebuilder(loaded.arrays, loaded.objects, loaded.registered, loaded.reassemble, read)


def _kind_of(leaf: Leaf) -> ArrayKind:
    kind = _array_types.get(type(leaf))
    if kind is not None:
        return kind
    for array_kind in _loaded().arrays:
        if array_kind.owns(leaf):
            _array_types[type(leaf)] = array_kind
            return array_kind
    raise NotTrackable(f"{type(leaf).__name__} is an array of no framework that this program has imported")


def describe(leaf: Leaf) -> LeafForm:
    """Looks at metadata only; never waits for a device."""
    return _kind_of(leaf).describe(leaf)


def host_bytes(leaf: Leaf) -> memoryview:
    """The leaf's bytes in row-major order, flat; a view of the live array where possible."""
    return _kind_of(leaf).host_bytes(leaf)


def start_host_copy(leaf: Leaf) -> None:
    """Begins to bring a JAX array to the host without waiting; other arrays have no such call."""
    begin = getattr(leaf, "copy_to_host_async", None)
    if begin is not None:
        begin()


def rng_state() -> Flattened:
    """The global generators of random, numpy, torch with all CUDA devices, and TensorFlow, as far as imported."""
    loaded = _loaded()
    flattener = loaded.flattener()
    tree = flattener.node(generators.global_state(loaded.numpy, loaded.torch), "", direct=False)
    return Flattened(tree, flattener.leaves)


def set_rng_state(tree: Tree, read: ReadLeaf) -> None:
    """Puts the generators back; a generator of a framework that is not loaded now is left out."""
    loaded = _loaded()
    here = [
        item
        for item in tree["items"]
        if item[0] == "random"
        or (item[0] == "numpy" and loaded.numpy is not None)
        or (item[0] == "torch" and loaded.torch is not None)
        or (item[0] == "tensorflow" and tensorflow_state.global_generator() is not None)
    ]
    rebuilder = _rebuilder(read)
    generators.set_global_state(
        lambda live: rebuilder.value({**tree, "items": here}, live, "", direct=False),
        loaded.numpy,
        loaded.torch,
    )
