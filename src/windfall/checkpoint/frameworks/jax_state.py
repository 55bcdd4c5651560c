"""Decides how JAX's arrays, PRNG keys and pytree nodes become leaves and come back bit for bit.

JAX's arrays never change in place, so they are tracked through a pair (get, set) or as attributes of an object.
Nothing here imports jax unless the job has done so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from windfall.checkpoint.errors import Mismatch, NotTrackable
from windfall.checkpoint.frameworks.numpy_state import flat_bytes, from_stored
from windfall.checkpoint.leaves import LeafForm, StoredLeaf


class JaxArrays:
    """Arrays on any device of this process, and keys of jax.random.key."""

    kind = "jax"

    def __init__(self, jax: Any, numpy: Any) -> None:
        self._jax = jax
        self._numpy = numpy

    def owns(self, value: Any) -> bool:
        """Typed keys are arrays too."""
        return isinstance(value, self._jax.Array)

    def take(self, value: Any, path: str) -> tuple[Any, dict[str, Any]]:
        """The array, or the numbers of a key; the copy to the host is begun so that all copies overlap."""
        jax = self._jax
        if isinstance(value, jax.core.Tracer):
            raise NotTrackable(f"{path}: is being traced; call run.step() outside of jit")
        if not value.is_fully_addressable:
            raise NotTrackable(
                f"{path}: has parts in other processes; track this process's part by (get, set)"
            )
        notes: dict[str, Any] = {}
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            notes["key"] = str(jax.random.key_impl(value))
            value = jax.random.key_data(value)
        elif getattr(value, "weak_type", False):
            notes["weak"] = True
        if _device(value) != "cpu":
            value.copy_to_host_async()
        return value, notes

    def identity(self, leaf: Any) -> Hashable:
        """One object is one array."""
        return id(leaf)

    def immutable(self, leaf: Any) -> bool:  # noqa: ARG002 (the form of all array kinds)
        """Always."""
        return True

    def describe(self, leaf: Any) -> LeafForm:
        """`immutable` stays False: a train step that donates its arguments deletes what it was given, so the engine

        must have the bytes before the next step begins and may not hold on to the array itself.
        """
        size = leaf.size * self._numpy.dtype(leaf.dtype).itemsize
        return LeafForm("jax", str(leaf.dtype), tuple(leaf.shape), int(size), _device(leaf))

    def host_bytes(self, leaf: Any) -> memoryview:
        """A view of the array where it lies on the CPU; else waits for the copy begun by `take`."""
        return flat_bytes(self._numpy, self._numpy.asarray(leaf))

    def rebuild(self, stored: StoredLeaf, node: dict[str, Any], template: Any, path: str) -> Any:
        """A new array, placed as the live one is."""
        jax = self._jax
        # A copy: jax takes over aligned host memory without copying, and the engine's buffer does not last.
        host = self._numpy.array(from_stored(self._numpy, stored), copy=True)
        if (key := node.get("key")) is not None:
            return jax.random.wrap_key_data(jax.numpy.asarray(host), impl=key)
        if node.get("weak") and host.ndim == 0:
            return jax.numpy.asarray(host.item(), dtype=None)
        if template is not None and getattr(template, "committed", False):
            made = jax.device_put(host, template.sharding)
        else:
            made = jax.numpy.asarray(host)
        if str(made.dtype) != stored.dtype:
            raise Mismatch(
                f"{path}: stored as {stored.dtype}, JAX makes {made.dtype} of it; set jax_enable_x64 as in the run "
                "that wrote the checkpoint"
            )
        return made

    def fold_views(self, nodes: list[tuple[dict[str, Any], Any]]) -> set[str]:  # noqa: ARG002 (the form of all array kinds)
        """No two JAX arrays share memory."""
        return set()


def _device(array: Any) -> str:
    devices = sorted(array.devices(), key=lambda device: int(device.id))
    first = devices[0]
    return "cpu" if first.platform == "cpu" else f"jax:{first.platform}:{first.id}"


def pytree_children(jax: Any, value: Any) -> Sequence[Any] | None:
    """The members of a node type that was registered with JAX (flax's and equinox's states), else None."""
    children, structure = jax.tree_util.tree_flatten(value, is_leaf=lambda part: part is not value)
    return None if jax.tree_util.treedef_is_leaf(structure) else list(children)


def reassembled(jax: Any, template: Any, members: Callable[[Sequence[Any]], list[Any]]) -> Any:
    """A node like the template with other members; what JAX calls its static part is the template's."""
    live, structure = jax.tree_util.tree_flatten(template, is_leaf=lambda part: part is not template)
    return jax.tree_util.tree_unflatten(structure, members(live))
