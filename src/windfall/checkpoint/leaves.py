"""The contract between the snapshot engine and the frameworks: what a leaf is, and how state becomes leaves.

`windfall.checkpoint.frameworks` implements `Frameworks` as module-level functions. The engine knows bytes, names
and devices; it does not know what a module, an optimizer or a pytree is. The one exception is a torch tensor on
a CUDA device, which the engine copies itself (cuda.py), because the order of those copies is the whole point.

Rules for an implementation:
- `flatten` copies nothing: leaves are the live arrays. The tree is a fresh JSON value (dict with string keys,
  list, str, int, float, bool, None) that shares nothing with the live object, since another thread writes it
  out while training goes on. Floats must come back bit for bit (repr of Python does; NaN and infinities too).
- Paths are unique within one flattened object, stable between calls while the structure stays the same, and
  use "/" between parts. The engine puts the tracked name in front.
- An array reached twice (tied parameters, views of one storage) is one leaf; the tree says where else it belongs.
- The bytes of a leaf are its elements in row-major (C) order, whatever its strides are in memory; a tree may
  note a memory format that restore has to bring back.
- `restore` puts values into existing arrays in place wherever such arrays exist, on their own device.
- Nothing is pickled. A value that cannot be expressed raises `errors.NotTrackable` with the path of the value.
- No framework is imported that the job has not imported: `sys.modules.get("torch")`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

#: A JSON value that says how leaves and plain values make up one tracked object. Only frameworks read it.
Tree: TypeAlias = Any
#: torch.Tensor, numpy.ndarray, jax.Array, tf.Variable or tf.Tensor.
Leaf: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class LeafForm:
    """What the engine has to know about one leaf in order to copy it and to find it again."""

    #: "torch", "numpy", "jax" or "tensorflow".
    kind: str
    #: The framework's own name without its prefix: "float32", "bfloat16", "float8_e4m3fn", "complex64", "bool".
    dtype: str
    shape: tuple[int, ...]
    #: Size of the elements in row-major order without gaps.
    nbytes: int
    #: "cpu", "cuda:0", "jax:gpu:0", "tf:/GPU:0"; "cpu" means that host_bytes costs no more than a memory copy.
    device: str
    #: True where nobody can change the array in place (jax.Array): the engine may hold it and copy later.
    immutable: bool = False


@dataclass(frozen=True, slots=True)
class Flattened:
    """One tracked object taken apart: its structure, and its arrays by path, not copied."""

    tree: Tree
    leaves: Mapping[str, Leaf] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredLeaf:
    """A leaf as it was stored, already verified."""

    dtype: str
    shape: tuple[int, ...]
    #: Flat bytes ("B" format, writable, 64-byte aligned). Valid only until `restore` returns: copy out of it,
    #: and finish device copies from it (synchronise) before returning.
    buffer: memoryview


#: Gives the stored leaf of a path that flatten gave; raises errors.Mismatch for a path that is not stored.
ReadLeaf: TypeAlias = Callable[[str], StoredLeaf]


class Frameworks(Protocol):
    """What `windfall.checkpoint.frameworks` offers; tests pass a fake of the same form."""

    def flatten(self, obj: Any) -> Flattened:
        """Takes apart a module, optimizer, scaler, generator, object with state_dict, pytree or (get, set)."""
        ...

    def restore(self, obj: Any, tree: Tree, read: ReadLeaf) -> None:
        """Puts a stored state back into the object it came from, or one built the same way."""
        ...

    def describe(self, leaf: Leaf) -> LeafForm:
        """Looks at metadata only; never waits for a device."""
        ...

    def host_bytes(self, leaf: Leaf) -> memoryview:
        """The leaf's bytes in row-major order, flat ("B" format); a view of the live array where possible."""
        ...

    def start_host_copy(self, leaf: Leaf) -> None:
        """Begins to bring an immutable device array to the host without waiting (jax: copy_to_host_async)."""
        ...

    def rng_state(self) -> Flattened:
        """The generators of random, numpy, torch and all CUDA devices, as far as the job has imported them."""
        ...

    def set_rng_state(self, tree: Tree, read: ReadLeaf) -> None:
        """Puts the generators back; a generator of a framework that is not loaded now is left out."""
        ...
