"""One way to speak to numpy, PyTorch, CuPy and JAX: bring arrays, multiply, filter, wait, bring back.

Decides nothing about what is measured. A library is imported when its object is made, and CUDA is not touched before
`first_call`, so that both can be timed.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any

CPU, GPU = "cpu", "gpu"
CPU_LIBRARIES = ("numpy", "torch")
GPU_LIBRARIES = ("torch", "cupy", "jax")


class Library:
    """numpy, and what the others have in common with it."""

    name = "numpy"

    def __init__(self, device: str = CPU) -> None:
        self.device = device
        self.np = importlib.import_module("numpy")
        self.xp = self._imported()

    def _imported(self) -> Any:
        return self.np

    def version(self) -> str:
        """The release that is measured."""
        return str(self.xp.__version__)

    def device_facts(self) -> dict[str, Any]:
        """Name and memory of the GPU; nothing for a CPU."""
        return {}

    def present(self) -> bool:
        """Whether the device answers."""
        return self.device == CPU

    def use_threads(self, count: int) -> None:
        """How many cores the library may use; numpy reads it from the environment at its start."""

    def use_tf32(self, *, on: bool) -> None:
        """Whether products of fp32 may be rounded to TF32 on the tensor cores."""

    def sync(self) -> None:
        """Wait until all that was asked for is done."""

    def first_call(self) -> None:
        """Start the device: the smallest thing that needs it."""
        self.put(self.np.zeros(1, dtype=self.np.float32))
        self.sync()

    def put(self, host: Any) -> Any:
        """Bring an ordinary (pageable) array to the device."""
        return host

    def get(self, array: Any) -> Any:
        """Bring an array back as an ordinary one."""
        return array

    def pinned(self, host: Any) -> Any:  # noqa: ARG002 (for those that have it)
        """A copy of the array in page-locked memory; None where the library has no such thing."""
        return None

    def put_pinned(self, pinned: Any) -> Any:
        """Bring a page-locked array to the device."""
        return pinned

    def get_pinned(self, array: Any, into: Any) -> None:
        """Bring an array back into page-locked memory."""

    def multiply(self, left: Any, right: Any) -> Any:
        """The matrix product."""
        return left @ right

    def copy(self, array: Any) -> Any:
        """The same array in another place of the same memory."""
        return array.copy()

    def compiled(self, function: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
        """The expression over this library, compiled where the library compiles."""
        return partial(function, self)

    def edge_padded(self, images: Any, reach: int) -> Any:
        """A border around each image that repeats its outermost pixels."""
        return self.xp.pad(images, ((0, 0), (reach, reach), (reach, reach)), mode="edge")

    def root(self, array: Any) -> Any:
        """The square root of each element."""
        return self.xp.sqrt(array)

    def whole_numbers(self, array: Any) -> Any:
        """Each element without its fraction."""
        return array.astype(self.xp.int32)

    def real_numbers(self, array: Any) -> Any:
        """Each element as fp32."""
        return array.astype(self.xp.float32)

    def counting_up(self, count: int) -> Any:
        """0, 1, 2 and so on."""
        return self.xp.arange(count, dtype=self.xp.int32)

    def counted(self, numbers: Any, below: int) -> Any:
        """How often each number occurs."""
        return self.xp.bincount(numbers, minlength=below)

    def summed_up(self, rows: Any) -> Any:
        """Running sums along each row."""
        return self.xp.cumsum(rows, axis=1)


class Torch(Library):
    """PyTorch, on either device."""

    name = "torch"

    def _imported(self) -> Any:
        return importlib.import_module("torch")

    def _where(self) -> str:
        return "cuda" if self.device == GPU else "cpu"

    def device_facts(self) -> dict[str, Any]:
        if self.device == CPU:
            return {}
        properties = self.xp.cuda.get_device_properties(0)
        return {
            "gpu": str(properties.name),
            "gpu_memory_mib": int(properties.total_memory) >> 20,
            "gpu_multiprocessors": int(properties.multi_processor_count),
            "cuda": str(self.xp.version.cuda),
        }

    def present(self) -> bool:
        return self.device == CPU or bool(self.xp.cuda.is_available())

    def use_threads(self, count: int) -> None:
        self.xp.set_num_threads(count)

    def use_tf32(self, *, on: bool) -> None:
        self.xp.backends.cuda.matmul.allow_tf32 = on
        self.xp.backends.cudnn.allow_tf32 = on

    def sync(self) -> None:
        if self.device == GPU:
            self.xp.cuda.synchronize()

    def put(self, host: Any) -> Any:
        array = self.xp.from_numpy(host)
        return array.to(self._where()) if self.device == GPU else array

    def get(self, array: Any) -> Any:
        return array.cpu().numpy()

    def pinned(self, host: Any) -> Any:
        return self.xp.from_numpy(host).pin_memory()

    def put_pinned(self, pinned: Any) -> Any:
        return pinned.to(self._where(), non_blocking=True)

    def get_pinned(self, array: Any, into: Any) -> None:
        into.copy_(array, non_blocking=True)

    def copy(self, array: Any) -> Any:
        return array.clone()

    def edge_padded(self, images: Any, reach: int) -> Any:
        return self.xp.nn.functional.pad(images, (reach, reach, reach, reach), mode="replicate")

    def whole_numbers(self, array: Any) -> Any:
        return array.to(self.xp.int32)

    def real_numbers(self, array: Any) -> Any:
        return array.to(self.xp.float32)

    def counting_up(self, count: int) -> Any:
        return self.xp.arange(count, dtype=self.xp.int32, device=self._where())

    def summed_up(self, rows: Any) -> Any:
        return self.xp.cumsum(rows, dim=1)


#: CuPy's own numbers for how products of fp32 are computed.
_CUPY_DEFAULT, _CUPY_TF32 = 1, 7


class Cupy(Library):
    """CuPy, which has a GPU or nothing."""

    name = "cupy"

    def _imported(self) -> Any:
        return importlib.import_module("cupy")

    def device_facts(self) -> dict[str, Any]:
        properties = self.xp.cuda.runtime.getDeviceProperties(0)
        return {
            "gpu": properties["name"].decode(),
            "gpu_memory_mib": int(properties["totalGlobalMem"]) >> 20,
            "gpu_multiprocessors": int(properties["multiProcessorCount"]),
        }

    def present(self) -> bool:
        try:
            return int(self.xp.cuda.runtime.getDeviceCount()) > 0
        except self.xp.cuda.runtime.CUDARuntimeError:
            return False

    def use_tf32(self, *, on: bool) -> None:
        # The documented variable CUPY_TF32 is read before the first product only; this is what it sets.
        linalg = importlib.import_module("cupy._core._routines_linalg")
        linalg.set_compute_type(self.np.float32, _CUPY_TF32 if on else _CUPY_DEFAULT)

    def sync(self) -> None:
        self.xp.cuda.runtime.deviceSynchronize()

    def put(self, host: Any) -> Any:
        return self.xp.asarray(host)

    def get(self, array: Any) -> Any:
        return self.xp.asnumpy(array)

    def pinned(self, host: Any) -> Any:
        place = importlib.import_module("cupyx").empty_pinned(host.shape, dtype=host.dtype)
        place[...] = host
        return place

    def put_pinned(self, pinned: Any) -> Any:
        return self.xp.asarray(pinned)

    def get_pinned(self, array: Any, into: Any) -> None:
        array.get(out=into)


class Jax(Library):
    """JAX, which compiles an expression when it first meets its shapes."""

    name = "jax"

    def _imported(self) -> Any:
        # Half of the GPU's memory taken at once would tell nothing about a small product's first call.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self._jax = importlib.import_module("jax")
        self._compiled: dict[Any, Callable[[Any], Any]] = {}
        self._product: Callable[[Any, Any], Any] | None = None
        self._waiting: Any = None
        return importlib.import_module("jax.numpy")

    def version(self) -> str:
        return str(self._jax.__version__)

    def device_facts(self) -> dict[str, Any]:
        return {"gpu": str(self._jax.devices()[0].device_kind)}

    def present(self) -> bool:
        return str(self._jax.default_backend()) == "gpu"

    def use_tf32(self, *, on: bool) -> None:
        precision = "tensorfloat32" if on else "highest"
        self._product = self._jax.jit(partial(self.xp.matmul, precision=precision))

    def sync(self) -> None:
        if self._waiting is not None:
            self._waiting.block_until_ready()
            self._waiting = None

    def put(self, host: Any) -> Any:
        self._waiting = self._jax.device_put(host)
        return self._waiting

    def get(self, array: Any) -> Any:
        # np.array copies also where JAX keeps the host's copy from an earlier call.
        return self.np.array(array)

    def multiply(self, left: Any, right: Any) -> Any:
        if self._product is None:
            self.use_tf32(on=False)
        assert self._product is not None
        self._waiting = self._product(left, right)
        return self._waiting

    def copy(self, array: Any) -> Any:
        self._waiting = self.xp.array(array, copy=True)
        return self._waiting

    def compiled(self, function: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
        if function not in self._compiled:
            self._compiled[function] = self._jax.jit(partial(function, self))

        def run(array: Any) -> Any:
            self._waiting = self._compiled[function](array)
            return self._waiting

        return run

    def counted(self, numbers: Any, below: int) -> Any:
        return self.xp.bincount(numbers, length=below)


LIBRARIES: dict[str, type[Library]] = {library.name: library for library in (Library, Torch, Cupy, Jax)}
