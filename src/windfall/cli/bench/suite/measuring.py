"""Measures the operations with one library on one device, apart by what a user pays for.

On a GPU: the import, the first CUDA call of the process, an operation's own first call, bringing arrays there and
back (pageable and page-locked), the whole way, and the operation on arrays that are there already. On a CPU the
operation alone. Must not know how results travel: each goes to `tell`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from windfall.cli.bench.suite.libraries import GPU, LIBRARIES, Library
from windfall.cli.bench.suite.operations import BLUR, IMAGE, PRODUCT, BenchOperation, carry_out, inputs
from windfall.cli.bench.suite.timing import (
    FULL,
    FULL_TRANSFER,
    QUICK,
    QUICK_TRANSFER,
    once,
    samples,
)

Tell = Callable[[dict[str, Any]], None]

#: A result may differ from numpy's by this much: fp32 sums in another order, and TF32 is off.
TOLERANCE = 1e-4


class WrongResult(Exception):
    """A library computed something else than numpy did; its times would mean nothing."""


def opened(name: str, device: str, threads: int, tell: Tell) -> Library | None:
    """Import a library, start its device, and say how long each took; None when it cannot be."""
    begun = time.perf_counter()
    try:
        library = LIBRARIES[name](device)
    except ImportError as error:
        # Installed for another driver, or half: the other libraries can be measured all the same.
        tell({"library": name, "device": device, "fact": "import_error", "value": str(error)})
        return None
    tell(_fact(library, "import_s", time.perf_counter() - begun))
    tell(_fact(library, "version", library.version()))
    library.use_threads(threads)
    # Asking for the device may already start it, so that it belongs to the first call.
    begun = time.perf_counter()
    if not library.present():
        return None
    library.first_call()
    if device == GPU:
        tell(_fact(library, "first_call_s", time.perf_counter() - begun))
    for fact, value in library.device_facts().items():
        tell(_fact(library, fact, value))
    library.use_tf32(on=False)
    return library


class Measurer:
    """Takes samples with one library and tells them."""

    def __init__(self, library: Library, tell: Tell, *, quick: bool) -> None:
        self._library = library
        self._tell = tell
        self._budget = QUICK if quick else FULL
        self._transfer_budget = QUICK_TRANSFER if quick else FULL_TRANSFER

    def measure(self, operation: BenchOperation) -> None:
        """Everything about one line of the table."""
        host = inputs(self._library.np, operation)
        if self._library.device == GPU:
            self._record(
                operation, "first", [once(lambda: self._whole_way(operation, host), self._library.sync)]
            )
        self._resident(operation, host)
        if self._library.device == GPU:
            self._transfers(operation, host)
            self._pinned_transfers(operation, host)
            if operation.kind == PRODUCT:
                self._in_tf32(operation, host)

    def measure_small(self, operation: BenchOperation) -> None:
        """What the break-even needs of one size: resident and the whole way."""
        host = inputs(self._library.np, operation)
        self._resident(operation, host)
        if self._library.device == GPU:
            self._sample("end_to_end", operation, lambda: self._whole_way(operation, host))

    def check(self) -> None:
        """Compare small results with numpy's; a library that is wrong is not worth timing."""
        reference = LIBRARIES["numpy"]()
        for operation in (
            BenchOperation(PRODUCT, 128),
            BenchOperation(IMAGE, 64, 2),
            BenchOperation(BLUR, 64),
        ):
            host = inputs(reference.np, operation)
            wanted = carry_out(reference, operation, host)
            # A pixel on the border of two bins may fall into either: the mean is compared, not the worst.
            error = float(reference.np.abs(self._whole_way(operation, host) - wanted).mean())
            error /= float(reference.np.abs(wanted).mean())
            if not error < TOLERANCE:
                raise WrongResult(
                    f"{self._library.name} on the {self._library.device} differs from numpy by {error:.2g}"
                    f" (mean, relative) in {operation.name}"
                )
            self._tell(_fact(self._library, f"error_{operation.kind}", error))

    def _whole_way(self, operation: BenchOperation, host: list[Any]) -> Any:
        arrays = [self._library.put(array) for array in host]
        return self._library.get(carry_out(self._library, operation, arrays))

    def _resident(self, operation: BenchOperation, host: list[Any], precision: str = "fp32") -> None:
        arrays = [self._library.put(array) for array in host]
        taken = samples(lambda: carry_out(self._library, operation, arrays), self._library.sync, self._budget)
        self._record(operation, "resident", taken, precision)

    def _in_tf32(self, operation: BenchOperation, host: list[Any]) -> None:
        self._library.use_tf32(on=True)
        try:
            self._resident(operation, host, precision="tf32")
        finally:
            self._library.use_tf32(on=False)

    def _transfers(self, operation: BenchOperation, host: list[Any]) -> None:
        library = self._library
        self._sample("in", operation, lambda: [library.put(array) for array in host])
        arrays = [library.put(array) for array in host]
        taken: list[float] = []
        for _ in range(self._transfer_budget.least + 1):
            # A new result each time: JAX keeps the host's copy of one that was asked for already.
            result = carry_out(library, operation, arrays)
            taken.append(once(lambda result=result: library.get(result), library.sync))  # type: ignore[misc]  # mypy cannot type a lambda with a default
        self._record(operation, "out", taken[1:])
        self._sample("end_to_end", operation, lambda: self._whole_way(operation, host))

    def _pinned_transfers(self, operation: BenchOperation, host: list[Any]) -> None:
        library = self._library
        pinned = [library.pinned(array) for array in host]
        if any(array is None for array in pinned):
            return
        arrays = [library.put_pinned(array) for array in pinned]
        result = carry_out(library, operation, arrays)
        back = library.pinned(library.get(result))

        def whole_way() -> None:
            moved = [library.put_pinned(array) for array in pinned]
            library.get_pinned(carry_out(library, operation, moved), back)

        self._sample("in_pinned", operation, lambda: [library.put_pinned(array) for array in pinned])
        self._sample("out_pinned", operation, lambda: library.get_pinned(result, back))
        self._sample("end_to_end_pinned", operation, whole_way)

    def _sample(self, measure: str, operation: BenchOperation, do: Callable[[], Any]) -> None:
        self._record(operation, measure, samples(do, self._library.sync, self._transfer_budget))

    def _record(
        self, operation: BenchOperation, measure: str, taken: list[float], precision: str = "fp32"
    ) -> None:
        self._tell(
            {
                "library": self._library.name,
                "device": self._library.device,
                "kind": operation.kind,
                "size": operation.size,
                "batch": operation.batch,
                "measure": measure,
                "precision": precision,
                "samples": taken,
            }
        )


def _fact(library: Library, name: str, value: Any) -> dict[str, Any]:
    return {"library": library.name, "device": library.device, "fact": name, "value": value}
