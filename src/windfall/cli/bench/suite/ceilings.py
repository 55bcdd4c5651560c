"""The best that this machine does in the same run: products a second, memory copied, the way to the GPU and back.

A share of these says more than a share of a data sheet. Must not know the operations of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from windfall.cli.bench.suite.libraries import GPU, Library
from windfall.cli.bench.suite.measuring import Tell
from windfall.cli.bench.suite.timing import TimeBudget, samples

#: Edges of the large products; the best of them counts.
PRODUCTS = {"cpu": (4096, 6144), "gpu": (8192,)}
QUICK_PRODUCTS = {"cpu": (2048,), "gpu": (4096,)}
MIB = 1 << 20


def measure_ceilings(library: Library, threads: int, tell: Tell, *, quick: bool) -> None:
    """All ceilings of the library's device, each as the best sample."""
    on_gpu = library.device == GPU
    budget = TimeBudget(0.2, least=2, most=5) if quick else TimeBudget(0.5, least=3, most=20)
    sizes = (QUICK_PRODUCTS if quick else PRODUCTS)[library.device]
    _tell(library, tell, "fp32_flop_s", _product_rate(library, sizes, budget))
    if on_gpu:
        library.use_tf32(on=True)
        _tell(library, tell, "tf32_flop_s", _product_rate(library, sizes, budget))
        library.use_tf32(on=False)
    copied = (1024 if on_gpu else 512) * MIB // (8 if quick else 1)
    block = library.np.ones(copied // 4, dtype=library.np.float32)
    if on_gpu:
        array = library.put(block)
        _tell(
            library, tell, "memory_bytes_s", _rate(2 * copied, lambda: library.copy(array), library, budget)
        )
        _way_to_the_gpu(library, (64 if quick else 256) * MIB, budget, tell)
    else:
        _tell(library, tell, "memory_bytes_s", _host_copy_rate(library, block, threads, budget))


def _product_rate(library: Library, sizes: tuple[int, ...], budget: TimeBudget) -> float:
    best = 0.0
    for size in sizes:
        left = library.put(library.np.full((size, size), 0.5, dtype=library.np.float32))
        right = library.copy(left)
        taken = samples(lambda left=left, right=right: library.multiply(left, right), library.sync, budget)  # type: ignore[misc]  # mypy cannot type a lambda with defaults
        best = max(best, 2.0 * size**3 / min(taken))
    return best


def _host_copy_rate(library: Library, block: Any, threads: int, budget: TimeBudget) -> float:
    # One thread does not fill the memory bus of a server; numpy lets go of the interpreter while it copies.
    into = library.np.empty_like(block)
    cuts = [len(block) * part // threads for part in range(threads + 1)]

    def copy(part: int) -> None:
        library.np.copyto(into[cuts[part] : cuts[part + 1]], block[cuts[part] : cuts[part + 1]])

    with ThreadPoolExecutor(threads) as pool:
        return _rate(2 * block.nbytes, lambda: list(pool.map(copy, range(threads))), library, budget)


def _way_to_the_gpu(library: Library, length: int, budget: TimeBudget, tell: Tell) -> None:
    block = library.np.ones(length // 4, dtype=library.np.float32)
    _tell(library, tell, "to_gpu_bytes_s", _rate(length, lambda: library.put(block), library, budget))
    array = library.put(block)
    # A changed array each time: JAX keeps the host's copy of one that was asked for already.
    _tell(
        library,
        tell,
        "from_gpu_bytes_s",
        _rate(length, lambda: library.get(library.copy(array)), library, budget),
    )
    pinned = library.pinned(block)
    if pinned is None:
        return
    _tell(
        library,
        tell,
        "to_gpu_pinned_bytes_s",
        _rate(length, lambda: library.put_pinned(pinned), library, budget),
    )
    _tell(
        library,
        tell,
        "from_gpu_pinned_bytes_s",
        _rate(length, lambda: library.get_pinned(array, pinned), library, budget),
    )


def _rate(moved_bytes: int, do: Callable[[], Any], library: Library, budget: TimeBudget) -> float:
    return moved_bytes / min(samples(do, library.sync, budget))


def _tell(library: Library, tell: Tell, name: str, value: float) -> None:
    tell({"library": library.name, "device": library.device, "ceiling": name, "value": value})
