"""What is measured: matrix products, image operations and a Gaussian blur, as one array expression for every library.

The published benchmark that this one repeats names its operations and not their definition, so they are defined here,
and the same expression runs in numpy, PyTorch, CuPy and JAX: no library has a kernel of its own written for it.
Must not know a library, a device or a clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

PRODUCT, IMAGE, BLUR = "product", "image", "blur"
FLOAT_BYTES = 4
BINS = 256
#: Of the blur, in pixels; the kernel reaches three sigma far.
SIGMA = 3.0
GREY = (0.299, 0.587, 0.114)

PRODUCT_SIZES = (1000, 5000, 8000, 10000)
QUICK_PRODUCT_SIZES = (1000, 2000)
IMAGE_SIZES = (2048, 4096)
BATCHES = (1, 2)
BLUR_SIZE = 4096
#: Edges of the small products between which the break-even is looked for.
SWEEP_SIZES = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
QUICK_SWEEP_SIZES = (16, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class BenchOperation:
    """One line of the table: what is done, on how large a thing."""

    kind: str
    size: int
    batch: int = 1

    @property
    def name(self) -> str:
        """As the published table spells it, which leaves the blur's size away."""
        edge = f"{self.size}x{self.size}"
        if self.kind == PRODUCT:
            return f"Matrix {edge}"
        return f"Image {edge} (batch {self.batch})" if self.kind == IMAGE else f"Gaussian Blur {edge}"

    @property
    def flops(self) -> float:
        """Floating-point operations of a product, a multiplication and an addition each; 0 for the others."""
        return 2.0 * self.size**3 if self.kind == PRODUCT else 0.0

    @property
    def bytes_in(self) -> int:
        """What must come to the device."""
        pixels = self.size * self.size * FLOAT_BYTES
        return pixels * {PRODUCT: 2, IMAGE: 3 * self.batch, BLUR: 1}[self.kind]

    @property
    def bytes_out(self) -> int:
        """What must go back: for images the half-size result."""
        pixels = self.size * self.size * FLOAT_BYTES
        return pixels * self.batch // 4 if self.kind == IMAGE else pixels


def operations(*, quick: bool) -> list[BenchOperation]:
    """The lines of the table in its own order; a quick run leaves the large ones out."""
    products = QUICK_PRODUCT_SIZES if quick else PRODUCT_SIZES
    images = IMAGE_SIZES[:1] if quick else IMAGE_SIZES
    return [
        *(BenchOperation(PRODUCT, size) for size in products),
        *(BenchOperation(IMAGE, size, batch) for size in images for batch in BATCHES),
        BenchOperation(BLUR, images[-1] if quick else BLUR_SIZE),
    ]


def sweep(*, quick: bool) -> list[BenchOperation]:
    """Small products, from where the CPU wins to where it does not."""
    return [BenchOperation(PRODUCT, size) for size in (QUICK_SWEEP_SIZES if quick else SWEEP_SIZES)]


def inputs(numpy: Any, operation: BenchOperation) -> list[Any]:
    """The arrays that an operation takes, as numpy has them, the same in every run."""
    draw = numpy.random.default_rng(operation.size + operation.batch)
    edge = (operation.size, operation.size)
    if operation.kind == PRODUCT:
        return [draw.random(edge, dtype=numpy.float32) for _ in range(2)]
    shape = (operation.batch, 3, *edge) if operation.kind == IMAGE else (1, *edge)
    return [draw.random(shape, dtype=numpy.float32)]


def carry_out(library: Any, operation: BenchOperation, arrays: list[Any]) -> Any:
    """The operation itself, on arrays of the library; nothing is waited for."""
    if operation.kind == PRODUCT:
        return library.multiply(arrays[0], arrays[1])
    return library.compiled(image if operation.kind == IMAGE else blur)(arrays[0])


def image(library: Any, pictures: Any) -> Any:
    """Grey, edges by Sobel's 3x3 filters, half the size by the mean of 2x2, histogram equalised."""
    grey = pictures[:, 0] * GREY[0] + pictures[:, 1] * GREY[1] + pictures[:, 2] * GREY[2]
    return equalised(library, halved(edges(library, grey)))


def edges(library: Any, grey: Any) -> Any:
    """How steep the picture is at each pixel."""
    p = library.edge_padded(grey, 1)
    across = (
        p[:, :-2, 2:] - p[:, :-2, :-2] + 2 * (p[:, 1:-1, 2:] - p[:, 1:-1, :-2]) + p[:, 2:, 2:] - p[:, 2:, :-2]
    )
    down = (
        p[:, 2:, :-2] - p[:, :-2, :-2] + 2 * (p[:, 2:, 1:-1] - p[:, :-2, 1:-1]) + p[:, 2:, 2:] - p[:, :-2, 2:]
    )
    return library.root(across * across + down * down)


def halved(grey: Any) -> Any:
    """Every 2x2 pixels as their mean."""
    return (grey[:, ::2, ::2] + grey[:, 1::2, ::2] + grey[:, ::2, 1::2] + grey[:, 1::2, 1::2]) * 0.25


def equalised(library: Any, grey: Any) -> Any:
    """Each pixel's rank among the pixels of its picture, from 0 to 1, by a histogram of 256 bins."""
    pictures = grey.shape[0]
    pixels = grey.shape[1] * grey.shape[2]
    # Sobel's answers for values from 0 to 1 are at most the root of 32.
    bins = library.whole_numbers(grey * ((BINS - 1) / math.sqrt(32.0)))
    places = bins + library.counting_up(pictures).reshape(-1, 1, 1) * BINS
    counts = library.counted(places.reshape(-1), BINS * pictures).reshape(pictures, BINS)
    ranks = library.summed_up(library.real_numbers(counts)) / pixels
    return ranks.reshape(-1)[places]


def blur(library: Any, grey: Any) -> Any:
    """Gaussian of sigma 3, first along one axis and then along the other, the border repeated."""
    reach = int(3 * SIGMA)
    weights = [math.exp(-0.5 * (distance / SIGMA) ** 2) for distance in range(-reach, reach + 1)]
    total = sum(weights)
    height, width = grey.shape[1], grey.shape[2]
    padded = library.edge_padded(grey, reach)
    along = _weighted([padded[:, :, at : at + width] for at in range(2 * reach + 1)], weights, total)
    return _weighted([along[:, at : at + height, :] for at in range(2 * reach + 1)], weights, total)


def _weighted(shifted: list[Any], weights: list[float], total: float) -> Any:
    summed = shifted[0] * (weights[0] / total)
    for part, weight in zip(shifted[1:], weights[1:], strict=True):
        summed = summed + part * (weight / total)
    return summed
