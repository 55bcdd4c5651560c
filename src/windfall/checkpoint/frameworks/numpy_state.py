"""Decides how numpy's arrays, scalars and generators become leaves and come back bit for bit.

Also the ground on which JAX and TensorFlow stand here: both bring numpy along. Nothing here imports numpy unless
the job has done so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from windfall.checkpoint.errors import Mismatch, NotTrackable
from windfall.checkpoint.leaves import LeafForm, StoredLeaf


def dtype_name(dtype: Any) -> str:
    """The plain name of a native type ("float32", "bfloat16"), or numpy's own spelling ("<M8[ns]", ">f4")."""
    return str(dtype.name) if dtype.isnative and dtype.kind in "biufcV" else str(dtype.str)


def flat_bytes(numpy: Any, array: Any) -> memoryview:
    """Row-major bytes; a view where the array already lies that way."""
    if array.nbytes == 0:
        return memoryview(b"")
    return memoryview(numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8))


def from_stored(numpy: Any, stored: StoredLeaf) -> Any:
    """The stored leaf as an array over the engine's buffer, which lives only until restore returns."""
    dtype = numpy.dtype(stored.dtype)
    if stored.buffer.nbytes == 0:
        return numpy.empty(stored.shape, dtype)
    return numpy.frombuffer(stored.buffer, numpy.uint8).view(dtype).reshape(stored.shape)


class NumpyArrays:
    """Arrays, memory-mapped ones too."""

    kind = "numpy"

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy

    def owns(self, value: Any) -> bool:
        """Scalars such as numpy.float32(1) have their own form, below."""
        return isinstance(value, self._numpy.ndarray)

    def take(self, value: Any, path: str) -> tuple[Any, dict[str, Any]]:
        """The array itself; Fortran order is noted."""
        if (
            value.dtype.hasobject
            or value.dtype.names is not None
            or isinstance(value, self._numpy.ma.MaskedArray)
        ):
            raise NotTrackable(
                f"{path}: an array of {value.dtype} ({type(value).__name__}) has no plain bytes; track its columns as "
                "arrays of numbers"
            )
        fortran = value.ndim > 1 and value.flags.f_contiguous and not value.flags.c_contiguous
        return value, {"order": "F"} if fortran else {}

    def identity(self, leaf: Any) -> Hashable:
        """The same memory in the same order is the same leaf."""
        if leaf.nbytes == 0:
            return None
        return (leaf.__array_interface__["data"][0], leaf.dtype.str, leaf.shape, leaf.strides)

    def immutable(self, leaf: Any) -> bool:
        """Read-only arrays cannot be filled again."""
        return not leaf.flags.writeable

    def describe(self, leaf: Any) -> LeafForm:
        """Arrays are always on the host."""
        return LeafForm("numpy", dtype_name(leaf.dtype), tuple(leaf.shape), int(leaf.nbytes), "cpu")

    def host_bytes(self, leaf: Any) -> memoryview:
        """A view of a contiguous array."""
        return flat_bytes(self._numpy, leaf)

    def rebuild(self, stored: StoredLeaf, node: dict[str, Any], template: Any, path: str) -> Any:  # noqa: ARG002 (the form of all array kinds)
        """Fills the live array if shape and type are the same."""
        source = from_stored(self._numpy, stored)
        if (
            template is not None
            and template.shape == source.shape
            and template.dtype == source.dtype
            and template.flags.writeable
        ):
            self._numpy.copyto(template, source)
            return template
        return self._numpy.array(source, order=node.get("order", "C"), copy=True)

    def fold_views(self, nodes: list[tuple[dict[str, Any], Any]]) -> set[str]:  # noqa: ARG002 (the form of all array kinds)
        """Overlapping arrays are rare in numpy programs: each is stored by itself, which is right if not smallest."""
        return set()


class NumpyGenerators:
    """numpy.random.Generator, RandomState and bit generators that the program made itself."""

    name = "numpy.random"

    def __init__(self, numpy: Any) -> None:
        self._random = numpy.random

    def owns(self, value: Any) -> bool:
        """The global generator is tracked with the RNGs."""
        return isinstance(
            value, (self._random.Generator, self._random.RandomState, self._random.BitGenerator)
        )

    def state(self, value: Any) -> Any:
        """numpy's own description of the position, a fresh dict."""
        if isinstance(value, self._random.RandomState):
            return value.get_state(legacy=False)
        return getattr(value, "bit_generator", value).state

    def load(self, value: Any, rebuild: Callable[[Any], Any], path: str) -> None:
        """Refuses the state of another algorithm."""
        live = self.state(value)
        stored = rebuild(live)
        if stored["bit_generator"] != live["bit_generator"]:
            raise Mismatch(
                f"{path}: stored by {stored['bit_generator']}, the program uses {live['bit_generator']}; make the "
                "generator as in the run that wrote the checkpoint"
            )
        if isinstance(value, self._random.RandomState):
            value.set_state(stored)
        else:
            getattr(value, "bit_generator", value).state = stored


def plain_values(numpy: Any) -> dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]]:
    """Scalars and types, as (pack, unpack)."""
    return {
        numpy.generic: (numpy.asarray, lambda array: array[()]),
        numpy.dtype: (lambda dtype: dtype.str if dtype.kind != "V" else dtype.name, numpy.dtype),
    }


def rng_state(numpy: Any) -> dict[str, Any]:
    """The global generator behind numpy.random.rand and friends."""
    state: dict[str, Any] = numpy.random.get_state(legacy=False)
    return state


def set_rng_state(numpy: Any, state: dict[str, Any]) -> None:
    """Puts the global generator back."""
    numpy.random.set_state(state)
